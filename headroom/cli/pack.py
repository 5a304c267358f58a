"""`headroom pack`: a snapshot as a document for a reader with a token budget."""

import json as jsonlib
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headroom.cli import options as opt
from headroom.cli.output import print_json, set_json, to_stderr
from headroom.cli.snapshots import Loaded, load, load_sample
from headroom.errors import UserError
from headroom.evidence.pack.build import BUDGETS, LEAST_TOKENS, MOST_TOKENS, Pack, build_pack
from headroom.evidence.pack.tables import best_counter
from headroom.files import check_output, write_atomically
from headroom.report.text import plain


class Size(StrEnum):
    """The three sizes of detail."""

    brief = "brief"
    standard = "standard"
    full = "full"


_SIZES = ", ".join(f"{name}: {tokens}" for name, tokens in BUDGETS.items())


Name = Annotated[
    str | None,
    typer.Argument(
        metavar="SNAPSHOT|RUN",
        help="A snapshot file, a run's ID or a part of it. [default: the last run]",
    ),
]
Tokens = Annotated[
    int | None,
    typer.Option(min=LEAST_TOKENS, max=MOST_TOKENS, metavar="N", help="Write at most N tokens."),
]
Detail = Annotated[
    Size | None,
    typer.Option(help=f"The budget by name ({_SIZES} tokens). [default: standard]"),
]
Out = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write it there, not to standard output.")
]


def pack(
    name: Name = None,
    tokens: Tokens = None,
    detail: Detail = None,
    source: opt.Source = None,
    device: opt.SnapshotDevice = None,
    out: Out = None,
    sample: opt.Sample = False,
    force: opt.Force = False,
    store: opt.StoreFolder = None,
    json: opt.Json = False,
) -> None:
    """Print the evidence pack of a snapshot: what fills the peak, for a model or a person, within a token budget."""
    set_json(json)
    again = f"headroom pack {'--sample' if sample else name or 'last'}"
    if tokens is not None and detail is not None:
        raise UserError("--tokens and --detail both set the budget", f"{again} --tokens {tokens}")
    if sample and name is not None:
        raise UserError("--sample takes no snapshot beside it", "headroom pack --sample")
    if out is not None:
        check_output(out, f"{again} --out", inputs=[Path(name)] if name else [], force=force)
    written = _build(
        load_sample(device=device)
        if sample
        else load(name or "last", store=store, source=source, device=device),
        tokens,
        detail or Size.standard,
    )
    if out is not None:
        write_atomically(out, written.markdown)
    if json:
        print_json(jsonlib.dumps(_as_json(written, out), indent=2))
    elif out is None:
        # Bytes: a terminal of another encoding must not stop what is UTF-8 on every machine.
        sys.stdout.buffer.write(written.markdown.encode())
        sys.stdout.flush()
    if not json:
        place = f"{out}: " if out is not None else ""
        said = f"headroom: {place}{written.size}, of at most {written.budget_tokens}"
        to_stderr().print(plain(said), soft_wrap=True)


def _build(loaded: Loaded, tokens: int | None, detail: Size) -> Pack:
    return build_pack(
        loaded.analysis,
        facts={},
        sources=loaded.sources.texts,
        budget_tokens=BUDGETS[detail.value] if tokens is None else tokens,
        counter=best_counter(),
    )


def _as_json(written: Pack, out: Path | None) -> dict[str, Any]:
    """A figure that was not counted never stands where a count stands."""
    return {
        "budget_tokens": written.budget_tokens,
        "counted_tokens": None if written.estimated else written.tokens,
        "estimated_tokens": written.tokens if written.estimated else None,
        "counter": written.counter,
        "ids": list(written.ids),
        "file": str(out) if out is not None else None,
        "markdown": written.markdown if out is None else None,
    }
