"""A model of torch's caching allocator: default settings, one device, any number of streams, no private pools.

Every rule is `DeviceCachingAllocator`'s in `c10/cuda/CUDACachingAllocator.cpp`, and the names are its own. Replayed
with the events of real H200 histories it makes the same segments and peaks to the byte
(`tests/sandbox/virtual/test_allocator_replay.py`). Not modelled: `PYTORCH_CUDA_ALLOC_CONF`, CUDA graphs' pools.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from .blocks import Block, FreeBlocks, Segment, Stack
from .history import History
from .stats import Statistics

MIN_BLOCK_BYTES = 512
"""`kMinBlockSize`: every size is rounded up to a multiple of it."""
SMALL_BYTES = 1 << 20
"""`kSmallSize`: the largest block of the small pool, and the largest remainder that a large block keeps."""
SMALL_SEGMENT_BYTES = 2 << 20
"""`kSmallBuffer`: what the small pool takes from the device."""
LARGE_SEGMENT_BYTES = 20 << 20
"""`kLargeBuffer`: what is taken for a large request below `MIN_LARGE_BYTES`."""
MIN_LARGE_BYTES = 10 << 20
"""`kMinLargeAlloc`."""
LARGE_ROUNDING_BYTES = 2 << 20
"""`kRoundLarge`: larger requests take their own segment, rounded up to a multiple of it."""

UNLIMITED_BYTES = 4 << 40
"""What an unlimited device hands out: a program that asks for ever more, until it fails, has to come to an end."""

TOP_ADDRESS = 0x0700_0000_0000
"""Addresses are invented below this: no heap or mapping of a Linux process on x86-64 lies near."""


class OutOfMemory(Exception):
    """A request that does not fit; the sizes are those torch's message and its observers name."""

    def __init__(
        self,
        *,
        requested_bytes: int,
        segment_bytes: int,
        free_bytes: int,
        allowed_bytes: int | None,
        allocated_bytes: int,
        reserved_bytes: int,
    ) -> None:
        super().__init__(f"{requested_bytes} bytes do not fit")
        self.requested_bytes = requested_bytes
        self.segment_bytes = segment_bytes
        self.free_bytes = free_bytes
        self.allowed_bytes = allowed_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes


