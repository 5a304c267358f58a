"""The books close to the byte, at any moment, for real captures and for random histories."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.evidence.account.account import Account, DeviceFacts, account_for
from headroom.evidence.account.balance import balance_at, closes, pool_accounts
from headroom.evidence.analysis import analyse
from headroom.evidence.model import BalanceSheet, Ledger
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.account.test_replay_property import ALLOCATORS, STEPS, play
from tests.evidence.reference_allocator import MIB, Allocator

CAPTURES = sorted(
    path.stem for path in (Path(__file__).parents[2] / "recordings" / "captures").glob("*.pickle")
)


def ledger_of(captures: Path, name: str, facts: DeviceFacts | None = None) -> Ledger:
    snapshot = read_snapshot_file(captures / f"{name}.pickle")
    return analyse(snapshot, facts=facts).main.ledger


def balance(ledger: Ledger) -> BalanceSheet:
    assert ledger.balance is not None
    return ledger.balance


@pytest.mark.parametrize("name", CAPTURES)
def test_every_capture_closes(captures: Path, name: str) -> None:
    ledger = ledger_of(captures, name)
    sheet = balance(ledger)
    assert closes(sheet)
    assert sheet.allocated_bytes == ledger.peak.allocated_bytes
    assert sheet.requested_bytes + sheet.rounding_bytes == sheet.allocated_bytes
    owned = sum(use.allocated_bytes for use in ledger.stacks)
    assert owned + sum(ledger.unattributed.values()) == sheet.allocated_bytes
    for quantity in ("allocated_bytes", "reserved_bytes"):
        for moment in ("at_peak", "live"):
            parts = sum(getattr(getattr(pool, moment), quantity) for pool in ledger.pools)
            whole = sheet if moment == "at_peak" else ledger.live
            assert parts == getattr(whole, quantity)


def test_a_graphs_private_pools_hold_what_nobody_else_can_use(captures: Path) -> None:
    ledger = ledger_of(captures, "cudagraph")
    private = [pool for pool in ledger.pools if pool.pool != (0, 0)]
    assert private
    held = sum(pool.at_peak.reserved_bytes - pool.at_peak.allocated_bytes for pool in private)
    assert balance(ledger).private_cached_bytes == held > 8 * MIB


def test_streams_have_accounts_of_their_own(captures: Path) -> None:
    ledger = ledger_of(captures, "streams")
    assert len({pool.stream for pool in ledger.pools}) == 2
    assert sum(pool.peak.allocated_bytes for pool in ledger.pools) >= ledger.peak.allocated_bytes


def test_what_is_not_torchs_is_known_where_the_size_of_the_device_is(captures: Path) -> None:
    snapshot = read_snapshot_file(captures / "oom_observer.pickle")
    account = account_for(snapshot, 0, facts=DeviceFacts(total_bytes=150_000_000_000))
    pools, active = pool_accounts(account.replay, account.owners, account.replay.peak_entry)
    failure = analyse(snapshot).main.ledger.failure
    assert failure is not None
    sheet = balance_at(
        account.replay, pools, active, failure.entry, 0, device_total_bytes=150_000_000_000
    )
    assert sheet.device_free_bytes == failure.device_free_bytes
    assert sheet.non_torch_bytes is not None
    total = sheet.reserved_bytes + sheet.non_torch_bytes + failure.device_free_bytes
    assert total == 150_000_000_000
    assert balance(ledger_of(captures, "full")).non_torch_bytes is None
    assert not closes(replace(sheet, cached_bytes=sheet.cached_bytes + 1))


def test_the_end_of_a_run_of_ours_knows_what_is_not_torchs(captures: Path) -> None:
    snapshot = read_snapshot_file(captures / "full.pickle")
    facts = DeviceFacts(total_bytes=150_109_880_320, non_torch_bytes=600_000_000)
    sheet = analyse(snapshot, facts=facts).main.ledger.end_balance
    assert sheet is not None
    assert closes(sheet)
    assert sheet.non_torch_bytes == 600_000_000
    assert sheet.device_free_bytes is not None
    total = sheet.reserved_bytes + sheet.non_torch_bytes + sheet.device_free_bytes
    assert total == sheet.device_total_bytes == 150_109_880_320


def books(account: Account, entry: int) -> BalanceSheet:
    replay = account.replay
    pools, active = pool_accounts(replay, account.owners, entry)
    requested = sum(replay.lives.requested_bytes[row] for row in replay.rows_allocated(entry))
    sheet = balance_at(replay, pools, active, entry, requested)
    series = (replay.requested_after, replay.allocated_after, replay.reserved_after)
    for name, values in zip(
        ("requested_bytes", "allocated_bytes", "reserved_bytes"), series, strict=True
    ):
        assert sum(getattr(pool.at_peak, name) for pool in pools) == values[entry + 1]
        assert sum(getattr(pool.live, name) for pool in pools) == values[-1]
        assert max((getattr(pool.peak, name) for pool in pools), default=0) <= max(values)
        assert sum(getattr(pool.peak, name) for pool in pools) >= max(values)
    return sheet


@settings(max_examples=150, deadline=None)
@given(allocator=ALLOCATORS, steps=st.lists(STEPS, min_size=5, max_size=50), part=st.floats(0, 0.9))
def test_random_histories_close_at_every_entry(
    allocator: Allocator, steps: list[tuple[str, int]], part: float
) -> None:
    play(allocator, steps)
    dropped = int(part * len(allocator.entries))
    account = account_for(parse_snapshot(allocator.snapshot(dropped)), 0)
    if account.replay.uncertain:
        return
    for entry in range(-1, len(account.replay.history)):
        sheet = books(account, entry)
        assert closes(sheet)
        assert sheet.allocated_bytes == account.replay.allocated_after[entry + 1]
