"""The allocator's counters, as `torch.cuda.memory_stats` reports them.

Source: `c10/core/CachingDeviceAllocator.h` (`Stat`, `DeviceStats`) and `CUDACachingAllocator.cpp`.
"""

from __future__ import annotations

STAT_NAMES = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
"""Counters that torch keeps three times: for all memory, for the small pool, for the large pool."""


class Stat:
    """One counter: its value now, its highest value, and everything ever added and taken away."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = 0
        self.peak = 0
        self.allocated = 0
        self.freed = 0

    def change(self, amount: int) -> None:
        """Adds `amount`, which is negative when memory is given back."""
        self.current += amount
        if amount < 0:
            self.freed -= amount
            return
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def as_dict(self) -> dict[str, int]:
        """The counter in the shape of torch's nested statistics."""
        return {
            "current": self.current,
            "peak": self.peak,
            "allocated": self.allocated,
            "freed": self.freed,
        }


class Statistics:
    """All counters of one device."""

    def __init__(self) -> None:
        self._stats = {name: (Stat(), Stat(), Stat()) for name in STAT_NAMES}
        self.num_alloc_retries = 0
        self.num_ooms = 0
        self.num_device_alloc = 0
        self.num_device_free = 0

    def change(self, name: str, *, small: bool, amount: int) -> None:
        """Adds `amount` to the counter `name` of all memory and of the block's pool."""
        both, small_pool, large_pool = self._stats[name]
        both.change(amount)
        (small_pool if small else large_pool).change(amount)

    def current(self, name: str) -> int:
        """The counter's value now, over both pools."""
        return self._stats[name][0].current

    def peak(self, name: str) -> int:
        """The counter's highest value since the last reset, over both pools."""
        return self._stats[name][0].peak

    def reset_peaks(self) -> None:
        """`torch.cuda.reset_peak_memory_stats`: peaks start again from the values now."""
        for stats in self._stats.values():
            for stat in stats:
                stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """`torch.cuda.reset_accumulated_memory_stats`: sums and event counts start again from 0."""
        for stats in self._stats.values():
            for stat in stats:
                stat.allocated = 0
                stat.freed = 0
        self.num_alloc_retries = 0
        self.num_ooms = 0
        self.num_device_alloc = 0
        self.num_device_free = 0

    def as_nested_dict(self) -> dict[str, object]:
        """What `torch._C._cuda_memoryStats` returns, before torch flattens it."""
        nested: dict[str, object] = {
            name: {
                "all": both.as_dict(),
                "small_pool": small_pool.as_dict(),
                "large_pool": large_pool.as_dict(),
            }
            for name, (both, small_pool, large_pool) in self._stats.items()
        }
        nested.update(
            num_alloc_retries=self.num_alloc_retries,
            num_ooms=self.num_ooms,
            num_device_alloc=self.num_device_alloc,
            num_device_free=self.num_device_free,
            num_sync_all_streams=0,
            max_split_size=-1,
            oversize_allocations=Stat().as_dict(),
            oversize_segments=Stat().as_dict(),
        )
        return nested
