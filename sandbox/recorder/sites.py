"""Which line made a node of the autograd graph: ranges of sequence numbers, by the thread that counted them."""

import threading
from array import array
from bisect import bisect_right
from types import FrameType
from typing import Any

from .frames import Frames
from .nodes import Nodes

RANGES_KEPT = 400_000
"""Per thread; the older half is dropped beyond."""
SITES_KEPT = 200_000
NO_SITE = -1


class _Ranges:
    """One thread's calls that made nodes, in order."""

    __slots__ = ("ends", "firsts", "paths", "sites")

    def __init__(self) -> None:
        self.firsts, self.ends = array("Q"), array("Q")
        self.sites, self.paths = array("l"), array("l")

    def add(self, first: int, end: int, site: int, path: int) -> None:
        self.firsts.append(first)
        self.ends.append(end)
        self.sites.append(site)
        self.paths.append(path)
        if len(self.firsts) > RANGES_KEPT:
            for values in (self.firsts, self.ends, self.sites, self.paths):
                del values[: RANGES_KEPT // 2]


class _Own(threading.local):
    ranges: "_Ranges | None" = None


class Sites:
    """Notes the calls that make nodes, and finds them again by node."""

    def __init__(self, frames: Frames, nodes: Nodes) -> None:
        self._frames, self._nodes = frames, nodes
        self._own = _Own()
        self._by_thread: dict[int, _Ranges] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._stacks: list[tuple[int, ...]] = []
        self._path_numbers: dict[str, int] = {}
        self._paths: list[str] = []

    def add(self, first: int, end: int, frame: "FrameType | None", path: "str | None") -> None:
        """This thread's nodes from `first` to before `end` come from the call in this frame."""
        ranges = self._own.ranges
        if ranges is None:
            thread = self._nodes.this_thread()
            if thread is None:
                return
            ranges = self._own.ranges = self._by_thread[thread] = _Ranges()
        stack = self._frames.stack(frame)
        number = self._numbers.get(stack)
        if number is None:
            if len(self._stacks) >= SITES_KEPT:
                return
            number = self._numbers[stack] = len(self._stacks)
            self._stacks.append(stack)
        ranges.add(first, end, number, self._path_number(path))

    def _path_number(self, path: "str | None") -> int:
        if path is None:
            return NO_SITE
        number = self._path_numbers.get(path)
        if number is None:
            number = self._path_numbers[path] = len(self._paths)
            self._paths.append(path)
        return number

    def find(self, node: Any) -> "tuple[int, str | None] | None":
        """The number of the stack that made a node, and the module it was made in; None where that is not known."""
        number = node._sequence_nr()
        thread = self._nodes.thread_of(node, number)
        ranges = self._by_thread.get(thread) if thread is not None else None
        if ranges is None:
            return None
        place = bisect_right(ranges.firsts, number) - 1
        if place < 0 or number >= ranges.ends[place]:
            return None
        path = ranges.paths[place]
        return ranges.sites[place], self._paths[path] if path != NO_SITE else None

    def frames(self, site: int) -> "list[dict[str, Any]]":
        """A site's stack as torch's snapshots show it; empty for a number that was never given."""
        if not 0 <= site < len(self._stacks):
            return []
        return self._frames.shown(self._stacks[site])
