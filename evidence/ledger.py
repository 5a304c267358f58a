"""The account of a device at its peak: every byte with an owner, or a stated reason why not."""

from collections.abc import Iterable
from typing import Final

from headroom.errors import SnapshotError
from headroom.evidence.growth import find_growth
from headroom.evidence.model import (
    Failure,
    Ledger,
    LiveBlock,
    Missing,
    Peak,
    StackId,
    StackUse,
)
from headroom.evidence.owners import Owners
from headroom.evidence.replay import Replay, replay_device
from headroom.evidence.safe_pickle import paused_collector
from headroom.evidence.snapshot import Snapshot
from headroom.evidence.stacks import StackTable, is_backward, user_frames
from headroom.evidence.ticks import Ticks, read_ticks

_REASONS: Final[tuple[Missing, ...]] = ("before recording", "no stack", "private pool")


def build_ledger(
    snapshot: Snapshot, *, device: int | None = None, roots: tuple[str, ...] = ()
) -> Ledger:
    """Account for one device of a snapshot.

    Args:
        snapshot: A snapshot, ours or anybody's.
        device: Index of the device; by default the one with the highest peak.
        roots: Folders of the program, which tell the user's frames from those of libraries.

    Raises:
        SnapshotError: The snapshot has no such device, or nothing at all.
    """
    with paused_collector():
        replay = _chosen_replay(snapshot, device)
        table = StackTable()
        ticks = read_ticks(replay.entries)
        owners = Owners(replay, table)
        rows = replay.rows_allocated(replay.peak_entry)
        row_stacks = [owners.stack_of(row) for row in rows]
        stacks, ids = _stack_uses(replay, table, rows, row_stacks, roots)
        blocks = tuple(
            _live_block(replay, owners, ticks, row, None if stack is None else ids[stack])
            for row, stack in zip(rows, row_stacks, strict=True)
        )
        return _ledger(replay, table, ticks, stacks, _in_order(blocks))


def _chosen_replay(snapshot: Snapshot, device: int | None) -> Replay:
    devices = snapshot.devices
    if not devices:
        raise SnapshotError(
            "The snapshot holds no segment and no history, so there is nothing to account for."
        )
    if device is not None and device not in devices:
        known = ", ".join(map(str, devices))
        raise SnapshotError(f"The snapshot has nothing about device {device}; it has {known}.")
    replays = (replay_device(snapshot, one) for one in (devices if device is None else (device,)))
    return max(replays, key=lambda replay: (replay.peak_allocated_bytes, -replay.device))


def _stack_uses(
    replay: Replay,
    table: StackTable,
    rows: list[int],
    row_stacks: list[int | None],
    roots: tuple[str, ...],
) -> tuple[tuple[StackUse, ...], dict[int, StackId]]:
    """Uses by descending bytes, and the ID of each stack number."""
    allocated: dict[int, int] = {}
    requested: dict[int, int] = {}
    blocks: dict[int, int] = {}
    for row, stack in zip(rows, row_stacks, strict=True):
        if stack is not None:
            allocated[stack] = allocated.get(stack, 0) + replay.lives.allocated_bytes[row]
            requested[stack] = requested.get(stack, 0) + replay.lives.requested_bytes[row]
            blocks[stack] = blocks.get(stack, 0) + 1
    frames = {stack: table.frames(stack) for stack in allocated}
    # Equal bytes are ordered by content, so that equal snapshots give equal IDs whatever the order of the entries.
    text = {
        stack: [(one.filename, one.line, one.name) for one in frames[stack]] for stack in frames
    }
    order = sorted(allocated, key=lambda stack: (-allocated[stack], text[stack]))
    ids = {stack: StackId(f"S{number:03d}") for number, stack in enumerate(order, start=1)}
    uses = tuple(
        StackUse(
            id=ids[stack],
            frames=frames[stack],
            user_frames=user_frames(frames[stack], roots),
            backward=is_backward(frames[stack]),
            allocated_bytes=allocated[stack],
            requested_bytes=requested[stack],
            blocks=blocks[stack],
        )
        for stack in order
    )
    return uses, ids


def _live_block(
    replay: Replay, owners: Owners, ticks: Ticks, row: int, stack: StackId | None
) -> LiveBlock:
    born = replay.lives.born[row]
    return LiveBlock(
        stack=stack,
        allocated_bytes=replay.lives.allocated_bytes[row],
        requested_bytes=replay.lives.requested_bytes[row],
        born=ticks.at(born) if born >= 0 else None,
        missing=owners.missing(row) if stack is None else None,
    )


def _in_order(blocks: Iterable[LiveBlock]) -> tuple[LiveBlock, ...]:
    def key(block: LiveBlock) -> tuple[int, str, int, int, int]:
        born = (block.born.update, block.born.call) if block.born is not None else (-1, -1)
        return (-block.allocated_bytes, block.stack or "", *born, block.requested_bytes)

    return tuple(sorted(blocks, key=key))


def _ledger(
    replay: Replay,
    table: StackTable,
    ticks: Ticks,
    stacks: tuple[StackUse, ...],
    blocks: tuple[LiveBlock, ...],
) -> Ledger:
    at_peak, end = replay.peak_entry + 1, len(replay.entries)
    unattributed = {
        reason: sum(block.allocated_bytes for block in blocks if block.missing == reason)
        for reason in _REASONS
    }
    unattributed = {reason: size_bytes for reason, size_bytes in unattributed.items() if size_bytes}
    owned_bytes = sum(use.allocated_bytes for use in stacks)
    assert owned_bytes + sum(unattributed.values()) == replay.peak_allocated_bytes
    last = replay.rows_allocated(end - 1)
    return Ledger(
        device=replay.device,
        peak=Peak(
            allocated_bytes=replay.peak_allocated_bytes,
            requested_bytes=sum(block.requested_bytes for block in blocks),
            entry=replay.peak_entry,
            tick=ticks.at(replay.peak_entry),
        ),
        live_allocated_bytes=replay.allocated_after[end],
        live_requested_bytes=sum(replay.lives.requested_bytes[row] for row in last),
        reserved_bytes=replay.reserved_after[end],
        peak_reserved_bytes=replay.peak_reserved_bytes,
        complete=replay.complete,
        entries=end,
        stacks=stacks,
        blocks=blocks,
        unattributed=unattributed,
        growth=find_growth(blocks),
        failure=_failure(replay, table),
        pending_bytes=replay.active_after[at_peak] - replay.allocated_after[at_peak],
        uncertain_bytes=replay.uncertain_peak_bytes,
        contradictions=replay.contradictions + replay.rule_misses,
    )


def _failure(replay: Replay, table: StackTable) -> Failure | None:
    """The last out-of-memory entry. The failing request never becomes an `alloc`."""
    for index in range(len(replay.entries) - 1, -1, -1):
        entry = replay.entries[index]
        if entry["action"] == "oom":
            free = entry.get("device_free")
            return Failure(
                requested_bytes=entry["size"],
                device_free_bytes=free if type(free) is int and free >= 0 else 0,
                stack=table.frames(table.intern(entry.get("frames") or [])),
                live_allocated_bytes=replay.allocated_after[index + 1],
            )
    return None
