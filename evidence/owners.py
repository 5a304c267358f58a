"""Whose stack a block has, or why it has none."""

from bisect import bisect_right
from typing import Final

from headroom.evidence.model import Missing
from headroom.evidence.replay import Replay
from headroom.evidence.snapshot import DEFAULT_POOL, RawFrames, pool_of
from headroom.evidence.stacks import StackTable

# So many frees have to carry the stack of their allocation, all of those looked at, before it counts as a rule.
_ENOUGH_PAIRS: Final = 20
_PAIRS: Final = 500


class Owners:
    """Finds the owner of each life in a replay.

    Three places may hold it: the `alloc` entry; the block in the final segments, which keeps the stack even where the
    ring has lost the entry; and, in histories recorded with `context="alloc"`, the entry that freed it. With
    `context="all"` a free carries the stack that frees, which owns nothing.
    """

    def __init__(self, replay: Replay, table: StackTable) -> None:
        self._replay, self._table = replay, table
        self._starts = [segment.address for segment in replay.segments]
        self._frees_name_owner = self._frees_carry_allocation()

    def stack_of(self, row: int) -> int | None:
        """Number of the owner's stack, or None where nothing tells it."""
        raw = self._raw_frames(row)
        return self._table.intern(raw) if raw else None

    def missing(self, row: int) -> Missing:
        """Why a block has no stack."""
        if self._pool(row) != DEFAULT_POOL:
            return "private pool"
        return "no stack" if self._replay.lives.born[row] >= 0 else "before recording"

    def _raw_frames(self, row: int) -> RawFrames:
        lives, entries = self._replay.lives, self._replay.entries
        born = lives.born[row]
        if born >= 0:
            return entries[born].get("frames") or []
        final = lives.final.get(row)
        if final is not None:
            return final.frames
        return self._freeing_frames(row) if self._frees_name_owner else []

    def _freeing_frames(self, row: int) -> RawFrames:
        freed = self._replay.lives.completed[row]
        return self._replay.entries[freed].get("frames") or []

    def _pool(self, row: int) -> tuple[int, int]:
        """The pool by the entry, or by the final segment around the address where entries name none (torch 2.11)."""
        lives = self._replay.lives
        born, completed = lives.born[row], lives.completed[row]
        for index in (born, completed):
            if 0 <= index < len(self._replay.entries):
                pool_id = self._replay.entries[index].get("pool_id")
                if pool_id is not None:
                    return pool_of(pool_id)
        place = bisect_right(self._starts, lives.address[row]) - 1
        if place >= 0:
            segment = self._replay.segments[place]
            if lives.address[row] < segment.address + segment.size_bytes:
                return segment.pool
        return DEFAULT_POOL

    def _frees_carry_allocation(self) -> bool:
        """Whether frees repeat the stack of the allocation (`context="alloc"`), judged by lives that show both."""
        lives, end = self._replay.lives, len(self._replay.entries)
        pairs = 0
        for row in range(len(lives)):
            if lives.born[row] >= 0 and lives.completed[row] < end:
                allocating, freeing = self._raw_frames(row), self._freeing_frames(row)
                if self._table.intern(allocating) != self._table.intern(freeing):
                    return False
                pairs += bool(allocating)
                if pairs >= _PAIRS:
                    break
        return pairs >= _ENOUGH_PAIRS
