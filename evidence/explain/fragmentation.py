"""Free memory inside segments, and what a failing request could not use of it.

A free piece serves only requests of its own stream, pool and size class (small up to 1 MiB, large above), and has to
hold the rounded size. At the end of the history the final segments say what is free; at an earlier entry the mapped
ranges and the live blocks of that moment do: they follow from the final segments by going back entry by entry.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from headroom.evidence.account.account import Account
from headroom.evidence.account.address_space import SortedAddresses
from headroom.evidence.account.allocator import SMALL_BYTES, SizeRules
from headroom.evidence.account.replay import Replay
from headroom.evidence.analysis_model import Fragmentation, FreeKey
from headroom.evidence.reading.columns import DEFAULT_POOL
from headroom.evidence.reading.history import NO_POOL, Action
from headroom.evidence.reading.snapshot import Segment
from headroom.units import MIB

Key: TypeAlias = tuple[int, tuple[int, int], bool]

# kSmallBuffer of c10/cuda/CUDACachingAllocator.cpp (torch 2.11 to 2.13): segments and pages of the small pools.
SMALL_SEGMENT_BYTES: Final = 2 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Free memory between blocks: what one request of its key could have at most."""

    key: Key
    address: int
    size_bytes: int


def fragmentation_of(account: Account, rules: SizeRules) -> Fragmentation:
    """Look at the failure, or else at the end of the history.

    Args:
        account: The device.
        rules: The allocator's settings, which round the request.
    """
    replay, history = account.replay, account.replay.history
    failure = history.last(Action.OOM)
    entry = failure if failure >= 0 else len(history) - 1
    pieces = list(free_pieces(replay, entry))
    if failure < 0:
        return _told(entry, None, 0, None, pieces)
    pool = DEFAULT_POOL
    if history.pools and history.pools[failure] != NO_POOL:
        pool = history.pool_ids[history.pools[failure]]
    request_bytes = history.sizes_bytes[failure]
    rounded = rules.rounded(request_bytes)
    key = (history.streams[failure], pool, rounded <= SMALL_BYTES)
    return _told(entry, request_bytes, rounded, key, pieces)


def _told(
    entry: int, request_bytes: int | None, rounded: int, wanted: Key | None, pieces: list[Piece]
) -> Fragmentation:
    free_bytes = sum(piece.size_bytes for piece in pieces)
    usable = [piece.size_bytes for piece in pieces if wanted in (None, piece.key)]
    fitting = sum(size for size in usable if size >= rounded)
    return Fragmentation(
        entry=entry,
        request_bytes=request_bytes,
        free_bytes=free_bytes,
        unusable_bytes=free_bytes - fitting,
        largest_usable_bytes=max(usable, default=0),
        whole=wanted is not None and free_bytes - fitting >= rounded,
        keys=_keys(pieces, wanted),
    )


def _keys(pieces: list[Piece], wanted: Key | None) -> tuple[FreeKey, ...]:
    sizes: dict[Key, list[int]] = {}
    for piece in pieces:
        sizes.setdefault(piece.key, []).append(piece.size_bytes)
    keys = (
        FreeKey(
            stream=key[0],
            pool=key[1],
            small=key[2],
            free_bytes=sum(found),
            largest_bytes=max(found),
            pieces=len(found),
            usable=key == wanted,
        )
        for key, found in sizes.items()
    )
    return tuple(sorted(keys, key=lambda key: (-key.free_bytes, key.stream, key.pool, key.small)))


def free_pieces(replay: Replay, entry: int) -> Iterator[Piece]:
    """Free pieces after an entry; together they are what is reserved and not active there."""
    if entry >= len(replay.history) - 1:
        for segment in replay.segments:
            key = (segment.stream, segment.pool, segment.small)
            taken = [
                (block.address, block.size_bytes)
                for block in segment.blocks
                if block.state != "inactive"
            ]
            yield from _gaps(segment.address, segment.size_bytes, key, taken)
        return
    taken = _active_blocks(replay, entry)
    starts = [address for address, _ in taken]
    for mapped in _mapped_ranges(replay, entry):
        first = bisect_right(starts, mapped.address - 1)
        last = bisect_right(starts, mapped.address + mapped.size_bytes - 1)
        inside = taken[first:last]
        yield from _gaps(mapped.address, mapped.size_bytes, mapped.key, inside)