def round_size(size_bytes: int) -> int:
    """`round_size`: the size of the block that a request gets, before any split is considered."""
    if size_bytes < MIN_BLOCK_BYTES:
        return MIN_BLOCK_BYTES
    return -(-size_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES


def segment_size(block_bytes: int) -> int:
    """`get_allocation_size`: what is taken from the device for a block of `block_bytes`."""
    if block_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if block_bytes < MIN_LARGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-block_bytes // LARGE_ROUNDING_BYTES) * LARGE_ROUNDING_BYTES


class CachingAllocator:
    """The allocator of one device.

    Args:
        total_bytes: the device's memory.
        used_elsewhere_bytes: memory on the device that is not this allocator's (context, libraries); may grow later
            through the attribute of the same name.
        unlimited: hand out whatever is asked for, beyond the device's memory and any limit.
        history: where events are written; a new one that is off if left out.
    """

    def __init__(
        self,
        total_bytes: int,
        *,
        used_elsewhere_bytes: int = 0,
        unlimited: bool = False,
        history: History | None = None,
    ) -> None:
        self.total_bytes = total_bytes
        self.unlimited = unlimited
        self.used_elsewhere_bytes = used_elsewhere_bytes
        self.limit_bytes: int | None = None
        self.history = history if history is not None else History()
        self.stats = Statistics()
        self.lock = threading.RLock()
        self._free: dict[tuple[int, bool], FreeBlocks] = {}
        self._segments: dict[int, Segment] = {}
        self._pending: list[Block] = []
        self._places: list[tuple[int, int]] = []  # address and bytes of each segment, ascending

    @property
    def reserved_bytes(self) -> int:
        """Bytes in segments, used or not (`torch.cuda.memory_reserved`)."""
        return self.stats.current("reserved_bytes")

    @property
    def free_device_bytes(self) -> int:
        """What `cudaMemGetInfo` would call free."""
        return max(0, self.total_bytes - self.used_elsewhere_bytes - self.reserved_bytes)

    def segments(self) -> Iterator[Segment]:
        """The segments, in order of address."""
        return iter(sorted(self._segments.values(), key=lambda segment: segment.address))

    def renew_lock(self) -> None:
        """After a fork: the lock may have been held by a thread that does not exist here."""
        self.lock = threading.RLock()

    def malloc(self, requested_bytes: int, *, stream: int = 0, stack: Stack | None = None) -> Block:
        """Hands out a block for `requested_bytes` (at least 1) on `stream`.

        Raises:
            OutOfMemory: it does not fit, even after all cached segments were given back.
        """
        if requested_bytes <= 0:
            raise ValueError(f"an allocation needs at least one byte, not {requested_bytes}")
        with self.lock:
            self._complete_pending()
            size_bytes = round_size(requested_bytes)
            pool = self._pool(stream, small=size_bytes <= SMALL_BYTES)
            block = pool.take_best_fit(size_bytes)
            if block is None:
                block = self._take_segment(requested_bytes, size_bytes, stream, stack)
            return self._hand_out(block, pool, size_bytes, requested_bytes, stack)

    def free(self, block: Block) -> None:
        """Takes a block back; it becomes available when no other stream uses it any more."""
        with self.lock:
            small = block.segment.small
            block.allocated = False
            self.stats.change("allocation", small=small, amount=-1)
            self.stats.change("allocated_bytes", small=small, amount=-block.size_bytes)
            self._record("free_requested", block, block.stack)
            if block.stream_uses:
                self._pending.append(block)
            else:
                self._complete_free(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """`Tensor.record_stream`: the block stays taken after its free until `stream` is done with it."""
        with self.lock:
            if stream != block.segment.stream:
                block.stream_uses = (block.stream_uses or set()) | {stream}

    def release_cached_blocks(self) -> None:
        """`torch.cuda.empty_cache`: gives every segment that is free as a whole back to the device."""
        with self.lock:
            self._complete_pending()
            # torch empties the large pool first
            for (_, _small), pool in sorted(self._free.items(), key=lambda item: item[0][1]):
                for block in pool:
                    if not block.is_split:
                        self._release_segment(pool, block)

    def _pool(self, stream: int, *, small: bool) -> FreeBlocks:
        return self._free.setdefault((stream, small), FreeBlocks())

    def _record(self, action: str, block: Block, stack: Stack | None) -> None:
        self.history.record(
            action, block.address, block.requested_bytes, block.segment.stream, stack
        )

    def _fits(self, size_bytes: int) -> bool:
        if self.unlimited:
            return self.reserved_bytes + size_bytes <= UNLIMITED_BYTES
        if self.limit_bytes is not None and self.reserved_bytes + size_bytes > self.limit_bytes:
            return False
        return size_bytes <= self.free_device_bytes

    def _take_segment(
        self, requested_bytes: int, block_bytes: int, stream: int, stack: Stack | None
    ) -> Block:
        size_bytes = segment_size(block_bytes)
        if not self._fits(size_bytes):
            self.release_cached_blocks()
            self.stats.num_alloc_retries += 1
            if not self._fits(size_bytes):
                raise self._out_of_memory(requested_bytes, block_bytes, stream, stack)
        small = block_bytes <= SMALL_BYTES
        segment = Segment(
            address=self._take_address(size_bytes),
            size_bytes=size_bytes,
            small=small,
            stream=stream,
            stack=stack,
        )
        segment.first = Block(address=segment.address, size_bytes=size_bytes, segment=segment)
        self._segments[segment.address] = segment
        self.stats.num_device_alloc += 1
        self.stats.change("segment", small=small, amount=1)
        self.stats.change("reserved_bytes", small=small, amount=size_bytes)
        self.history.record("segment_alloc", segment.address, size_bytes, stream, stack)
        return segment.first

    def _take_address(self, size_bytes: int) -> int:
        """The highest free range: `cudaMalloc` hands out falling addresses, which decides between equal blocks."""
        end = TOP_ADDRESS
        place = len(self._places)
        while place and end - sum(self._places[place - 1]) < size_bytes:
            place -= 1
            end = self._places[place][0]
        self._places.insert(place, (end - size_bytes, size_bytes))
        return end - size_bytes

    def _out_of_memory(
        self, requested_bytes: int, block_bytes: int, stream: int, stack: Stack | None
    ) -> OutOfMemory:
        self.history.record("oom", self.free_device_bytes, block_bytes, stream, stack)
        self.stats.num_ooms += 1
        return OutOfMemory(
            requested_bytes=requested_bytes,
            segment_bytes=segment_size(block_bytes),
            free_bytes=self.free_device_bytes,
            allowed_bytes=self.limit_bytes,
            allocated_bytes=self.stats.current("allocated_bytes"),
            reserved_bytes=self.reserved_bytes,
        )

    def _hand_out(
        self,
        block: Block,
        pool: FreeBlocks,
        size_bytes: int,
        requested_bytes: int,
        stack: Stack | None,
    ) -> Block:
        small = block.segment.small
        was_split = block.is_split
        rest_bytes = block.size_bytes - size_bytes
        if rest_bytes >= MIN_BLOCK_BYTES if small else rest_bytes > SMALL_BYTES:
            self._split(block, pool, size_bytes, was_split=was_split)
        elif was_split:
            self.stats.change("inactive_split", small=small, amount=-1)
            self.stats.change("inactive_split_bytes", small=small, amount=-block.size_bytes)
        block.allocated = block.active = True
        block.requested_bytes = requested_bytes
        block.stack = stack
        self._record("alloc", block, stack)
        for name, amount in (
            ("allocation", 1),
            ("allocated_bytes", block.size_bytes),
            ("active", 1),
            ("active_bytes", block.size_bytes),
            ("requested_bytes", requested_bytes),
        ):
            self.stats.change(name, small=small, amount=amount)
        return block

    def _split(self, block: Block, pool: FreeBlocks, size_bytes: int, *, was_split: bool) -> None:
        small = block.segment.small
        rest = Block(
            address=block.address + size_bytes,
            size_bytes=block.size_bytes - size_bytes,
            segment=block.segment,
            requested_bytes=block.requested_bytes,  # stale, as in torch: nobody may read it
            previous=block,
            next=block.next,
        )
        if block.next is not None:
            block.next.previous = rest
        block.next = rest
        block.size_bytes = size_bytes
        pool.add(rest)
        if was_split:
            self.stats.change("inactive_split_bytes", small=small, amount=-size_bytes)
        else:
            self.stats.change("inactive_split", small=small, amount=1)
            self.stats.change("inactive_split_bytes", small=small, amount=rest.size_bytes)

    def _complete_pending(self) -> None:
        # The virtual device's streams are always idle, so what waited is done by the next request.
        pending, self._pending = self._pending, []
        for block in pending:
            self._complete_free(block)

    def _complete_free(self, block: Block) -> None:
        small = block.segment.small
        pool = self._pool(block.segment.stream, small=small)
        self._record("free_completed", block, block.stack)
        freed_bytes = block.size_bytes
        block.active = False
        block.stack = None
        block.stream_uses = None
        merged, merged_bytes = self._merge_neighbours(block, pool)
        pool.add(block)
        split = 1 if block.is_split else 0
        self.stats.change("inactive_split", small=small, amount=split - merged)
        self.stats.change(
            "inactive_split_bytes", small=small, amount=split * block.size_bytes - merged_bytes
        )
        self.stats.change("active", small=small, amount=-1)
        self.stats.change("active_bytes", small=small, amount=-freed_bytes)
        self.stats.change("requested_bytes", small=small, amount=-block.requested_bytes)

    @staticmethod
    def _merge_neighbours(block: Block, pool: FreeBlocks) -> tuple[int, int]:
        """Joins the free neighbours to `block`; returns how many, and their bytes."""
        merged = merged_bytes = 0
        before, after = block.previous, block.next
        if before is not None and not before.active:
            pool.remove(before)
            merged, merged_bytes = merged + 1, merged_bytes + before.size_bytes
            block.address = before.address
            block.previous = before.previous
            if before.previous is not None:
                before.previous.next = block
            else:
                block.segment.first = block
        if after is not None and not after.active:
            pool.remove(after)
            merged, merged_bytes = merged + 1, merged_bytes + after.size_bytes
            block.next = after.next
            if after.next is not None:
                after.next.previous = block
        block.size_bytes += merged_bytes
        return merged, merged_bytes

    def _release_segment(self, pool: FreeBlocks, block: Block) -> None:
        segment = block.segment
        pool.remove(block)
        del self._segments[segment.address]
        self._places.remove((segment.address, segment.size_bytes))
        self.stats.num_device_free += 1
        self.stats.change("segment", small=segment.small, amount=-1)
        self.stats.change("reserved_bytes", small=segment.small, amount=-segment.size_bytes)
        self.history.record(
            "segment_free", segment.address, segment.size_bytes, segment.stream, segment.stack
        )
