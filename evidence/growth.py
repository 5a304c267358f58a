"""Blocks of one stack that pile up over updates or calls.

What survives from three or more different updates at the peak is kept by something: the current update explains one, a
last loss or output that is still referenced explains a second. Warm-up (parameters, optimizer state, workspaces) is
born at one tick, and the activations of a loop over layers too, so neither counts.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median_low
from typing import Final

from headroom.evidence.model import Growth, GrowthId, LiveBlock, StackId, Tick, TickKind

MIN_TICKS: Final = 3

# Updates come first: what piles up over updates does so over calls too, and updates are what a reader counts.
_KINDS: Final[tuple[tuple[TickKind, Callable[[Tick], int]], ...]] = (
    ("update", lambda tick: tick.update),
    ("call", lambda tick: tick.call),
)


def find_growth(blocks: Iterable[LiveBlock]) -> tuple[Growth, ...]:
    """Find what piles up among the blocks that are live at the peak.

    Args:
        blocks: Live blocks; those without a stack or without a birth in the history are passed over.

    Returns:
        Growth by descending bytes, with IDs G01, G02, ... `bytes_per_tick` is the median over the ticks.
    """
    by_stack: dict[StackId, list[tuple[Tick, int]]] = defaultdict(list)
    for block in blocks:
        if block.stack is not None and block.born is not None:
            by_stack[block.stack].append((block.born, block.allocated_bytes))
    found = [
        (stack, kind, per_tick)
        for stack, births in by_stack.items()
        for kind, per_tick in _piles_up(births)
    ]
    found.sort(key=lambda item: (-sum(item[2].values()), item[0]))
    return tuple(
        Growth(
            id=GrowthId(f"G{number:02d}"),
            stack=stack,
            kind=kind,
            ticks=len(per_tick),
            bytes_per_tick=median_low(per_tick.values()),
            allocated_bytes=sum(per_tick.values()),
        )
        for number, (stack, kind, per_tick) in enumerate(found, start=1)
    )


def _piles_up(births: list[tuple[Tick, int]]) -> list[tuple[TickKind, dict[int, int]]]:
    """The first kind of tick of which enough different ones are present, with bytes per tick; empty if none."""
    for kind, count_of in _KINDS:
        per_tick: dict[int, int] = defaultdict(int)
        for tick, size_bytes in births:
            per_tick[count_of(tick)] += size_bytes
        if len(per_tick) >= MIN_TICKS:
            return [(kind, per_tick)]
    return []