def _gaps(
    address: int, size_bytes: int, key: Key, taken: Sequence[tuple[int, int]]
) -> Iterator[Piece]:
    cursor = address
    for start, size in (*taken, (address + size_bytes, 0)):
        if start > cursor:
            yield Piece(key=key, address=cursor, size_bytes=start - cursor)
        cursor = max(cursor, start + size)


def _active_blocks(replay: Replay, entry: int) -> list[tuple[int, int]]:
    lives = replay.lives
    return sorted(
        (lives.address[row], lives.allocated_bytes[row])
        for row, (born, completed) in enumerate(zip(lives.born, lives.completed, strict=True))
        if born <= entry < completed
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    address: int
    size_bytes: int
    key: Key
    expandable: bool


class _Ranges:
    """Mapped memory with the key of each range: segments, and stretches of expandable ones."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.starts = SortedAddresses()
        self.found: dict[int, _Range] = {}
        for segment in segments:
            self._put(
                _Range(
                    address=segment.address,
                    size_bytes=segment.size_bytes,
                    key=(segment.stream, segment.pool, segment.small),
                    expandable=segment.expandable,
                )
            )

    def __iter__(self) -> Iterator[_Range]:
        return iter(sorted(self.found.values(), key=lambda one: one.address))

    def _put(self, one: _Range) -> None:
        if one.size_bytes > 0 and one.address not in self.found:
            self.starts.add(one.address)
            self.found[one.address] = one

    def _take(self, start: int) -> _Range:
        self.starts.remove(start)
        return self.found.pop(start)

    def cut(self, address: int, size_bytes: int) -> None:
        """Take out what an entry mapped."""
        start = self.starts.at_or_before(address)
        if start is None:
            return
        one = self._take(start)
        end, rest = start + one.size_bytes, address + size_bytes
        self._put(replace(one, size_bytes=min(address, end) - start))
        self._put(replace(one, address=rest, size_bytes=end - rest))

    def add(self, added: _Range) -> None:
        """Put back what an entry unmapped; stretches of expandable segments that touch are of one segment."""
        if added.expandable:
            before = self.starts.at_or_before(added.address)
            if before is not None:
                one = self.found[before]
                if one.expandable and before + one.size_bytes == added.address:
                    self._take(before)
                    added = replace(one, size_bytes=one.size_bytes + added.size_bytes)
            end = added.address + added.size_bytes
            after = self.found.get(end)
            if after is not None and after.expandable:
                self._take(end)
                size_bytes = added.size_bytes + after.size_bytes
                added = replace(added, size_bytes=size_bytes, key=after.key)
        self._put(added)


def _mapped_ranges(replay: Replay, entry: int) -> Iterator[_Range]:
    """Mapped ranges after an entry, by going back from the final segments."""
    history, ranges = replay.history, _Ranges(replay.segments)
    for index in range(len(history) - 1, entry, -1):
        change = replay.mapped[index]
        if change > 0:
            ranges.cut(history.addresses[index], change)
        elif change < 0:
            ranges.add(_vanished(replay, index))
    return iter(ranges)


def _vanished(replay: Replay, index: int) -> _Range:
    """What an entry unmapped, with the key that it had; without a neighbour its size tells the class."""
    history, size_bytes = replay.history, -replay.mapped[index]
    pool = DEFAULT_POOL
    if history.pools and history.pools[index] != NO_POOL:
        pool = history.pool_ids[history.pools[index]]
    small = size_bytes == SMALL_SEGMENT_BYTES
    return _Range(
        address=history.addresses[index],
        size_bytes=size_bytes,
        key=(history.streams[index], pool, small),
        expandable=history.actions[index] == Action.SEGMENT_UNMAP,
    )
