"""The virtual device: one card, its allocator, and what C++ would keep beside it. No torch here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from .allocator import CachingAllocator, OutOfMemory
from .blocks import Block, Stack
from .cards import Card
from .coverage import Coverage
from .history import Context, History
from .snapshot import snapshot

OutOfMemoryObserver = Callable[[int, int, int, int], None]
"""Called as `(device, bytes to take from the device, allowed or total bytes, free bytes of the device)`."""

_ADVICE = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management "
    " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


def format_size(size_bytes: int) -> str:
    """`format_size` of torch: two decimals, and the unit that fits."""
    if size_bytes <= 1024:
        return f"{size_bytes} bytes"
    for limit, unit in ((1 << 20, "KiB"), (1 << 30, "MiB")):
        if size_bytes <= limit:
            return f"{size_bytes / (limit >> 10):.2f} {unit}"
    return f"{size_bytes / (1 << 30):.2f} GiB"


class VirtualDevice:
    """A CUDA device that has memory but no hardware.

    Attributes:
        name: the card's name as torch shows it.
        total_memory_bytes: the card's memory.
        capability: compute capability, major and minor.
    """

    def __init__(
        self,
        card: Card,
        capacity_bytes: int | None = None,
        *,
        unlimited: bool = False,
        error: Callable[[str], BaseException] = MemoryError,
    ) -> None:
        self.card = card
        self.name = card.name
        self.total_memory_bytes = card.total_memory_bytes
        self.capability = card.capability
        self.report = Coverage(card.key)
        self.history = History()
        self.allocator = CachingAllocator(
            card.total_memory_bytes,
            used_elsewhere_bytes=card.context_bytes,
            unlimited=unlimited,
            history=self.history,
        )
        self._cap_bytes = capacity_bytes
        self.allocator.limit_bytes = capacity_bytes
        self.fraction = 1.0
        self._error = error
        self._observers: list[OutOfMemoryObserver] = []
        self._stream = threading.local()
        self.collect_frees: Callable[[], None] = lambda: None
        """Brings frees that happened elsewhere to the allocator; `tensors.py` sets it."""
        self.take_stack: Callable[[], Stack | None] = lambda: None
        """Takes the stack of the allocation at hand; `stacks.py` sets it."""
        self.frames_of: Callable[[Stack], list[dict[str, Any]]] = lambda stack: []

    @property
    def stream(self) -> int:
        """The current stream of this thread, 0 for the default stream."""
        return getattr(self._stream, "current", 0)

    @stream.setter
    def stream(self, stream: int) -> None:
        self._stream.current = stream

    def coverage(self) -> dict[str, Any]:
        """What was assumed, replaced or left out so far; see `coverage.py`."""
        return self.report.as_dict()

    def malloc(self, requested_bytes: int) -> Block:
        """Allocates on this thread's current stream.

        Raises:
            The error given at construction (torch's OutOfMemoryError), after the observers were called.
        """
        self.collect_frees()
        stack = self.take_stack() if self.history.wants_stack(Context.STATE) else None
        try:
            return self.allocator.malloc(requested_bytes, stream=self.stream, stack=stack)
        except OutOfMemory as refusal:
            # Its traceback holds this frame: kept in a variable of it, the program's tensors would outlive the error.
            failure = refusal.with_traceback(None)
        # Outside the handler and without the lock: observers may dump a snapshot, and everything is still alive.
        allowed = failure.allowed_bytes
        limit = self.total_memory_bytes if allowed is None else allowed
        for observer in list(self._observers):
            observer(0, failure.segment_bytes, limit, failure.free_bytes)
        raise self._error(self.out_of_memory_message(failure))

    def free(self, block: Block) -> None:
        """Gives a block back, after everything that was freed before it."""
        self.collect_frees()
        self.allocator.free(block)

    def temporary(self, sizes_bytes: Iterable[Any]) -> None:
        """Buffers that one kernel holds at the same time and gives back before it returns.

        An inner sequence of sizes is taken and given back in its place.
        """
        blocks: list[Block] = []
        try:
            for size_bytes in sizes_bytes:
                if not isinstance(size_bytes, int):
                    self.temporary(size_bytes)
                elif size_bytes > 0:
                    blocks.append(self.malloc(size_bytes))
        finally:
            for block in reversed(blocks):
                self.allocator.free(block)

    def empty_cache(self) -> None:
        """`torch.cuda.empty_cache`."""
        self.collect_frees()
        self.allocator.release_cached_blocks()

    def set_fraction(self, fraction: float) -> None:
        """`torch.cuda.set_per_process_memory_fraction`; a cap given at installation still holds."""
        self.fraction = fraction
        asked_bytes = int(fraction * self.total_memory_bytes)
        cap_bytes = self._cap_bytes
        self.allocator.limit_bytes = (
            asked_bytes if cap_bytes is None else min(asked_bytes, cap_bytes)
        )

    def memory_stats(self) -> dict[str, object]:
        """`torch._C._cuda_memoryStats`."""
        self.collect_frees()
        return self.allocator.stats.as_nested_dict()

    def snapshot(self) -> dict[str, Any]:
        """`torch._C._cuda_memorySnapshot`."""
        self.collect_frees()
        return snapshot(self.allocator, self.frames_of)

    def memory_info(self) -> tuple[int, int]:
        """`cudaMemGetInfo`: free and total bytes."""
        self.collect_frees()
        return self.allocator.free_device_bytes, self.total_memory_bytes

    def attach_out_of_memory_observer(self, observer: OutOfMemoryObserver) -> None:
        """`torch._C._cuda_attach_out_of_memory_observer`."""
        self._observers.append(observer)

    def out_of_memory_message(self, failure: OutOfMemory) -> str:
        """The message of torch, word for word (`CUDACachingAllocator.cpp`)."""
        used_bytes = self.total_memory_bytes - failure.free_bytes
        allowed = failure.allowed_bytes
        unallocated_bytes = failure.reserved_bytes - failure.allocated_bytes
        return (
            f"CUDA out of memory. Tried to allocate {format_size(failure.segment_bytes)}. GPU 0 has a total capacity "
            f"of {format_size(self.total_memory_bytes)} of which {format_size(failure.free_bytes)} is free. "
            f"Including non-PyTorch memory, this process has {format_size(used_bytes)} memory in use. "
            + ("" if allowed is None else f"{format_size(allowed)} allowed; ")
            + f"Of the allocated memory {format_size(failure.allocated_bytes)} is allocated by PyTorch, and "
            f"{format_size(unallocated_bytes)} is reserved by PyTorch but unallocated." + _ADVICE
        )
