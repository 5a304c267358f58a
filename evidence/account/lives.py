"""Lives of blocks on one device: from which entry to which each was allocated, and how large."""

from array import array
from dataclasses import dataclass, field
from typing import Final

from headroom.evidence.reading.snapshot import Block

BEFORE: Final = -1
"""In place of an entry number: before the first recorded entry."""


def _numbers() -> "array[int]":
    return array("q")


@dataclass(slots=True, kw_only=True)
class BlockLives:
    """Lives of blocks as columns, one row a life, so that a reused address gets a row of its own.

    A block is allocated after entry `i` where `born <= i < freed`, and holds memory where `born <= i < completed`.
    `born` and `freed` are BEFORE where the history does not reach back; `freed` and `completed` are the number of
    entries where it still holds at the end. `final` gives the block of the final segments, and the place of its
    segment, for rows that are alive there.
    """

    address: "array[int]" = field(default_factory=lambda: array("Q"))
    requested_bytes: "array[int]" = field(default_factory=_numbers)
    allocated_bytes: "array[int]" = field(default_factory=_numbers)
    born: "array[int]" = field(default_factory=_numbers)
    freed: "array[int]" = field(default_factory=_numbers)
    completed: "array[int]" = field(default_factory=_numbers)
    final: dict[int, Block] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.address)

    def add(self, address: int, requested: int, allocated: int, freed: int, completed: int) -> int:
        """Append a row with unknown birth and return its number."""
        self.address.append(address)
        self.requested_bytes.append(requested)
        self.allocated_bytes.append(allocated)
        self.born.append(BEFORE)
        self.freed.append(freed)
        self.completed.append(completed)
        return len(self.address) - 1
