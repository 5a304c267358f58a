"""Names of live storages, as the recorder's walks found them, to the lives of blocks.

A walk names storages by address at a moment. Addresses are used again, so a name belongs to the life that was
allocated at that address at that moment.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headroom.evidence.account.replay import Replay
from headroom.evidence.model import Category, Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageName:
    """What a walk says of one storage. `address` is where its memory begins."""

    device: int
    address: int
    size_bytes: int
    category: Category
    name: str
    holder: Holder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameWalk:
    """The storages that were alive at a moment; `time_us` is on the clock of the allocator's history."""

    time_us: int
    storages: tuple[StorageName, ...]


def match_names(replay: Replay, walks: Sequence[NameWalk]) -> dict[int, StorageName]:
    """Names by row of `replay.lives`.

    The last walk that names a life names it: what a variable held at an earlier one may since be held by a list.
    """
    wanted = {
        storage.address
        for walk in walks
        for storage in walk.storages
        if storage.device == replay.device
    }
    if not wanted:
        return {}
    lives = replay.lives
    rows_at: dict[int, list[int]] = defaultdict(list)
    for row, address in enumerate(lives.address):
        if address in wanted:
            rows_at[address].append(row)
    for rows in rows_at.values():
        rows.sort(key=lives.born.__getitem__)
    names: dict[int, StorageName] = {}
    for walk in walks:
        entry = _entry_at(replay, walk.time_us)
        for storage in walk.storages:
            rows = rows_at.get(storage.address, []) if storage.device == replay.device else []
            # Lives at one address follow one another: the last that was born by then, if it still lived.
            place = bisect_right(rows, entry, key=lives.born.__getitem__) - 1
            if place < 0 or entry >= lives.freed[rows[place]]:
                continue
            # A storage that is larger than the block is another one: the clocks disagree.
            if storage.size_bytes <= lives.allocated_bytes[rows[place]]:
                names[rows[place]] = storage
    return names


def _entry_at(replay: Replay, time_us: int) -> int:
    """The last entry that is not later than a moment."""
    return bisect_right(replay.history.times_us, time_us) - 1
