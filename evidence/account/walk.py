"""The backward walk over a device's history: which blocks lived when, and how large each one really was.

The blocks that are live at the end are known from the segments, whatever the history lost. Walking back, a
`free_completed` makes a block live again and its `alloc` takes it out, so the set of live blocks is known at each
entry. Entries carry requested bytes. The real size of a block follows from what lay behind it when it was allocated:
free neighbours are always merged, so the piece it was cut from reached to the next live block or to the end of the
segment, and `allocator` says when the remainder stays with the block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headroom.evidence.account.address_space import MappedRanges, SortedAddresses
from headroom.evidence.account.allocator import SMALL_BYTES, SizeRules
from headroom.evidence.account.lives import BEFORE, BlockLives
from headroom.evidence.reading.history import Action, History
from headroom.evidence.reading.snapshot import Segment

_ALLOC: Final = int(Action.ALLOC)
_FREE_REQUESTED: Final = int(Action.FREE_REQUESTED)
_FREE_COMPLETED: Final = int(Action.FREE_COMPLETED)
_APPEARS: Final = (int(Action.SEGMENT_ALLOC), int(Action.SEGMENT_MAP))
_VANISHES: Final = (int(Action.SEGMENT_FREE), int(Action.SEGMENT_UNMAP))
_UNMAP: Final = int(Action.SEGMENT_UNMAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkResult:
    """What the walk found.

    `mapped` holds the change of reserved bytes at each entry. `uncertain` gives, for each block older than the history
    and freed within it whose size is not settled by its neighbours, how many bytes it may have beyond its rounded
    size. `contradictions` counts entries that cannot follow from the others, `rule_misses` blocks live at the end
    whose known size is not the one that the rules give: both are 0 in a snapshot that torch wrote.
    """

    lives: BlockLives
    mapped: list[int]
    uncertain: dict[int, int]
    contradictions: int
    rule_misses: int


def walk_back(history: History, segments: Sequence[Segment], rules: SizeRules) -> WalkResult:
    """Walk from the final segments to the first entry.

    Args:
        history: History of one device.
        segments: Final segments of that device.
        rules: The allocator's settings.
    """
    walk = _Walk(history, segments, rules)
    walk.run()
    return walk.settle()


class _Walk:
    def __init__(self, history: History, segments: Sequence[Segment], rules: SizeRules) -> None:
        self.history, self.rules = history, rules
        self.lives = BlockLives()
        self.mapped = [0] * len(history)
        self.contradictions = 0
        # Programs ask for few different sizes.
        self.rounded_sizes: dict[int, int] = {}
        # Rows of blocks that hold memory at the present moment of the walk, and those of the large pool in order.
        # In the small pool sizes and pieces are multiples of 512 bytes, so no remainder ever stays with a block.
        self.active: dict[int, int] = {}
        self.large = SortedAddresses()
        self.ranges = MappedRanges()
        # Rows with what was left behind them when they were allocated, and sizes shown by a later neighbour.
        self.remainders: dict[int, tuple[int, bool]] = {}
        self.shown_sizes: dict[int, int] = {}
        for segment in segments:
            self._start_from(segment)

    def _start_from(self, segment: Segment) -> None:
        end = len(self.history)
        self.ranges.add(segment.address, segment.size_bytes, expandable=segment.expandable)
        for block in segment.blocks:
            if block.state != "inactive":
                freed = end if block.state == "allocated" else BEFORE
                row = self._revive(block.address, block.requested_bytes, freed, end)
                self.lives.allocated_bytes[row] = block.size_bytes
                self.lives.final[row] = block

    def _rounded(self, requested: int) -> int:
        rounded = self.rounded_sizes.get(requested)
        if rounded is None:
            rounded = self.rounded_sizes[requested] = self.rules.rounded(requested)
        return rounded

    def _revive(self, address: int, requested: int, freed: int, completed: int) -> int:
        rounded = self._rounded(requested)
        row = self.lives.add(address, requested, rounded, freed, completed)
        self.active[address] = row
        if rounded > SMALL_BYTES:
            self.large.add(address)
        return row

    def run(self) -> None:
        """Take the entries from the last to the first.

        A million pass here: what most of them need is written out, not called.
        """
        history, lives = self.history, self.lives
        actions, addresses, sizes = history.actions, history.addresses, history.sizes_bytes
        active, rounded_sizes, freed = self.active, self.rounded_sizes, lives.freed
        add_row, add_large = lives.add, self.large.add
        for index in range(len(actions) - 1, -1, -1):
            code = actions[index]
            address = addresses[index]
            if code == _FREE_COMPLETED:
                if address in active:
                    self.contradictions += 1
                    continue
                size_bytes = sizes[index]
                rounded = rounded_sizes.get(size_bytes) or self._rounded(size_bytes)
                active[address] = add_row(address, size_bytes, rounded, BEFORE, index)
                if rounded > SMALL_BYTES:
                    add_large(address)
            elif code == _FREE_REQUESTED:
                row = active.get(address)
                if row is None or freed[row] != BEFORE:
                    self.contradictions += 1
                else:
                    freed[row] = index
            elif code == _ALLOC:
                self._alloc(index, address, sizes[index])
            elif code in _APPEARS:
                self.mapped[index] = sizes[index]
                self.ranges.cut(address, sizes[index])
            elif code in _VANISHES:
                self.mapped[index] = -sizes[index]
                self.ranges.add(address, sizes[index], expandable=code == _UNMAP)

    def _alloc(self, index: int, address: int, size_bytes: int) -> None:
        row = self.active.pop(address, None)
        if row is None:
            self.contradictions += 1
            return
        lives = self.lives
        lives.born[row] = index
        requested = lives.requested_bytes[row]
        if lives.freed[row] == BEFORE or requested != size_bytes:
            self.contradictions += 1
            lives.freed[row] = max(lives.freed[row], index)
        rounded = self.rounded_sizes[requested]
        if rounded > SMALL_BYTES:
            self.large.remove(address)
            self._measure(address, row, rounded)

    def _measure(self, address: int, row: int, rounded: int) -> None:
        """Note what lay behind a block of the large pool when it was cut from its piece, and before it."""
        start = self.ranges.start_of(address)
        room = self._room_behind(address, rounded)
        if start is None or room is None or room < 0:
            self.contradictions += 1
            return
        longest = self.rules.longest_remainder(rounded)
        if room > 0 and (longest is None or room <= longest):
            self.remainders[row] = (room, self.ranges.is_expandable(start))
        # A piece begins where the live block before it ends: that block's size is shown to the byte.
        before = self.large.at_or_before(address)
        if before is not None and before >= start:
            self.shown_sizes[self.active[before]] = address - before

    def _room_behind(self, address: int, rounded: int) -> int | None:
        """Bytes between the rounded end of a block and the next live block or the end of its segment."""
        start = self.ranges.start_of(address)
        if start is None:
            return None
        end = self.ranges.end_of(start)
        following = self.large.after(address)
        return (end if following is None else min(end, following)) - address - rounded

    def settle(self) -> WalkResult:
        """Decide the sizes that the walk left open."""
        keeps = self._who_keeps_remainders()
        lives = self.lives
        for row, (remainder, expandable) in self.remainders.items():
            if row not in lives.final and keeps[expandable]:
                lives.allocated_bytes[row] += remainder
        return WalkResult(
            lives=lives,
            mapped=self.mapped,
            uncertain=self._settle_older(keeps),
            contradictions=self.contradictions,
            rule_misses=self._rule_misses(keeps),
        )

    def _who_keeps_remainders(self) -> dict[bool, bool]:
        """Whether blocks keep small remainders, for expandable segments (True) and for others (False).

        torch splits expandable segments down to 512 bytes and others down to 1 MiB. Blocks whose size is known in
        another way show what really happened; where most of them say otherwise, the file is believed, not the rule.
        """
        votes = {True: 0, False: 0}
        for row, (remainder, expandable) in self.remainders.items():
            known = self._known_size(row)
            if known is not None:
                rounded = self.rules.rounded(self.lives.requested_bytes[row])
                votes[expandable] += 1 if known == rounded + remainder else -1
        # Blocks older than the history show it too where they are larger than their request.
        for address, row in self.active.items():
            block, start = self.lives.final.get(row), self.ranges.start_of(address)
            if block is not None and start is not None:
                larger = block.size_bytes > self.rules.rounded(block.requested_bytes)
                votes[self.ranges.is_expandable(start)] += larger
        return {True: votes[True] > 0, False: votes[False] >= 0}

    def _known_size(self, row: int) -> int | None:
        block = self.lives.final.get(row)
        return self.shown_sizes.get(row) if block is None else block.size_bytes

    def _rule_misses(self, keeps: dict[bool, bool]) -> int:
        misses = 0
        for row in (*self.lives.final, *self.shown_sizes):
            if self.lives.born[row] != BEFORE:
                remainder, expandable = self.remainders.get(row, (0, False))
                rounded = self.rules.rounded(self.lives.requested_bytes[row])
                predicted = rounded + (remainder if keeps[expandable] else 0)
                misses += predicted != self._known_size(row)
        return misses

    def _settle_older(self, keeps: dict[bool, bool]) -> dict[int, int]:
        """Sizes of blocks that were allocated before the history and freed within it."""
        uncertain: dict[int, int] = {}
        for address, row in self.active.items():
            rounded = self.lives.allocated_bytes[row]
            if row in self.lives.final or rounded <= SMALL_BYTES:
                continue
            start = self.ranges.start_of(address)
            if start is None or not keeps[self.ranges.is_expandable(start)]:
                continue
            shown = self.shown_sizes.get(row)
            room = self._room_behind(address, rounded) or 0
            if shown is not None:
                self.lives.allocated_bytes[row] = shown
            elif 0 < room <= SMALL_BYTES:
                # No free piece of the large pool is this small, so the room is part of the block.
                self.lives.allocated_bytes[row] += room
            elif room > 0:
                longest = self.rules.longest_remainder(rounded)
                uncertain[row] = room if longest is None else min(longest, room)
        return uncertain
