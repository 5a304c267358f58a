"""`headroom analyze`: explain a saved snapshot, whoever made it. Nothing of the program is run."""

import json as jsonlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headroom.cli import options as opt
from headroom.cli.output import print_json, set_json, to_stderr, to_stdout
from headroom.cli.snapshots import Loaded, load, load_file, load_sample, standard_input
from headroom.errors import SnapshotError, UserError
from headroom.evidence.analysis_model import Difference
from headroom.evidence.explain.compare import compare
from headroom.evidence.explain.line_map import LineMap
from headroom.files import check_output, write_atomically
from headroom.report.analysis import print_analysis
from headroom.report.analysis_json import document, message_document, ranks_document
from headroom.report.page import render_page
from headroom.report.ranks import print_message, print_ranks
from headroom.report.text import plain
from headroom.snapshots.diagnose import Draft, diagnose
from headroom.snapshots.files import rank_files
from headroom.snapshots.oom_text import read_oom_message
from headroom.snapshots.ranks import compare_ranks

STDIN = "-"

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="SNAPSHOT|RUN|-",
        help="A snapshot file (.pickle, also .gz or .zst), a folder of ranks, a run, or - for standard input.",
    ),
]
Html = Annotated[
    Path | None, typer.Option(metavar="OUT", help="Write one self-contained HTML page.")
]
Against = Annotated[
    str | None,
    typer.Option(metavar="OTHER", help="An earlier snapshot or run: what changed since."),
]
PatchFile = Annotated[
    Path | None,
    typer.Option(
        "--patch",
        metavar="DIFF",
        help="With --against: the change between, to follow lines through it.",
    ),
]


def analyze(
    name: Name = None,
    source: opt.Source = None,
    html: Html = None,
    against: Against = None,
    patch: PatchFile = None,
    device: opt.SnapshotDevice = None,
    sample: opt.Sample = False,
    force: opt.Force = False,
    store: opt.StoreFolder = None,
    json: opt.Json = False,
) -> None:
    """Explain a saved snapshot: what fills the peak, why, which lines, what to change. Runs nothing."""
    set_json(json)
    _check(name, html, inputs=(name, against, patch), sample=sample, force=force)
    if patch is not None and (against is None or not patch.is_file()):
        raise UserError(
            "--patch takes a diff, and goes with --against",
            f"headroom analyze {name or 'AFTER'} --against BEFORE --patch FIX.diff",
        )
    if sample:
        loaded = load_sample(device=device)
    elif name == STDIN:
        with standard_input() as given:
            if isinstance(given, str):
                _tell_message(given, as_json=json)
                return
            loaded = load_file(given, source=source, device=device)
    elif Path(str(name)).is_dir():
        _ranks(Path(str(name)), source=source, html=html, as_json=json)
        return
    else:
        loaded = load(str(name), store=store, source=source, device=device)
    before = load(against, store=store, device=device) if against is not None else None
    _tell(
        loaded,
        before,
        name=name or "",
        sourced=source is not None,
        patch=patch,
        html=html,
        as_json=json,
    )


def _check(
    name: str | None,
    html: Path | None,
    *,
    inputs: Sequence[str | Path | None],
    sample: bool,
    force: bool,
) -> None:
    if name is None and not sample:
        raise UserError("no snapshot is named", "headroom analyze --sample")
    if name is not None and sample:
        raise UserError("--sample takes no snapshot beside it", "headroom analyze --sample")
    if html is not None:
        command = f"headroom analyze {shlex.quote(name or '--sample')} --html"
        check_output(
            html, command, inputs=[Path(one) for one in inputs if one is not None], force=force
        )


def drafts_of(loaded: Loaded) -> tuple[Draft, ...]:
    """Diagnoses of the device with the highest peak."""
    record = loaded.record
    return diagnose(
        loaded.analysis.main,
        sources=loaded.sources,
        roots=loaded.roots,
        call_sites=record.call_sites if record is not None and record.call_sites else None,
        parameters_bytes=sum(one.size_bytes for one in record.parameters) if record else 0,
    )


