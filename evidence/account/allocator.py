"""The sizes that torch's caching allocator gives, as far as a reader of its history has to know them.

Source: c10/cuda/CUDACachingAllocator.cpp of torch 2.11 to 2.13 (`round_size`, `get_pool`, `should_split`,
`roundup_power2_next_division`). A request is rounded; the best-fitting free piece is split only if what remains is
large enough, otherwise the block keeps the remainder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headroom.units import MIB

MIN_BLOCK_BYTES: Final = 512  # kMinBlockSize
SMALL_BYTES: Final = MIB  # kSmallSize: larger rounded requests come from the large pool

# `roundup_power2_divisions` has one setting per power of two from 1 MiB on; smaller and larger sizes use the ends.
_FIRST_INTERVAL: Final = 20
_INTERVALS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRules:
    """Allocator settings that change sizes.

    `max_split_bytes` is None where blocks of any size may be split. `divisions` is empty, or holds for each of the 16
    intervals into how many steps a power of two is divided (0 and 1: rounding to 512 bytes only).
    """

    max_split_bytes: int | None = None
    divisions: tuple[int, ...] = ()

    def rounded(self, requested_bytes: int) -> int:
        """`round_size`: the bytes a request takes when it is split off exactly."""
        if self.divisions:
            power = max(requested_bytes.bit_length() - 1 - _FIRST_INTERVAL, 0)
            divisions = self.divisions[min(power, _INTERVALS - 1)]
            if divisions > 1 and requested_bytes > MIN_BLOCK_BYTES * divisions:
                return _next_division(requested_bytes, divisions)
        return max(MIN_BLOCK_BYTES, -(-requested_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES)

    def longest_remainder(self, rounded_bytes: int) -> int | None:
        """Most bytes that a block of the large pool keeps unsplit; None where it keeps any remainder."""
        if self.max_split_bytes is not None and rounded_bytes >= self.max_split_bytes:
            return None
        return SMALL_BYTES


def size_rules(settings: Mapping[str, Any]) -> SizeRules:
    """Read the rules from a snapshot's `allocator_settings`; what is absent or odd is torch's default."""
    max_split = settings.get("max_split_size")
    raw = settings.get("roundup_power2_divisions")
    steps: Sequence[object] = tuple(raw.values()) if isinstance(raw, dict) else ()
    divisions = tuple(step if type(step) is int and 0 <= step < 2**16 else 0 for step in steps)
    usable = len(divisions) == _INTERVALS and any(step > 1 for step in divisions)
    # Without a limit torch writes -1: the largest size_t read as a signed number.
    limited = type(max_split) is int and max_split > 0
    return SizeRules(
        max_split_bytes=max_split if limited else None, divisions=divisions if usable else ()
    )


def _next_division(size_bytes: int, divisions: int) -> int:
    """The next of `divisions` equal steps between two powers of two, at or above `size_bytes`."""
    power_floor = 1 << (size_bytes.bit_length() - 1)
    if power_floor == size_bytes:
        return size_bytes
    step = power_floor >> (divisions.bit_length() - 1)
    if step == 0:
        return power_floor << 1
    return -(-size_bytes // step) * step
