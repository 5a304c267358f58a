"""Blocks, segments and free lists of the caching allocator.

A *segment* is one piece of memory taken from the device (`cudaMalloc`). It is tiled by *blocks*, which form a doubly
linked list in order of address. Source: `Block` and `BlockPool` in `c10/cuda/CUDACachingAllocator.cpp`.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

Stack = tuple[object, ...]
"""An opaque stack, made and read by `stacks.py`; the allocator only stores it."""


@dataclass(slots=True, eq=False, kw_only=True)
class Segment:
    """One piece of device memory."""

    address: int
    size_bytes: int
    small: bool
    stream: int
    stack: Stack | None
    first: Optional[Block] = None  # noqa: UP045  (a forward reference in a dataclass of Python 3.10)

    def blocks(self) -> Iterator[Block]:
        """The blocks that tile the segment, in order of address."""
        block = self.first
        while block is not None:
            yield block
            block = block.next


@dataclass(slots=True, eq=False, kw_only=True)
class Block:
    """A piece of a segment: in use (`active`), given back but still awaited (`active`, not `allocated`), or free."""

    address: int
    size_bytes: int
    segment: Segment
    requested_bytes: int = 0
    allocated: bool = False
    active: bool = False
    stack: Stack | None = None
    previous: Optional[Block] = None  # noqa: UP045
    next: Optional[Block] = None  # noqa: UP045
    stream_uses: set[int] | None = None

    @property
    def is_split(self) -> bool:
        """Whether the block is a part of its segment only."""
        return self.previous is not None or self.next is not None


class FreeBlocks:
    """Free blocks of one stream and one pool, ordered by size, then by address."""

    def __init__(self) -> None:
        self._ordered: list[tuple[int, int, Block]] = []

    def __iter__(self) -> Iterator[Block]:
        return iter([block for _, _, block in self._ordered])

    def __len__(self) -> int:
        return len(self._ordered)

    def add(self, block: Block) -> None:
        """Puts a free block in its place."""
        bisect.insort(self._ordered, (block.size_bytes, block.address, block))

    def remove(self, block: Block) -> None:
        """Takes out a block that is in the list."""
        # The key is shorter than the stored tuple, so blocks themselves are never compared.
        place = bisect.bisect_left(self._ordered, (block.size_bytes, block.address))
        del self._ordered[place]

    def take_best_fit(self, size_bytes: int) -> Block | None:
        """Takes out the smallest block that holds `size_bytes`, the lowest address among equals."""
        place = bisect.bisect_left(self._ordered, (size_bytes, 0))
        if place == len(self._ordered):
            return None
        return self._ordered.pop(place)[2]