def difference_of(loaded: Loaded, before: Loaded | None, patch: Path | None) -> Difference | None:
    """What changed since the other snapshot, line by line; lines that only moved are the same lines."""
    if before is None:
        return None
    if patch is not None:
        line_map = LineMap.from_diff(patch.read_text(encoding="utf-8", errors="replace"))
    else:
        line_map = LineMap.from_texts(before.sources.texts, loaded.sources.texts)
    return compare(
        before.analysis.main.ledger,
        loaded.analysis.main.ledger,
        line_map=line_map,
        roots=(*before.roots, *loaded.roots),
    )


def _tell(
    loaded: Loaded,
    before: Loaded | None = None,
    *,
    name: str = "",
    sourced: bool = False,
    patch: Path | None = None,
    html: Path | None,
    as_json: bool,
) -> None:
    drafts = drafts_of(loaded)
    difference = difference_of(loaded, before, patch)
    causes = [draft.cause for draft in drafts]
    candidates = [draft.candidate for draft in drafts if draft.candidate is not None]
    command = _next_command(loaded, name, sourced=sourced)
    if html is not None:
        page = render_page(
            loaded.analysis,
            title=loaded.title,
            causes=causes,
            candidates=candidates,
            sources=loaded.sources.texts,
            difference=difference,
            next_command=command,
        )
        write_atomically(html, page)
    if as_json:
        found = document(
            loaded.analysis,
            drafts,
            title=loaded.title,
            difference=difference,
        )
        print_json(jsonlib.dumps(found, indent=2))
        return
    print_analysis(
        to_stdout(),
        loaded.analysis,
        causes,
        title=loaded.title,
        candidates=candidates,
        difference=difference,
        next_commands=[command] if command else [],
    )
    if html is not None:
        to_stderr().print(plain(f"headroom: wrote {html}", "dim"), soft_wrap=True)


def _next_command(loaded: Loaded, name: str, *, sourced: bool) -> str:
    """What to type next, such that it can be typed as it stands."""
    record = loaded.record
    if record is None:
        plain_file = name and name != STDIN and not (loaded.sources.texts or sourced)
        return f"headroom analyze {shlex.quote(name)} --source DIR" if plain_file else ""
    words = ["headroom", "fix"]
    info = record.device_info
    if info is not None and info.kind == "virtual":
        words += ["--device", "virtual"]
    if info is not None and info.capacity_bytes < info.total_memory_bytes:
        words += ["--capacity", str(info.capacity_bytes)]
    words += ["-m"] if record.program.kind == "module" else []
    return shlex.join([*words, record.program.typed, *record.program.args])


def _tell_message(text: str, *, as_json: bool) -> None:
    message = read_oom_message(text)
    if message is None:
        raise UserError(
            "standard input is neither a snapshot nor a text with a CUDA out-of-memory message",
            "headroom analyze - < train.log",
        )
    if as_json:
        print_json(jsonlib.dumps(message_document(message), indent=2))
    else:
        print_message(to_stdout(), message)


def _ranks(folder: Path, *, source: Path | None, html: Path | None, as_json: bool) -> None:
    loaded: dict[int, Loaded] = {}
    for file in rank_files(folder):
        try:
            loaded[file.rank] = load_file(file.path, source=source, device=None)
        except SnapshotError as error:
            said = f"headroom: rank {file.rank} ({file.path.name}) is left out: {error.message}"
            to_stderr().print(plain(said), soft_wrap=True)
    if not loaded:
        raise UserError(f"no file in {folder} can be read as a snapshot", "headroom analyze FILE")
    rows = compare_ranks({rank: (one.title, one.analysis) for rank, one in loaded.items()})
    # The rank that needs a closer look: the one that is furthest off, else the one with the highest peak.
    chosen = max(
        rows, key=lambda row: (row.odd, row.failed, abs(row.off_median_bytes), row.peak_bytes)
    )
    if as_json:
        one = loaded[chosen.rank]
        detail = document(one.analysis, drafts_of(one), title=one.title)
        print_json(jsonlib.dumps(ranks_document(rows, chosen.rank, detail), indent=2))
        return
    print_ranks(to_stdout(), rows)
    _tell(loaded[chosen.rank], html=html, as_json=False)
