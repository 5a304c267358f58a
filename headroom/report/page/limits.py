"""How much of an analysis goes into a page, so that a page has a bounded size whatever it is made from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

PAGE_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""No page is larger: it has to open at once, and to go through mail and chat."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most of each thing that is shown; `text` is characters of one name, path or line of source."""

    devices: int
    stacks: int
    frames: int
    points: int
    layers: int
    rows: int
    blocks: int
    windows: int
    causes: int
    diff_lines: int
    text: int


LEVELS: Final = (
    Limits(
        devices=8, stacks=300, frames=64, points=1500, layers=24, rows=60,
        blocks=10, windows=160, causes=12, diff_lines=200, text=300,
    ),
    Limits(
        devices=8, stacks=150, frames=40, points=900, layers=16, rows=40,
        blocks=8, windows=80, causes=10, diff_lines=120, text=240,
    ),
    Limits(
        devices=4, stacks=80, frames=24, points=500, layers=12, rows=24,
        blocks=6, windows=40, causes=8, diff_lines=60, text=160,
    ),
    Limits(
        devices=2, stacks=40, frames=12, points=250, layers=10, rows=12,
        blocks=4, windows=16, causes=5, diff_lines=40, text=100,
    ),
    Limits(
        devices=1, stacks=15, frames=6, points=120, layers=8, rows=8,
        blocks=2, windows=4, causes=3, diff_lines=20, text=60,
    ),
)  # fmt: skip
"""Tried in order until the page is small enough. The last one fits even where every name is as long as it may be."""


@dataclass(slots=True, kw_only=True)
class Cutter:
    """Cuts to the limits and remembers what was cut, in sentences for the reader."""

    limits: Limits
    cuts: list[str] = field(default_factory=list)

    def cut(self, items: Sequence[T], limit: int, what: str) -> Sequence[T]:
        """The first `limit` items; `what` names them in the sentence, in the plural."""
        if len(items) > limit:
            self.cuts.append(f"{limit:,} of {len(items):,} {what} are shown.")
        return items[:limit]
