"""The balance sheet of a moment, and the accounts of each stream and memory pool."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from typing import Final, TypeAlias

from headroom.evidence.account.lives import BEFORE
from headroom.evidence.account.owners import Owners, segment_keys
from headroom.evidence.account.replay import Replay, series_of
from headroom.evidence.model import BalanceSheet, PoolAccount, Quantities
from headroom.evidence.reading.columns import DEFAULT_POOL

Key: TypeAlias = tuple[int, tuple[int, int]]
Changes: TypeAlias = list[tuple[int, int]]

_MAX_ACCOUNTS: Final = 64


def balance_at(
    replay: Replay,
    pools: Sequence[PoolAccount],
    pool_active_bytes: dict[Key, int],
    entry: int,
    requested_bytes: int,
    *,
    device_total_bytes: int | None = None,
) -> BalanceSheet:
    """Close the books after an entry.

    Args:
        replay: The device.
        pools: Its accounts, taken at this entry (`at_peak`).
        pool_active_bytes: Active bytes of each account at this entry.
        entry: The moment; -1 is before the first entry.
        requested_bytes: What the program asked for of the blocks that are allocated there.
        device_total_bytes: The device's size, where it is known.
    """
    allocated = replay.allocated_after[entry + 1]
    pending = replay.active_after[entry + 1] - allocated
    reserved = replay.reserved_after[entry + 1]
    private = sum(
        pool.at_peak.reserved_bytes - pool_active_bytes.get((pool.stream, pool.pool), 0)
        for pool in pools
        if pool.pool != DEFAULT_POOL
    )
    free = replay.history.device_free_bytes.get(entry)
    known = free is not None and device_total_bytes is not None
    return BalanceSheet(
        entry=entry,
        requested_bytes=requested_bytes,
        rounding_bytes=allocated - requested_bytes,
        allocated_bytes=allocated,
        pending_bytes=pending,
        cached_bytes=reserved - allocated - pending - private,
        private_cached_bytes=private,
        reserved_bytes=reserved,
        device_free_bytes=free,
        device_total_bytes=device_total_bytes,
        non_torch_bytes=(device_total_bytes or 0) - (free or 0) - reserved if known else None,
    )


def pool_accounts(
    replay: Replay, owners: Owners, entry: int
) -> tuple[tuple[PoolAccount, ...], dict[Key, int]]:
    """The accounts by stream and pool, largest first, and the active bytes of each after an entry.

    Beyond 64 accounts the smallest are left out: torch makes a few, a made-up file any number.
    """
    reserved = _reserved(replay)
    accounts: list[PoolAccount] = []
    active_bytes: dict[Key, int] = {}
    blocks = _block_courses(replay, owners)
    for key in sorted(set(blocks) | set(reserved)):
        requested, allocated, active = blocks.get(key, _NOTHING)
        courses = (requested, allocated, reserved.get(key, _ZERO))
        active_bytes[key] = active.at(entry)
        accounts.append(
            PoolAccount(
                stream=key[0],
                pool=key[1],
                at_peak=_quantities([course.at(entry) for course in courses]),
                peak=_quantities([course.highest() for course in courses]),
                live=_quantities([course.last() for course in courses]),
            )
        )
    accounts.sort(key=lambda one: (-one.peak.reserved_bytes, one.stream, one.pool))
    return tuple(accounts[:_MAX_ACCOUNTS]), active_bytes


class _Course:
    """A quantity over the history: a value before the first entry, and one after each entry that changes it."""

    def __init__(self, changes: Changes) -> None:
        before = sum(change for at, change in changes if at == BEFORE)
        later = sorted(pair for pair in changes if pair[0] != BEFORE)
        self._entries = [at for at, _ in later]
        self._values = list(accumulate((change for _, change in later), initial=before))

    def at(self, entry: int) -> int:
        return self._values[bisect_right(self._entries, entry)]

    def highest(self) -> int:
        return max(self._values)

    def last(self) -> int:
        return self._values[-1]


class _Series:
    """The same for a quantity that is known after every entry; index 0 is before the first."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = values

    def at(self, entry: int) -> int:
        return self._values[entry + 1]

    def highest(self) -> int:
        return max(self._values)

    def last(self) -> int:
        return self._values[-1]


Course: TypeAlias = _Course | _Series
_ZERO: Final[Course] = _Course([])
_NOTHING: Final = (_ZERO, _ZERO, _ZERO)


def _quantities(values: Sequence[int]) -> Quantities:
    requested, allocated, reserved = values
    return Quantities(requested_bytes=requested, allocated_bytes=allocated, reserved_bytes=reserved)


def _block_courses(replay: Replay, owners: Owners) -> dict[Key, tuple[Course, Course, Course]]:
    """Requested, allocated and active bytes by account.

    Nearly all blocks belong to one account: it is what the others leave of the device's own series.
    """
    names = owners.streams_and_pools
    if not names:
        return {}
    counts = Counter(owners.keys)
    main = max(counts, key=lambda key: (counts[key], -key))
    others: dict[int, list[int]] = defaultdict(list)
    if len(counts) > 1:
        for row, key in enumerate(owners.keys):
            if key != main:
                others[key].append(row)
    found: dict[Key, tuple[Course, Course, Course]] = {
        names[key]: _courses(replay, rows) for key, rows in others.items()
    }
    whole = (replay.requested_after, replay.allocated_after, replay.active_after)
    if others:
        rest = [row for rows in others.values() for row in rows]
        allocated, active, requested = series_of(replay.lives, rest, len(replay.history))
        requested_left, allocated_left, active_left = (
            _Series(list(map(sub, all_of_it, taken)))
            for all_of_it, taken in zip(whole, (requested, allocated, active), strict=True)
        )
        found[names[main]] = (requested_left, allocated_left, active_left)
    else:
        found[names[main]] = (_Series(whole[0]), _Series(whole[1]), _Series(whole[2]))
    return found


def _courses(replay: Replay, rows: Sequence[int]) -> tuple[Course, Course, Course]:
    lives, end = replay.lives, len(replay.history)
    requested: Changes = []
    allocated: Changes = []
    active: Changes = []
    for row in rows:
        born = lives.born[row]
        for changes, until, size_bytes in (
            (requested, lives.completed[row], lives.requested_bytes[row]),
            (allocated, lives.freed[row], lives.allocated_bytes[row]),
            (active, lives.completed[row], lives.allocated_bytes[row]),
        ):
            # What was freed before the first entry was never allocated within the history.
            if until != BEFORE:
                changes.append((born, size_bytes))
                if until < end:
                    changes.append((until, -size_bytes))
    return _Course(requested), _Course(allocated), _Course(active)


def _reserved(replay: Replay) -> dict[Key, _Course]:
    """Reserved bytes by account: what is mapped at the end, and each entry's change back from there."""
    found: dict[Key, Changes] = defaultdict(list)
    at_end: dict[Key, int] = defaultdict(int)
    for segment in replay.segments:
        at_end[(segment.stream, segment.pool)] += segment.size_bytes
    for index, key in segment_keys(replay):
        change = replay.mapped[index]
        found[key].append((index, change))
        at_end[key] -= change
    for key, size_bytes in at_end.items():
        found[key].append((BEFORE, size_bytes))
    return {key: _Course(changes) for key, changes in found.items()}


def closes(balance: BalanceSheet) -> bool:
    """Whether the sheet adds up, and nothing in it is negative."""
    parts = (
        balance.requested_bytes,
        balance.rounding_bytes,
        balance.pending_bytes,
        balance.cached_bytes,
        balance.private_cached_bytes,
    )
    return sum(parts) == balance.reserved_bytes and min(parts) >= 0
