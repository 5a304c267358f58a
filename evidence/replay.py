"""Bytes over time on one device, and the peak, exact to the byte.

Four series are kept apart, each counted as torch counts it in `memory_stats`. *Allocated* bytes are blocks until
`free_requested` (`memory_allocated`). *Active* bytes are blocks until `free_completed`: they include what was freed
while another stream still used it. *Requested* bytes are what the program asked for, until `free_completed`. *Reserved*
bytes are mapped segments.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from operator import add

from headroom.errors import SnapshotError
from headroom.evidence.allocator import size_rules
from headroom.evidence.lives import BlockLives
from headroom.evidence.snapshot import Entry, Segment, Snapshot
from headroom.evidence.walk import walk_back


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The history of one device, replayed.

    Series have one value more than there are entries: index 0 is before the first entry, index `i + 1` after entry `i`.
    `peak_entry` is the first entry after which the most bytes are allocated, -1 before the first entry.

    Sizes are exact except for the rows in `uncertain`: blocks older than the history and freed within it, counted
    with their rounded size, and the bytes that each may have beyond it. `contradictions` and `rule_misses` are 0
    in a snapshot that torch wrote; otherwise nothing here can be trusted to the byte.
    """

    device: int
    entries: list[Entry]
    segments: tuple[Segment, ...]
    lives: BlockLives
    allocated_after: "array[int]"
    active_after: "array[int]"
    requested_after: "array[int]"
    reserved_after: "array[int]"
    peak_entry: int
    uncertain: dict[int, int]
    contradictions: int
    rule_misses: int

    @property
    def peak_allocated_bytes(self) -> int:
        """What `max_memory_allocated` was within the recorded window."""
        return self.allocated_after[self.peak_entry + 1]

    @property
    def peak_requested_bytes(self) -> int:
        """The highest requested bytes, which need not be at the same entry."""
        return max(self.requested_after)

    @property
    def peak_reserved_bytes(self) -> int:
        """What `max_memory_reserved` was within the recorded window."""
        return max(self.reserved_after)

    @property
    def complete(self) -> bool:
        """Whether nothing is older than the history: no live block, and no segment that could have held one."""
        return self.reserved_after[0] == 0 and self.requested_after[0] == 0

    @property
    def peak_active_bytes(self) -> int:
        """The highest active bytes: the peak where a freed block counts until its last stream is done with it."""
        return max(self.active_after)

    @property
    def uncertain_peak_bytes(self) -> int:
        """Bytes by which the peak may be higher than counted, because of blocks of uncertain size."""
        if not self.uncertain:
            return 0
        rows, lives = list(self.uncertain), self.lives
        extra = _series(
            [lives.born[row] for row in rows],
            [lives.freed[row] for row in rows],
            [self.uncertain[row] for row in rows],
            len(self.entries),
        )
        highest: int = max(map(add, self.allocated_after, extra))
        return highest - self.peak_allocated_bytes

    def rows_allocated(self, entry: int) -> list[int]:
        """Rows of `lives` that are allocated after an entry, in order of row."""
        born, freed = self.lives.born, self.lives.freed
        return [row for row in range(len(born)) if born[row] <= entry < freed[row]]


def replay_device(snapshot: Snapshot, device: int) -> Replay:
    """Replay one device of a snapshot, in O(n log n) of its entries and blocks.

    Raises:
        SnapshotError: The sizes add up to more than 64 bits hold.
    """
    entries = snapshot.entries_of(device)
    segments = snapshot.segments_of(device)
    result = walk_back(entries, segments, size_rules(snapshot.settings))
    lives = result.lives
    allocated = _series(lives.born, lives.freed, lives.allocated_bytes, len(entries))
    reserved_at_end = sum(segment.size_bytes for segment in segments)
    reserved_at_start = reserved_at_end - sum(result.mapped)
    return Replay(
        device=device,
        entries=entries,
        segments=segments,
        lives=lives,
        allocated_after=allocated,
        active_after=_series(lives.born, lives.completed, lives.allocated_bytes, len(entries)),
        requested_after=_series(lives.born, lives.completed, lives.requested_bytes, len(entries)),
        reserved_after=_totals(accumulate(result.mapped, initial=reserved_at_start)),
        peak_entry=allocated.index(max(allocated)) - 1,
        uncertain=result.uncertain,
        contradictions=result.contradictions,
        rule_misses=result.rule_misses,
    )


def _series(
    begins: list[int], ends: list[int], sizes_bytes: list[int], entries: int
) -> "array[int]":
    """Running sum of the sizes of what has begun and not ended, before and after each entry."""
    changes = [0] * (entries + 2)
    for begin, end, size_bytes in zip(begins, ends, sizes_bytes, strict=True):
        # Shifted by one, so that BEFORE is index 0; what has ended before the first entry cancels itself there.
        changes[begin + 1] += size_bytes
        changes[end + 1] -= size_bytes
    return _totals(accumulate(changes[: entries + 1]))


def _totals(values: Iterable[int]) -> "array[int]":
    try:
        return array("q", values)
    except OverflowError as error:
        raise SnapshotError(
            "The snapshot is damaged: its sizes add up to more than any device holds."
        ) from error
