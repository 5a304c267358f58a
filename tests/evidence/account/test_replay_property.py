"""Random histories of a reference allocator reconcile with its truth after every single entry."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.evidence.account.replay import Replay, replay_device
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.reference_allocator import MIB, Allocator, Piece

# Around every threshold: 512 bytes, the two pools, the segment sizes, and remainders of about 1 MiB in a segment.
SIZES = st.one_of(
    st.integers(1, 3000),
    st.integers(MIB - 600, MIB + 600),
    st.integers(1, 48).map(lambda halves: halves * MIB // 2),
    st.integers(18 * MIB, 20 * MIB),
    st.integers(MIB, 40 * MIB),
)
STEPS = st.one_of(
    st.tuples(st.just("malloc"), SIZES),
    st.tuples(st.just("malloc"), SIZES),
    st.tuples(st.just("free"), st.integers(0, 1000)),
    st.tuples(st.just("free"), st.integers(0, 1000)),
    st.tuples(st.just("free later"), st.integers(0, 1000)),
    st.tuples(st.just("complete"), st.integers(0, 1000)),
    st.tuples(st.just("empty"), st.just(0)),
)
ALLOCATORS = st.builds(
    Allocator,
    expandable=st.booleans(),
    max_split=st.sampled_from([0, 0, 24 * MIB]),
    divisions=st.sampled_from([0, 0, 4]),
)


def play(allocator: Allocator, steps: list[tuple[str, int]]) -> None:
    live: list[Piece] = []
    pending: list[Piece] = []
    for action, number in steps:
        if action == "malloc":
            live.append(allocator.malloc(number, stream=number % 2))
        elif action == "empty":
            allocator.empty_cache()
        elif action == "complete" and pending:
            allocator.complete(pending.pop(number % len(pending)))
        elif action.startswith("free") and live:
            piece = live.pop(number % len(live))
            allocator.free(piece, pending=action == "free later")
            if action == "free later":
                pending.append(piece)


def replay(allocator: Allocator, dropped: int) -> Replay:
    return replay_device(parse_snapshot(allocator.snapshot(dropped)), 0)


def series(replayed: Replay) -> list[dict[str, int]]:
    columns = {
        "allocated": replayed.allocated_after,
        "active": replayed.active_after,
        "requested": replayed.requested_after,
        "reserved": replayed.reserved_after,
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@settings(max_examples=300, deadline=None)
@given(allocator=ALLOCATORS, steps=st.lists(STEPS, min_size=5, max_size=70))
def test_whole_histories_are_exact_after_every_entry(
    allocator: Allocator, steps: list[tuple[str, int]]
) -> None:
    play(allocator, steps)
    replayed = replay(allocator, dropped=0)
    assert (replayed.contradictions, replayed.rule_misses, replayed.uncertain) == (0, 0, {})
    assert series(replayed)[1:] == allocator.truth
    assert replayed.complete


@settings(max_examples=300, deadline=None)
@given(allocator=ALLOCATORS, steps=st.lists(STEPS, min_size=5, max_size=70), data=st.data())
def test_cut_histories_are_exact_but_for_the_blocks_named_uncertain(
    allocator: Allocator, steps: list[tuple[str, int]], data: Any
) -> None:
    play(allocator, steps)
    dropped = data.draw(st.integers(0, len(allocator.entries)), label="dropped")
    replayed = replay(allocator, dropped)
    assert (replayed.contradictions, replayed.rule_misses) == (0, 0)
    extra = sum(replayed.uncertain.values())
    for got, true in zip(series(replayed)[1:], allocator.truth[dropped:], strict=True):
        assert (got["requested"], got["reserved"]) == (true["requested"], true["reserved"])
        assert got["allocated"] <= true["allocated"] <= got["allocated"] + extra
        assert got["active"] <= true["active"] <= got["active"] + extra
    true_peak = max((true["allocated"] for true in allocator.truth[dropped:]), default=0)
    assert true_peak <= replayed.peak_allocated_bytes + replayed.uncertain_peak_bytes
