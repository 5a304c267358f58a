"""The allocator snapshot as typed, checked data.

Segments and blocks become frozen dataclasses, histories columns (`history`), stacks numbers of one table. Old files
are read leniently: a bare list of segments, blocks without `address` or `requested_size`, requested size and frames
kept in `history`, entries without frames or pool. What a later torch may add (actions, fields) is passed over.

Nothing here recurses, so nesting in the file cannot exhaust the stack, and only named fields are looked at.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from headroom.errors import SnapshotError
from headroom.evidence.reading.columns import MAX_ADDRESS, MAX_SIZE_BYTES, pool_of, read_history
from headroom.evidence.reading.history import Action, History, empty_history
from headroom.evidence.reading.stacks import StackTable

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
    stack: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A range of mapped device memory, and the blocks that fill it in order of address."""

    device: int
    address: int
    size_bytes: int
    stream: int
    pool: tuple[int, int]
    small: bool
    expandable: bool
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A whole snapshot. `settings` is `allocator_settings` as loaded, empty where the file has none.

    `stacks` holds every stack that a block or an entry names by number. `notes` says what was passed over.
    """

    segments: tuple[Segment, ...]
    histories: tuple[History, ...]
    stacks: StackTable
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices with a segment or an entry, in order."""
        used = {segment.device for segment in self.segments}
        used.update(history.device for history in self.histories if len(history))
        return tuple(sorted(used))

    def segments_of(self, device: int) -> tuple[Segment, ...]:
        """Final segments of a device, in order of address."""
        return tuple(segment for segment in self.segments if segment.device == device)

    def history_of(self, device: int) -> History:
        """History of a device; an empty one where nothing was recorded."""
        for history in self.histories:
            if history.device == device:
                return history
        return empty_history(device)


def parse_snapshot(tree: object) -> Snapshot:
    """Check loaded plain data and give it types; nothing of what was loaded is kept.

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
    stacks = StackTable()
    try:
        segments = _segments(tree["segments"], stacks)
        raw_traces = _list(tree.get("device_traces", []), "`device_traces`")
        histories = tuple(
            read_history(_list(raw, f"the history of device {device}"), device, stacks)
            for device, raw in enumerate(raw_traces)
        )
    except RecursionError:
        raise SnapshotError("The snapshot is damaged: its frames are nested too deeply.") from None
    settings = tree.get("allocator_settings")
    stacks.forget_identities()
    return Snapshot(
        segments=segments,
        histories=histories,
        stacks=stacks,
        settings=settings if isinstance(settings, dict) else {},
        notes=_passed_over(histories),
    )


def _segments(raw: object, stacks: StackTable) -> tuple[Segment, ...]:
    segments = [
        _segment(one, f"segment {index}", stacks)
        for index, one in enumerate(_list(raw, "`segments`"))
    ]
    segments.sort(key=lambda segment: (segment.device, segment.address))
    _check_apart(segments)
    return tuple(segments)


def _passed_over(histories: tuple[History, ...]) -> tuple[str, ...]:
    unknown = sum(history.actions.count(Action.OTHER) for history in histories)
    if not unknown:
        return ()
    what = "1 entry" if unknown == 1 else f"{unknown} entries"
    return (f"{what} of a kind that this Headroom does not know were passed over",)


def _check_apart(segments: list[Segment]) -> None:
    for before, after in pairwise(segments):
        if before.device == after.device and before.address + before.size_bytes > after.address:
            raise SnapshotError(
                f"The snapshot is damaged: two segments of device {after.device} overlap."
            )


def _segment(raw: object, where: str, stacks: StackTable) -> Segment:
    if not isinstance(raw, dict):
        raise SnapshotError(f"The snapshot is damaged: {where} is no dictionary.")
    address = _integer(raw, "address", MAX_ADDRESS, where)
    size_bytes = _integer(raw, "total_size", MAX_SIZE_BYTES, where)
    return Segment(
        device=_integer(raw, "device", 2**16, where, default=0),
        address=address,
        size_bytes=size_bytes,
        stream=_stream(raw.get("stream")),
        pool=pool_of(raw.get("segment_pool_id")),
        small=raw.get("segment_type") == "small",
        expandable=raw.get("is_expandable") is True,
        blocks=_blocks(
            _list(raw.get("blocks"), f"`blocks` of {where}"), address, size_bytes, where, stacks
        ),
    )


def _stream(raw: object) -> int:
    return raw if type(raw) is int and 0 <= raw < MAX_ADDRESS else 0


def _blocks(
    raw_blocks: list[Any], start: int, size_bytes: int, where: str, stacks: StackTable
) -> tuple[Block, ...]:
    """Blocks in order of address; those of old files lie end to end and name no address."""
    blocks: list[Block] = []
    cursor = start
    for index, raw in enumerate(raw_blocks):
        block = _block(raw, cursor, f"block {index} of {where}", stacks)
        if block.address < cursor:
            raise SnapshotError(f"The snapshot is damaged: the blocks of {where} overlap.")
        cursor = block.address + block.size_bytes
        blocks.append(block)
    if cursor > start + size_bytes:
        raise SnapshotError(f"The snapshot is damaged: the blocks of {where} do not fit into it.")
    return tuple(blocks)


def _block(raw: object, cursor: int, where: str, stacks: StackTable) -> Block:
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
        stack=stacks.intern(frames) if type(frames) is list and frames else None,
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
