"""Snapshots of one job's ranks side by side: which rank is the odd one out, and where. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from headroom.evidence.analysis_model import Analysis
from headroom.evidence.model import Frame, Ledger
from headroom.units import MIB

# A rank is odd when it is off the median by this share and this many bytes; ranks of one job differ by a few per cent.
_ODD_SHARE: Final = 0.05
_ODD_BYTES: Final = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank: bytes at its peak, how far from the median of all ranks, and the line that differs most.

    `line_excess_bytes` is what that line holds beyond the median of all ranks; `line` is None where nothing stands out.
    """

    rank: int
    name: str
    peak_bytes: int
    off_median_bytes: int
    odd: bool
    failed: bool
    line: Frame | None
    line_excess_bytes: int


def compare_ranks(analyses: Mapping[int, tuple[str, Analysis]]) -> tuple[RankRow, ...]:
    """Compare the ranks of one job.

    Args:
        analyses: File name and analysis by rank.

    Returns:
        A row a rank, in order. `odd` rows are off the median peak by more than 5 % and 64 MiB.
    """
    ledgers = {rank: analysis.main.ledger for rank, (_, analysis) in analyses.items()}
    middle = int(median(ledger.demand_bytes for ledger in ledgers.values()))
    by_line = {rank: bytes_by_line(ledger) for rank, ledger in ledgers.items()}
    rows = []
    for rank in sorted(ledgers):
        ledger = ledgers[rank]
        off = ledger.demand_bytes - middle
        line, excess = _most_unusual(rank, by_line)
        rows.append(
            RankRow(
                rank=rank,
                name=analyses[rank][0],
                peak_bytes=ledger.demand_bytes,
                off_median_bytes=off,
                odd=abs(off) > _ODD_SHARE * middle and abs(off) > _ODD_BYTES,
                failed=ledger.failure is not None,
                line=line,
                line_excess_bytes=excess,
            )
        )
    return tuple(rows)


def bytes_by_line(ledger: Ledger) -> dict[Frame, int]:
    """Bytes of the peak by the user's innermost line."""
    found: dict[Frame, int] = {}
    for use in ledger.stacks:
        if use.site is not None:
            found[use.site] = found.get(use.site, 0) + use.allocated_bytes
    return found


def _most_unusual(
    rank: int, by_line: Mapping[int, Mapping[Frame, int]]
) -> tuple[Frame | None, int]:
    best: tuple[Frame | None, int] = (None, 0)
    others = [lines for number, lines in by_line.items() if number != rank]
    frames = set().union(*by_line.values())
    for frame in sorted(frames, key=lambda one: (one.filename, one.line, one.name)):
        own = by_line[rank].get(frame, 0)
        usual = int(median(lines.get(frame, 0) for lines in others)) if others else own
        if abs(own - usual) > abs(best[1]):
            best = (frame, own - usual)
    return best if abs(best[1]) > _ODD_BYTES else (None, 0)
