"""The recorded history of a device as columns: a million entries take 45 MB this way, and 640 MB as dictionaries."""

from array import array
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from headroom.evidence.reading.stacks import NO_STACK


class Action(IntEnum):
    """What an entry tells; the order is ours.

    Source: `TraceEntry::Action` of torch 2.13's c10/cuda/CUDACachingAllocator.h. OTHER is any action that a later
    torch may add: it is passed over.
    """

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    OOM = 7
    SNAPSHOT = 8
    USER_DEFINED = 9
    OTHER = 10


ADDRESSED: Final = frozenset(Action) - {
    Action.OOM,
    Action.SNAPSHOT,
    Action.USER_DEFINED,
    Action.OTHER,
}
"""Actions that name an address."""

NO_POOL: Final = -1
NOT_READ: Final = -2

__all__ = ["ADDRESSED", "NOT_READ", "NO_POOL", "NO_STACK", "Action", "History", "empty_history"]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Entries of one device, oldest first: entry i is the i-th value of each column.

    `actions` holds `Action` codes. `sizes_bytes` are requested bytes of blocks, or a segment's own. `stacks` are
    numbers of the snapshot's stack table, NO_STACK where an entry has no frames, NOT_READ where nobody needs them:
    frees are only looked up where they may tell the owner. `pools` and `labels` are places in `pool_ids` and
    `label_texts`; NO_POOL where the entry names none (before torch 2.13). `device_free_bytes` is by entry, for
    out-of-memory entries.
    """

    device: int
    actions: bytes
    addresses: "array[int]"
    sizes_bytes: "array[int]"
    streams: "array[int]"
    times_us: "array[int]"
    stacks: "array[int]"
    pools: "array[int]"
    pool_ids: tuple[tuple[int, int], ...]
    labels: "array[int]"
    label_texts: tuple[str, ...]
    device_free_bytes: dict[int, int]

    def __len__(self) -> int:
        return len(self.actions)

    def first(self, action: Action) -> int:
        """The first entry of an action, -1 where there is none."""
        return self.actions.find(action)

    def last(self, action: Action) -> int:
        """The last entry of an action, -1 where there is none."""
        return self.actions.rfind(action)


def empty_history(device: int) -> History:
    """The history of a device of which nothing was recorded."""
    return History(
        device=device,
        actions=b"",
        addresses=array("Q"),
        sizes_bytes=array("q"),
        streams=array("Q"),
        times_us=array("q"),
        stacks=array("i"),
        pools=array("i"),
        pool_ids=(),
        labels=array("i"),
        label_texts=(),
        device_free_bytes={},
    )
