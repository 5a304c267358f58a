"""`headroom scrub`: a small copy of a snapshot that can be shared."""

from pathlib import Path
from typing import Annotated

import typer

from headroom.cli import options as opt
from headroom.cli.output import set_json, to_stderr
from headroom.errors import UserError
from headroom.files import check_output
from headroom.report.text import plain
from headroom.snapshots.files import plain_file
from headroom.snapshots.reader import scrub_file
from headroom.units import format_bytes

Snapshot = Annotated[Path, typer.Argument(metavar="SNAPSHOT", help="A snapshot file.")]
Out = Annotated[
    Path | None, typer.Argument(metavar="[OUT]", help="[default: SNAPSHOT.scrubbed.pickle.gz]")
]


def scrub(snapshot: Snapshot, out: Out = None, force: opt.Force = False) -> None:
    """Write a small copy of a snapshot without paths, names, labels and times of day, to share.

    Bytes, order and line numbers stay, so it gives the same peak; frames of installed packages keep their names.
    """
    set_json(False)
    if not snapshot.exists():
        raise UserError(f"{snapshot} is no file", "headroom scrub snapshot.pickle")
    stem = snapshot.name.split(".", 1)[0]
    target = snapshot.with_name(f"{stem}.scrubbed.pickle.gz") if out is None else out
    check_output(target, f"headroom scrub {snapshot}", inputs=[snapshot], force=force)
    with plain_file(snapshot) as file:
        written = scrub_file(file, target)
    to_stderr().print(
        plain(
            f"headroom: wrote {target} ({format_bytes(written)} of {format_bytes(snapshot.stat().st_size)}); "
            f"look at it before you share it: headroom analyze {target}"
        ),
        soft_wrap=True,
    )
