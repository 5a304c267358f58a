"""Why a block has no owner, and what a ring leaves of the history."""

from typing import Any

import pytest

from headroom.evidence.account.account import DeviceFacts
from headroom.evidence.analysis import analyse
from headroom.evidence.model import Ledger
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.reference_allocator import MIB, Allocator


def history(dropped: int, **facts: Any) -> Ledger:
    """Forty blocks without stacks, half of them freed; the first entries dropped."""
    allocator = Allocator()
    pieces = [allocator.malloc(2 * MIB) for _ in range(40)]
    for piece in pieces[:20]:
        allocator.free(piece)
    allocator.malloc(80 * MIB)
    return analyse(
        parse_snapshot(allocator.snapshot(dropped)), facts=DeviceFacts(**facts)
    ).main.ledger


def test_a_whole_history_has_no_lost_part() -> None:
    ledger = history(0)
    assert ledger.window is not None
    assert (ledger.window.ring, ledger.window.lost_frees, ledger.window.older_bytes) == (
        False,
        0,
        0,
    )
    assert set(ledger.unattributed) == {"no stack"}


@pytest.mark.parametrize(
    ("ring_full", "reason"), [(True, "lost by the ring"), (False, "before recording")]
)
def test_whoever_knows_the_ring_is_believed(ring_full: bool, reason: str) -> None:
    ledger = history(30, ring_full=ring_full)
    assert ledger.window is not None
    assert ledger.window.ring == ring_full
    assert reason in ledger.unattributed
    assert ledger.window.older_bytes == ledger.unattributed[reason]
    assert ledger.window.lost_frees > 0


def test_a_torn_pair_tells_a_ring() -> None:
    allocator = Allocator()
    old = [allocator.malloc(2 * MIB) for _ in range(3)]
    for piece in old:
        allocator.free(piece)
    entries = allocator.entries
    torn = next(i for i, entry in enumerate(entries) if entry["action"] == "free_completed")
    for dropped, ring in ((torn, True), (torn - 1, False)):
        window = analyse(parse_snapshot(allocator.snapshot(dropped))).main.ledger.window
        assert window is not None
        assert window.ring == ring


def test_a_length_as_round_as_people_set_it_tells_a_ring() -> None:
    allocator = Allocator()
    allocator.malloc(2 * MIB)
    for _ in range(120):
        allocator.free(allocator.malloc(2 * MIB))
    total = len(allocator.entries)
    for kept, ring in ((300, True), (301, False)):
        dropped = total - kept
        assert allocator.entries[dropped]["action"] != "free_completed" or kept == 301
        window = analyse(parse_snapshot(allocator.snapshot(dropped))).main.ledger.window
        assert window is not None
        assert window.ring == ring or allocator.entries[dropped]["action"] == "free_completed"
