"""Several ranks side by side, and a pasted out-of-memory message, for people."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from headroom.report.text import plain
from headroom.snapshots.oom_text import OomMessage, what_it_says
from headroom.snapshots.ranks import RankRow
from headroom.units import format_bytes


def print_ranks(console: Console, rows: Sequence[RankRow]) -> None:
    """A row a rank, and the odd ones by name."""
    table = Table(box=None, pad_edge=False)
    for column in ("rank", "peak", "off the median"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("what differs most", overflow="fold")
    for row in rows:
        style = "bold red" if row.odd else ""
        table.add_row(
            plain(str(row.rank), style),
            plain(format_bytes(row.peak_bytes) + (" OOM" if row.failed else ""), style),
            plain(_signed(row.off_median_bytes), style),
            plain(_line(row)),
        )
    console.print(table)
    odd = [row for row in rows if row.odd]
    if odd:
        names = ", ".join(f"rank {row.rank} ({row.name})" for row in odd)
        console.print(plain(f"Odd one out: {names}."), soft_wrap=True)
    else:
        console.print(plain("No rank stands out: all peaks are close to the median."))
    console.print()


def _line(row: RankRow) -> str:
    if row.line is None:
        return ""
    return (
        f"{_signed(row.line_excess_bytes)} at {row.line.filename}:{row.line.line} ({row.line.name})"
    )


def _signed(size_bytes: int) -> str:
    return ("+" if size_bytes > 0 else "") + format_bytes(size_bytes)


def print_message(console: Console, message: OomMessage) -> None:
    """What an out-of-memory message says, and what to do next."""
    for sentence in what_it_says(message):
        console.print(plain(f"- {sentence}"))
    if message.file is not None:
        console.print(
            plain(
                f"- The request came from {message.file}:{message.line}; that line is where it failed, "
                "not necessarily what fills the memory."
            )
        )
    console.print()
    console.print(
        plain("next: headroom fix YOUR_PROGRAM.py      (records a snapshot and looks for a patch)")
    )
