"""The allocator snapshot as a typed, checked view over the loaded dictionaries.

Segments and blocks become frozen dataclasses; history entries stay the dictionaries that were loaded, checked once,
because there may be a million of them. Old files are read leniently: a bare list of segments, blocks without
`address` or `requested_size`, requested size and frames kept in `history`, entries without frames or pool.

Nothing here recurses, so nesting in the file cannot exhaust the stack, and only named fields are looked at.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

from headroom.errors import SnapshotError

Entry: TypeAlias = dict[str, Any]
RawFrames: TypeAlias = list[Any]

# Sizes beyond 256 TiB and addresses beyond 64 bits are no device memory.
MAX_SIZE_BYTES: Final = 2**48
MAX_ADDRESS: Final = 2**64

DEFAULT_POOL: Final = (0, 0)

# `TraceEntry::Action` of torch 2.13's c10/cuda/CUDACachingAllocator.h, as torch/csrc/cuda/Module.cpp spells them.
BLOCK_ACTIONS: Final = frozenset({"alloc", "free_requested", "free_completed"})
SEGMENT_ACTIONS: Final = frozenset(
    {"segment_alloc", "segment_free", "segment_map", "segment_unmap"}
)
OTHER_ACTIONS: Final = frozenset({"oom", "snapshot", "user_defined"})
_NO_FRAMES: Final[RawFrames] = []
_ADDRESSED: Final = BLOCK_ACTIONS | SEGMENT_ACTIONS

# 2.13's docstring says `active_awaiting_free`, its code writes `active_pending_free`.
_STATES: Final = {
    "inactive": "inactive",
    "active_allocated": "allocated",
    "active_pending_free": "pending",
    "active_awaiting_free": "pending",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of a segment. `state` is `allocated`, `pending` (freed, but a stream still uses it) or `inactive`.

    `requested_bytes` means nothing where the block is inactive: torch does not reset it.
    """

    address: int
    size_bytes: int
    requested_bytes: int
    state: str
    frames: RawFrames


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A range of mapped device memory, and the blocks that fill it in order of address."""

    device: int
    address: int
    size_bytes: int
    pool: tuple[int, int]
    expandable: bool
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTrace:
    """The recorded history of one device, oldest entry first."""

    device: int
    entries: list[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A whole snapshot. `settings` is `allocator_settings` as loaded, empty where the file has none."""

    segments: tuple[Segment, ...]
    traces: tuple[DeviceTrace, ...]
    settings: dict[str, Any]

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices with a segment or an entry, in order."""
        used = {segment.device for segment in self.segments}
        used.update(trace.device for trace in self.traces if trace.entries)
        return tuple(sorted(used))

    def segments_of(self, device: int) -> tuple[Segment, ...]:
        """Final segments of a device, in order of address."""
        return tuple(segment for segment in self.segments if segment.device == device)

    def entries_of(self, device: int) -> list[Entry]:
        """History of a device; empty where nothing was recorded."""
        for trace in self.traces:
            if trace.device == device:
                return trace.entries
        return []


def parse_snapshot(tree: object) -> Snapshot:
    """Check loaded plain data and give it types.

    Args:
        tree: What `torch.cuda.memory._snapshot()` returned, or the older bare list of segments.

    Raises:
        SnapshotError: With one sentence on the first field that is missing or impossible.
    """
    if isinstance(tree, list):
        tree = {"segments": tree}
    if not isinstance(tree, dict) or "segments" not in tree:
        raise SnapshotError(
            "The file is a pickle, but it has no `segments`: no allocator snapshot."
        )
    raw_segments = _list(tree["segments"], "`segments`")
    raw_traces = _list(tree.get("device_traces", []), "`device_traces`")
    segments = [_segment(raw, f"segment {index}") for index, raw in enumerate(raw_segments)]
    segments.sort(key=lambda segment: (segment.device, segment.address))
    _check_apart(segments)
    settings = tree.get("allocator_settings")
    return Snapshot(
        segments=tuple(segments),
        traces=tuple(_trace(raw, device) for device, raw in enumerate(raw_traces)),
        settings=settings if isinstance(settings, dict) else {},
    )


def pool_of(raw: object) -> tuple[int, int]:
    """A pool ID from a tuple or, in files born as JSON, a list; the default pool where there is none."""
    if isinstance(raw, tuple | list) and len(raw) == 2 and all(type(part) is int for part in raw):
        return (raw[0], raw[1])
    return DEFAULT_POOL


def _trace(raw: object, device: int) -> DeviceTrace:
    entries = _list(raw, f"the history of device {device}")
    for index, entry in enumerate(entries):
        fault = _entry_fault(entry)
        if fault is not None:
            raise SnapshotError(
                f"The snapshot is damaged: entry {index} of device {device} {fault}."
            )
    return DeviceTrace(device=device, entries=entries)


def _entry_fault(entry: Any) -> str | None:
    """What is wrong with a history entry. `type(...) is int` is meant: True is no size."""
    if type(entry) is not dict:
        return "is no dictionary"
    action = entry.get("action")
    if type(action) is not str:
        return "has no action"
    if action in _ADDRESSED:
        address = entry.get("addr")
        if type(address) is not int or not 0 <= address < MAX_ADDRESS:
            return "has no valid address"
    elif action not in OTHER_ACTIONS:
        return f"has the unknown action {action[:40]!r}"
    size = entry.get("size")
    if type(size) is not int or not 0 <= size < MAX_SIZE_BYTES:
        return "has no valid size"
    if type(entry.get("frames", _NO_FRAMES)) is not list:
        return "has frames that are no list"
    return None


def _check_apart(segments: list[Segment]) -> None:
    for before, after in pairwise(segments):
        if before.device == after.device and before.address + before.size_bytes > after.address:
            raise SnapshotError(
                f"The snapshot is damaged: two segments of device {after.device} overlap."
            )


def _segment(raw: object, where: str) -> Segment:
    if not isinstance(raw, dict):
        raise SnapshotError(f"The snapshot is damaged: {where} is no dictionary.")
    address = _integer(raw, "address", MAX_ADDRESS, where)
    size_bytes = _integer(raw, "total_size", MAX_SIZE_BYTES, where)
    return Segment(
        device=_integer(raw, "device", 2**16, where, default=0),
        address=address,
        size_bytes=size_bytes,
        pool=pool_of(raw.get("segment_pool_id")),
        expandable=raw.get("is_expandable") is True,
        blocks=_blocks(
            _list(raw.get("blocks"), f"`blocks` of {where}"), address, size_bytes, where
        ),
    )


def _blocks(raw_blocks: list[Any], start: int, size_bytes: int, where: str) -> tuple[Block, ...]:
    """Blocks in order of address; those of old files lie end to end and name no address."""
    blocks: list[Block] = []
    cursor = start
    for index, raw in enumerate(raw_blocks):
        block = _block(raw, cursor, f"block {index} of {where}")
        if block.address < cursor:
            raise SnapshotError(f"The snapshot is damaged: the blocks of {where} overlap.")
        cursor = block.address + block.size_bytes
        blocks.append(block)
    if cursor > start + size_bytes:
        raise SnapshotError(f"The snapshot is damaged: the blocks of {where} do not fit into it.")
    return tuple(blocks)


def _block(raw: object, cursor: int, where: str) -> Block:
    if not isinstance(raw, dict):
        raise SnapshotError(f"The snapshot is damaged: {where} is no dictionary.")
    state = raw.get("state")
    if type(state) is not str or state not in _STATES:
        raise SnapshotError(f"The snapshot is damaged: {where} has no known state.")
    size_bytes = _integer(raw, "size", MAX_SIZE_BYTES, where)
    if size_bytes == 0:
        raise SnapshotError(f"The snapshot is damaged: {where} has no valid `size`.")
    requested_bytes, frames = size_bytes, raw.get("frames")
    history = raw.get("history")
    if isinstance(history, list) and history and isinstance(history[0], dict):
        # Old files keep the block's newest owner here.
        requested_bytes = _integer(history[0], "real_size", MAX_SIZE_BYTES, where, size_bytes)
        frames = history[0].get("frames") if frames is None else frames
    return Block(
        address=_integer(raw, "address", MAX_ADDRESS, where, default=cursor),
        size_bytes=size_bytes,
        requested_bytes=_integer(raw, "requested_size", MAX_SIZE_BYTES, where, requested_bytes),
        state=_STATES[state],
        frames=frames if isinstance(frames, list) else _NO_FRAMES,
    )


def _list(raw: object, where: str) -> list[Any]:
    if not isinstance(raw, list):
        raise SnapshotError(f"The snapshot is damaged: {where} is no list.")
    return raw


def _integer(
    raw: dict[str, Any], key: str, limit: int, where: str, default: int | None = None
) -> int:
    value = raw.get(key, default)
    if type(value) is not int or not 0 <= value < limit:
        raise SnapshotError(f"The snapshot is damaged: {where} has no valid `{key}`.")
    return value
