"""Whose stack a block has, which stream and pool it belongs to, or why it has no owner."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headroom.evidence.account.replay import Replay
from headroom.evidence.model import Missing
from headroom.evidence.reading.columns import DEFAULT_POOL
from headroom.evidence.reading.history import NO_POOL, NO_STACK, NOT_READ, Action

# So many frees have to carry the stack of their allocation, all of those looked at, before it counts as a rule.
_ENOUGH_PAIRS: Final = 20
# As round as a ring's length has to be to be taken for one.
_ROUND: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Owner of each life in a replay, as columns beside `replay.lives`.

    `stacks` are numbers of the stack table, NO_STACK where nothing tells the owner. Three places may hold it: the
    `alloc` entry; the block in the final segments, which keeps the stack even where the ring has lost the entry; and,
    in histories recorded with `context="alloc"`, the entry that freed it. With `context="all"` a free carries the
    stack that frees, which owns nothing. `keys` are places in `streams_and_pools`. `cut` says that a full ring has
    dropped the oldest entries.
    """

    replay: Replay
    stacks: "array[int]"
    keys: "array[int]"
    streams_and_pools: tuple[tuple[int, tuple[int, int]], ...]
    cut: bool

    def pool(self, row: int) -> tuple[int, int]:
        """The pool of a row."""
        return self.streams_and_pools[self.keys[row]][1]

    def stream(self, row: int) -> int:
        """The stream of a row."""
        return self.streams_and_pools[self.keys[row]][0]

    def missing(self, row: int) -> Missing:
        """Why a block has no stack."""
        if self.pool(row) != DEFAULT_POOL:
            return "private pool"
        if self.replay.lives.born[row] >= 0:
            return "no stack"
        return "lost by the ring" if self.cut else "before recording"


def find_owners(replay: Replay, *, ring_full: bool | None = None) -> Owners:
    """Find the owner, stream and pool of every life.

    Args:
        replay: The device.
        ring_full: Whether the ring that recorded it had wrapped; None where nobody tells.
    """
    history, lives = replay.history, replay.lives
    stacks = array("i", [NO_STACK]) * len(lives)
    entry_stacks = history.stacks
    from_frees = _frees_carry_allocation(replay)
    final, completed, freed = lives.final, lives.completed, lives.freed
    end = len(history)
    for row, born in enumerate(lives.born):
        if born >= 0:
            stacks[row] = entry_stacks[born]
        elif row in final:
            stack = final[row].stack
            stacks[row] = NO_STACK if stack is None else stack
        elif from_frees:
            for entry in (freed[row], completed[row]):
                if 0 <= entry < end and entry_stacks[entry] >= 0:
                    stacks[row] = entry_stacks[entry]
                    break
    keys, table = _keys(replay)
    cut = is_cut(replay, ring_full)
    return Owners(replay=replay, stacks=stacks, keys=keys, streams_and_pools=table, cut=cut)


def is_cut(replay: Replay, ring_full: bool | None) -> bool:
    """Whether a full ring has dropped the oldest entries.

    A recording that starts late looks much the same. Where nobody tells, two things tell a ring: its
    oldest entry completes a free that nobody requested, or the number of entries is as round as people set
    `max_entries` (a late start ends on a multiple of a hundred once in a hundred times).
    """
    if replay.complete:
        return False
    history = replay.history
    if ring_full is not None:
        return ring_full
    if not len(history):
        return False
    torn = history.actions[0] == Action.FREE_COMPLETED
    return torn or len(history) % _ROUND == 0


def segment_keys(replay: Replay) -> Iterator[tuple[int, tuple[int, tuple[int, int]]]]:
    """Entries that map or unmap memory, with the stream and pool of the segment."""
    history = replay.history
    starts = [segment.address for segment in replay.segments]
    for index, change in enumerate(replay.mapped):
        if change:
            named = history.pools[index] if history.pools else NO_POOL
            if named != NO_POOL:
                pool = history.pool_ids[named]
            else:
                pool = _segment_key(replay, starts, history.addresses[index])[1]
            yield index, (history.streams[index], pool)


def _keys(replay: Replay) -> "tuple[array[int], tuple[tuple[int, tuple[int, int]], ...]]":
    """Stream and pool by the entry, or by the final segment around the address where entries name none (torch 2.11)."""
    history, lives = replay.history, replay.lives
    starts = [segment.address for segment in replay.segments]
    table: dict[tuple[int, tuple[int, int]], int] = {}
    numbers = array("i", bytes(4 * len(lives)))
    end, streams, pools, pool_ids = (
        len(history),
        history.streams,
        history.pools,
        history.pool_ids,
    )
    one_pool = not pools and all(segment.pool == DEFAULT_POOL for segment in replay.segments)
    seen: dict[tuple[int, int], int] = {}
    for row, (born, completed) in enumerate(zip(lives.born, lives.completed, strict=True)):
        entry = born if born >= 0 else completed
        named = pools[entry] if pools and 0 <= entry < end else NO_POOL
        if 0 <= entry < end and (named != NO_POOL or one_pool):
            key = (streams[entry], named)
            number = seen.get(key)
            if number is None:
                pool = pool_ids[named] if named != NO_POOL else DEFAULT_POOL
                number = seen[key] = table.setdefault((streams[entry], pool), len(table))
        else:
            found = _segment_key(replay, starts, lives.address[row])
            stream = streams[entry] if 0 <= entry < end else found[0]
            number = table.setdefault((stream, found[1]), len(table))
        numbers[row] = number
    return numbers, tuple(table)


def _segment_key(replay: Replay, starts: list[int], address: int) -> tuple[int, tuple[int, int]]:
    place = bisect_right(starts, address) - 1
    if place >= 0:
        segment = replay.segments[place]
        if address < segment.address + segment.size_bytes:
            return segment.stream, segment.pool
    return 0, DEFAULT_POOL


def _frees_carry_allocation(replay: Replay) -> bool:
    """Whether frees repeat the stack of the allocation (`context="alloc"`), judged by lives that show both."""
    lives, stacks, end = replay.lives, replay.history.stacks, len(replay.history)
    pairs = 0
    for row in range(len(lives) - 1, -1, -1):
        born, completed = lives.born[row], lives.completed[row]
        if born < 0 or completed >= end or stacks[completed] == NOT_READ:
            continue
        if stacks[born] != stacks[completed]:
            return False
        pairs += 1
    return pairs >= _ENOUGH_PAIRS
