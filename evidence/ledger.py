"""The account of a device at its peak: every byte with an owner, or a stated reason why not."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from headroom.errors import SnapshotError
from headroom.evidence.account.account import Account, DeviceFacts, account_for
from headroom.evidence.account.balance import balance_at, pool_accounts
from headroom.evidence.account.lives import BEFORE
from headroom.evidence.account.names import NameWalk
from headroom.evidence.explain.categories import classify
from headroom.evidence.explain.growth import find_growth
from headroom.evidence.model import (
    BalanceSheet,
    Failure,
    Ledger,
    LiveBlock,
    Missing,
    Peak,
    PoolAccount,
    Quantities,
    StackId,
    StackUse,
    Window,
)
from headroom.evidence.reading.history import NO_STACK, Action
from headroom.evidence.reading.safe_pickle import paused_collector
from headroom.evidence.reading.snapshot import Snapshot
from headroom.evidence.reading.stacks import is_backward, user_frames

_REASONS: Final[tuple[Missing, ...]] = (
    "before recording",
    "lost by the ring",
    "no stack",
    "private pool",
)


def build_ledger(
    snapshot: Snapshot,
    *,
    device: int | None = None,
    roots: tuple[str, ...] = (),
    walks: Sequence[NameWalk] = (),
    facts: DeviceFacts | None = None,
) -> Ledger:
    """Account for one device of a snapshot.

    Args:
        snapshot: A snapshot, ours or anybody's.
        device: Index of the device; by default the one with the highest peak.
        roots: Folders of the program, which tell the user's frames from those of libraries.
        walks: What the recorder named, walk by walk.
        facts: What else is known of the device.

    Raises:
        SnapshotError: The snapshot has no such device, or nothing at all.
    """
    with paused_collector():
        accounts = [
            account_for(snapshot, one, roots=roots, walks=walks, facts=facts)
            for one in chosen_devices(snapshot, device)
        ]
        return ledger_of(
            max(
                accounts,
                key=lambda one: (one.replay.peak_allocated_bytes, -one.replay.device),
            )
        )


def chosen_devices(snapshot: Snapshot, device: int | None) -> tuple[int, ...]:
    """The devices to account for: all of them, or the one that is asked for.

    Raises:
        SnapshotError: The snapshot has no such device, or nothing at all.
    """
    devices = snapshot.devices
    if not devices:
        raise SnapshotError(
            "The snapshot holds no segment and no history, so there is nothing to account for."
        )
    if device is None:
        return devices
    if device not in devices:
        known = ", ".join(map(str, devices))
        raise SnapshotError(f"The snapshot has nothing about device {device}; it has {known}.")
    return (device,)


def ledger_of(account: Account) -> Ledger:
    """The ledger of one device."""
    replay = account.replay
    rows = replay.rows_allocated(replay.peak_entry)
    stacks, ids = _stack_uses(account, rows)
    blocks = _in_order(_live_blocks(account, rows, ids))
    return _ledger(account, rows, stacks, blocks)


def _stack_uses(
    account: Account, rows: list[int]
) -> tuple[tuple[StackUse, ...], dict[int, StackId]]:
    """Uses by descending bytes, and the ID of each stack number."""
    lives, numbers = account.replay.lives, account.owners.stacks
    allocated: dict[int, int] = {}
    requested: dict[int, int] = {}
    blocks: dict[int, int] = {}
    for row in rows:
        stack = numbers[row]
        if stack != NO_STACK:
            allocated[stack] = allocated.get(stack, 0) + lives.allocated_bytes[row]
            requested[stack] = requested.get(stack, 0) + lives.requested_bytes[row]
            blocks[stack] = blocks.get(stack, 0) + 1
    frames = {stack: account.replay.stacks.frames(stack) for stack in allocated}
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
            user_frames=user_frames(frames[stack], account.roots),
            backward=is_backward(frames[stack]),
            allocated_bytes=allocated[stack],
            requested_bytes=requested[stack],
            blocks=blocks[stack],
        )
        for stack in order
    )
    return uses, ids


def _live_blocks(account: Account, rows: list[int], ids: dict[int, StackId]) -> Iterable[LiveBlock]:
    replay, owners, ticks = account.replay, account.owners, account.ticks
    lives, end = replay.lives, len(replay.history)
    for row, kind in zip(rows, classify(account, rows), strict=True):
        born, freed = lives.born[row], lives.freed[row]
        stack = owners.stacks[row]
        label = ticks.label(born)
        name = account.names.get(row)
        yield LiveBlock(
            stack=ids.get(stack),
            allocated_bytes=lives.allocated_bytes[row],
            requested_bytes=lives.requested_bytes[row],
            born=ticks.at(born) if born != BEFORE else None,
            missing=owners.missing(row) if stack == NO_STACK else None,
            lives_until=ticks.at(freed) if freed < end else None,
            address=lives.address[row],
            stream=owners.stream(row),
            pool=owners.pool(row),
            category=kind.category,
            inferred=kind.inferred,
            lifetime=kind.lifetime,
            phase=label.phase if label is not None else None,
            module=label.module if label is not None else "",
            name=name.name if name is not None else "",
            holder=name.holder if name is not None else None,
        )


def _in_order(blocks: Iterable[LiveBlock]) -> tuple[LiveBlock, ...]:
    def key(block: LiveBlock) -> tuple[int, str, int, int, int, int]:
        born = (block.born.update, block.born.call) if block.born is not None else (-1, -1)
        return (
            -block.allocated_bytes,
            block.stack or "",
            *born,
            block.requested_bytes,
            block.address,
        )

    return tuple(sorted(blocks, key=key))


def _ledger(
    account: Account,
    rows: list[int],
    stacks: tuple[StackUse, ...],
    blocks: tuple[LiveBlock, ...],
) -> Ledger:
    replay, end = account.replay, len(account.replay.history)
    unattributed = _unattributed(blocks)
    owned_bytes = sum(use.allocated_bytes for use in stacks)
    assert owned_bytes + sum(unattributed.values()) == replay.peak_allocated_bytes
    requested = sum(block.requested_bytes for block in blocks)
    failure = _failure(account)
    pools, balance = _books(account, replay.peak_entry, rows)
    live_requested = sum(
        replay.lives.requested_bytes[row] for row in replay.rows_allocated(end - 1)
    )
    return Ledger(
        device=replay.device,
        peak=_peak(account, requested),
        live_allocated_bytes=replay.allocated_after[end],
        live_requested_bytes=live_requested,
        reserved_bytes=replay.reserved_after[end],
        peak_reserved_bytes=replay.peak_reserved_bytes,
        complete=replay.complete,
        entries=end,
        stacks=stacks,
        blocks=blocks,
        unattributed=unattributed,
        growth=find_growth(blocks),
        failure=failure,
        pending_bytes=replay.active_after[replay.peak_entry + 1] - replay.peak_allocated_bytes,
        uncertain_bytes=replay.uncertain_peak_bytes,
        contradictions=replay.contradictions + replay.rule_misses,
        peaks=Quantities(
            requested_bytes=replay.peak_requested_bytes,
            allocated_bytes=replay.peak_allocated_bytes,
            reserved_bytes=replay.peak_reserved_bytes,
        ),
        live=Quantities(
            requested_bytes=live_requested,
            allocated_bytes=replay.allocated_after[end],
            reserved_bytes=replay.reserved_after[end],
        ),
        balance=balance,
        end_balance=_end_balance(account, end - 1),
        failure_balance=None if failure is None else _books(account, failure.entry)[1],
        pools=pools,
        window=_window(account, blocks),
        cap_bytes=account.facts.cap_bytes,
    )


def _books(
    account: Account, entry: int, rows: list[int] | None = None
) -> tuple[tuple[PoolAccount, ...], BalanceSheet]:
    """The accounts by stream and pool, and the balance sheet, after an entry."""
    replay = account.replay
    rows = replay.rows_allocated(entry) if rows is None else rows
    pools, active = pool_accounts(replay, account.owners, entry)
    requested = sum(replay.lives.requested_bytes[row] for row in rows)
    total = account.facts.total_bytes
    return pools, balance_at(replay, pools, active, entry, requested, device_total_bytes=total)


def _end_balance(account: Account, entry: int) -> BalanceSheet:
    """The books at the end of the history, where a run of ours also knows what is not torch's."""
    balance = _books(account, entry)[1]
    total, outside = account.facts.total_bytes, account.facts.non_torch_bytes
    if balance.non_torch_bytes is not None or total is None or outside is None:
        return balance
    free = total - outside - balance.reserved_bytes
    return replace(balance, non_torch_bytes=outside, device_free_bytes=free)


