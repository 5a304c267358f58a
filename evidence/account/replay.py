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
from headroom.evidence.account.allocator import size_rules
from headroom.evidence.account.lives import BlockLives
from headroom.evidence.account.walk import walk_back
from headroom.evidence.reading.history import History
from headroom.evidence.reading.snapshot import Segment, Snapshot
from headroom.evidence.reading.stacks import StackTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The history of one device, replayed.

    Series have one value more than there are entries: index 0 is before the first entry, index `i + 1` after entry `i`.
    `peak_entry` is the first entry after which the most bytes are allocated, -1 before the first entry. `mapped` is the
    change of reserved bytes at each entry.

    Sizes are exact except for the rows in `uncertain`: blocks older than the history and freed within it, counted
    with their rounded size, and the bytes that each may have beyond it. `contradictions` and `rule_misses` are 0
    in a snapshot that torch wrote; otherwise nothing here can be trusted to the byte.
    """

    device: int
    history: History
    segments: tuple[Segment, ...]
    stacks: StackTable
    lives: BlockLives
    mapped: list[int]
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
        extra = series(
            [lives.born[row] for row in rows],
            [lives.freed[row] for row in rows],
            [self.uncertain[row] for row in rows],
            len(self.history),
        )
        highest: int = max(map(add, self.allocated_after, extra))
        return highest - self.peak_allocated_bytes

    def rows_allocated(self, entry: int) -> list[int]:
        """Rows of `lives` that are allocated after an entry, in order of row."""
        return [
            row
            for row, (born, freed) in enumerate(zip(self.lives.born, self.lives.freed, strict=True))
            if born <= entry < freed
        ]


def replay_device(snapshot: Snapshot, device: int) -> Replay:
    """Replay one device of a snapshot, in O(n log n) of its entries and blocks.

    Raises:
        SnapshotError: The sizes add up to more than 64 bits hold.
    """
    history = snapshot.history_of(device)
    segments = snapshot.segments_of(device)
    result = walk_back(history, segments, size_rules(snapshot.settings))
    lives, entries = result.lives, len(history)
    allocated, active, requested = series_of(lives, range(len(lives)), entries)
    reserved_at_end = sum(segment.size_bytes for segment in segments)
    reserved_at_start = reserved_at_end - sum(result.mapped)
    return Replay(
        device=device,
        history=history,
        segments=segments,
        stacks=snapshot.stacks,
        lives=lives,
        mapped=result.mapped,
        allocated_after=allocated,
        active_after=active,
        requested_after=requested,
        reserved_after=_totals(accumulate(result.mapped, initial=reserved_at_start)),
        peak_entry=allocated.index(max(allocated)) - 1,
        uncertain=result.uncertain,
        contradictions=result.contradictions,
        rule_misses=result.rule_misses,
    )


def series_of(
    lives: BlockLives, rows: Iterable[int], entries: int
) -> "tuple[array[int], array[int], array[int]]":
    """Allocated, active and requested bytes of some rows, before and after each entry.

    Raises:
        SnapshotError: The sizes add up to more than 64 bits hold.
    """
    allocated, active, requested = ([0] * (entries + 2) for _ in range(3))
    births, frees, ends = lives.born, lives.freed, lives.completed
    held, asked = lives.allocated_bytes, lives.requested_bytes
    for row in rows:
        # Shifted by one, so that BEFORE is index 0; what has ended before the first entry cancels itself there.
        born, freed, completed = births[row] + 1, frees[row] + 1, ends[row] + 1
        size_bytes, asked_bytes = held[row], asked[row]
        allocated[born] += size_bytes
        allocated[freed] -= size_bytes
        active[born] += size_bytes
        active[completed] -= size_bytes
        requested[born] += asked_bytes
        requested[completed] -= asked_bytes
    return (
        _totals(accumulate(allocated[:-1])),
        _totals(accumulate(active[:-1])),
        _totals(accumulate(requested[:-1])),
    )


def series(
    begins: Iterable[int], ends: Iterable[int], sizes_bytes: Iterable[int], entries: int
) -> "array[int]":
    """Running sum of the sizes of what has begun and not ended, before and after each entry.

    Args:
        begins: Entry at which each begins, BEFORE for before the first.
        ends: Entry at which each ends; the number of entries where it does not.
        sizes_bytes: Size of each.
        entries: Number of entries; the result has one value more.

    Raises:
        SnapshotError: The sizes add up to more than 64 bits hold.
    """
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
