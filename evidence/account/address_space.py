"""Ordered addresses and mapped ranges: what lies next to a block at a moment of the history."""

from bisect import bisect_left, bisect_right, insort

# Lists of this length are split in two. Insertion moves at most this many pointers, so a million live addresses in a
# made-up file cost no more per step than a thousand.
_CHUNK = 1024


class SortedAddresses:
    """A set of addresses that finds neighbours: chunks of sorted lists, O(sqrt n) moves and O(log n) comparisons."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self) -> None:
        self._chunks: list[list[int]] = []
        self._firsts: list[int] = []

    def add(self, address: int) -> None:
        """Put in an address that is not in the set."""
        if not self._chunks:
            self._chunks.append([address])
            self._firsts.append(address)
            return
        place = max(bisect_right(self._firsts, address) - 1, 0)
        chunk = self._chunks[place]
        insort(chunk, address)
        self._firsts[place] = chunk[0]
        if len(chunk) > 2 * _CHUNK:
            self._chunks.insert(place + 1, chunk[_CHUNK:])
            self._firsts.insert(place + 1, chunk[_CHUNK])
            del chunk[_CHUNK:]

    def remove(self, address: int) -> None:
        """Take out an address.

        Raises:
            KeyError: It is not in the set.
        """
        place = bisect_right(self._firsts, address) - 1
        chunk = self._chunks[place] if place >= 0 else []
        index = bisect_left(chunk, address)
        if index == len(chunk) or chunk[index] != address:
            raise KeyError(address)
        del chunk[index]
        if chunk:
            self._firsts[place] = chunk[0]
        else:
            del self._chunks[place], self._firsts[place]

    def after(self, address: int) -> int | None:
        """The lowest address above `address`."""
        place = bisect_right(self._firsts, address) - 1
        if place >= 0:
            chunk = self._chunks[place]
            index = bisect_right(chunk, address)
            if index < len(chunk):
                return chunk[index]
        return self._firsts[place + 1] if place + 1 < len(self._firsts) else None

    def at_or_before(self, address: int) -> int | None:
        """The highest address that is not above `address`."""
        place = bisect_right(self._firsts, address) - 1
        if place < 0:
            return None
        chunk = self._chunks[place]
        return chunk[bisect_right(chunk, address) - 1]


class MappedRanges:
    """Mapped device memory as ranges that do not overlap.

    Ranges of expandable segments that touch become one, since torch merges free pieces across them; other segments that
    happen to touch stay apart.
    """

    __slots__ = ("_ends", "_expandable", "_starts")

    def __init__(self) -> None:
        self._starts = SortedAddresses()
        self._ends: dict[int, int] = {}
        self._expandable: set[int] = set()

    def add(self, start: int, size_bytes: int, *, expandable: bool) -> None:
        """Map a range, after unmapping what a contradictory history left there."""
        if size_bytes == 0:
            return
        self.cut(start, size_bytes)
        end = start + size_bytes
        if expandable:
            before = self._starts.at_or_before(start)
            if before in self._expandable and self._ends[before] == start:
                self._take(before)
                start = before
            if end in self._expandable:
                end = self._take(end)
        self._put(start, end, expandable)

    def cut(self, start: int, size_bytes: int) -> None:
        """Unmap `size_bytes` from `start`; ranges that reach over an edge keep what lies outside."""
        if size_bytes == 0:
            return
        end = start + size_bytes
        found = self._starts.at_or_before(start)
        found = self._starts.after(start) if found is None else found
        while found is not None and found < end:
            following = self._starts.after(found)
            if self._ends[found] > start:
                expandable = found in self._expandable
                found_end = self._take(found)
                self._put(found, min(start, found_end), expandable)
                self._put(max(end, found), found_end, expandable)
            found = following

    def _take(self, start: int) -> int:
        self._starts.remove(start)
        self._expandable.discard(start)
        return self._ends.pop(start)

    def _put(self, start: int, end: int, expandable: bool) -> None:
        if start < end:
            self._starts.add(start)
            self._ends[start] = end
            if expandable:
                self._expandable.add(start)

    def start_of(self, address: int) -> int | None:
        """Start of the range that holds `address`; None where nothing is mapped."""
        start = self._starts.at_or_before(address)
        return start if start is not None and address < self._ends[start] else None

    def end_of(self, start: int) -> int:
        """End of the range that begins at `start`."""
        return self._ends[start]

    def is_expandable(self, start: int) -> bool:
        """Whether the range that begins at `start` belongs to an expandable segment."""
        return start in self._expandable