def _unattributed(blocks: tuple[LiveBlock, ...]) -> dict[Missing, int]:
    found: dict[Missing, int] = {}
    for reason in _REASONS:
        size_bytes = sum(block.allocated_bytes for block in blocks if block.missing == reason)
        if size_bytes:
            found[reason] = size_bytes
    return found


def _peak(account: Account, requested_bytes: int) -> Peak:
    replay, entry = account.replay, account.replay.peak_entry
    return Peak(
        allocated_bytes=replay.peak_allocated_bytes,
        requested_bytes=requested_bytes,
        entry=entry,
        tick=account.ticks.at(entry),
        time_us=replay.history.times_us[entry] if entry >= 0 else 0,
    )


def _window(account: Account, blocks: tuple[LiveBlock, ...]) -> Window:
    history, lives = account.replay.history, account.replay.lives
    end = len(history)
    return Window(
        entries=end,
        first_time_us=history.times_us[0] if end else 0,
        last_time_us=history.times_us[-1] if end else 0,
        lost_frees=sum(
            born == BEFORE and completed < end
            for born, completed in zip(lives.born, lives.completed, strict=True)
        ),
        older_bytes=sum(block.allocated_bytes for block in blocks if block.born is None),
        ring=account.owners.cut,
    )


def _failure(account: Account) -> Failure | None:
    """The last out-of-memory entry. The failing request never becomes an `alloc`."""
    replay, history = account.replay, account.replay.history
    entry = history.last(Action.OOM)
    if entry < 0:
        return None
    stack = history.stacks[entry]
    return Failure(
        requested_bytes=history.sizes_bytes[entry],
        device_free_bytes=history.device_free_bytes.get(entry, 0),
        stack=replay.stacks.frames(stack) if stack != NO_STACK else (),
        live_allocated_bytes=replay.allocated_after[entry + 1],
        entry=entry,
        stream=history.streams[entry],
    )
