"""The backward walk over a device's history: which blocks lived when, and how large each one really was.

The blocks that are live at the end are known from the segments, whatever the history lost. Walking back, a
`free_completed` makes a block live again and its `alloc` takes it out, so the set of live blocks is known at each
entry. Entries carry requested bytes. The real size of a block follows from what lay behind it when it was allocated:
free neighbours are always merged, so the piece it was cut from reached to the next live block or to the end of the
segment, and `allocator` says when the remainder stays with the block.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headroom.evidence.address_space import MappedRanges, SortedAddresses
from headroom.evidence.allocator import SMALL_BYTES, SizeRules
from headroom.evidence.lives import BEFORE, BlockLives
from headroom.evidence.snapshot import Entry, Segment


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


def walk_back(
    entries: Sequence[Entry], segments: Sequence[Segment], rules: SizeRules
) -> WalkResult:
    """Walk from the final segments to the first entry.

    Args:
        entries: History of one device, oldest first.
        segments: Final segments of that device.
        rules: The allocator's settings.
    """
    walk = _Walk(entries, segments, rules)
    walk.run()
    return walk.settle()


class _Walk:
    def __init__(
        self, entries: Sequence[Entry], segments: Sequence[Segment], rules: SizeRules
    ) -> None:
        self.entries, self.rules = entries, rules
        self.lives = BlockLives()
        self.mapped = [0] * len(entries)
        self.contradictions = 0
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
        end = len(self.entries)
        self.ranges.add(segment.address, segment.size_bytes, expandable=segment.expandable)
        for block in segment.blocks:
            if block.state != "inactive":
                freed = end if block.state == "allocated" else BEFORE
                row = self._revive(block.address, block.requested_bytes, freed, end)
                self.lives.allocated_bytes[row] = block.size_bytes
                self.lives.final[row] = block

    def _revive(self, address: int, requested: int, freed: int, completed: int) -> int:
        rounded = self.rules.rounded(requested)
        row = self.lives.add(address, requested, rounded, freed, completed)
        self.active[address] = row
        if rounded > SMALL_BYTES:
            self.large.add(address)
        return row

    def run(self) -> None:
        """Take the entries from the last to the first."""
        steps: dict[str, Callable[[int, Entry], None]] = {
            "alloc": self._alloc,
            "free_requested": self._free_requested,
            "free_completed": self._free_completed,
            "segment_alloc": self._segment_appears,
            "segment_map": self._segment_appears,
            "segment_free": self._segment_vanishes,
            "segment_unmap": self._segment_vanishes,
        }
        for index in range(len(self.entries) - 1, -1, -1):
            entry = self.entries[index]
            step = steps.get(entry["action"])
            if step is not None:
                step(index, entry)

    def _free_completed(self, index: int, entry: Entry) -> None:
        address = entry["addr"]
        if address in self.active:
            self.contradictions += 1
        else:
            self._revive(address, entry["size"], BEFORE, index)

    def _free_requested(self, index: int, entry: Entry) -> None:
        row = self.active.get(entry["addr"])
        if row is None or self.lives.freed[row] != BEFORE:
            self.contradictions += 1
        else:
            self.lives.freed[row] = index

    def _alloc(self, index: int, entry: Entry) -> None:
        address = entry["addr"]
        row = self.active.pop(address, None)
        if row is None:
            self.contradictions += 1
            return
        lives = self.lives
        lives.born[row] = index
        if lives.freed[row] == BEFORE or lives.requested_bytes[row] != entry["size"]:
            self.contradictions += 1
            lives.freed[row] = max(lives.freed[row], index)
        rounded = self.rules.rounded(lives.requested_bytes[row])
        if rounded > SMALL_BYTES:
            self.large.remove(address)
            self._measure(address, row, rounded)

    def _segment_appears(self, index: int, entry: Entry) -> None:
        self.mapped[index] = entry["size"]
        self.ranges.cut(entry["addr"], entry["size"])

    def _segment_vanishes(self, index: int, entry: Entry) -> None:
        self.mapped[index] = -entry["size"]
        expandable = entry["action"] == "segment_unmap"
        self.ranges.add(entry["addr"], entry["size"], expandable=expandable)

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
