from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.evidence.account.account import account_for
from headroom.evidence.account.allocator import size_rules
from headroom.evidence.account.replay import replay_device
from headroom.evidence.analysis_model import Fragmentation
from headroom.evidence.explain.fragmentation import fragmentation_of, free_pieces
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import Snapshot, parse_snapshot
from headroom.units import MIB
from tests.evidence.account.test_replay_property import ALLOCATORS, STEPS, play
from tests.evidence.reference_allocator import Allocator
from tests.evidence.test_ledger import NAMES


def looked_at(snapshot: Snapshot) -> Fragmentation:
    return fragmentation_of(account_for(snapshot, 0), size_rules(snapshot.settings))


def typed(allocator: Allocator) -> dict[str, Any]:
    """The allocator's snapshot with the segments' types, as torch writes them."""
    tree = allocator.snapshot()
    for segment in tree["segments"]:
        segment["segment_type"] = "small" if segment["total_size"] == 2 * MIB else "large"
    return tree


@pytest.mark.parametrize("name", NAMES)
def test_free_pieces_of_every_capture_are_what_is_reserved_and_not_active(
    captures: Path, name: str
) -> None:
    snapshot = read_snapshot_file(captures / f"{name}.pickle")
    found, replay = looked_at(snapshot), account_for(snapshot, 0).replay
    at = found.entry + 1
    assert found.free_bytes == replay.reserved_after[at] - replay.active_after[at]
    assert sum(key.free_bytes for key in found.keys) == found.free_bytes
    assert len({(key.stream, key.pool, key.small) for key in found.keys}) == len(found.keys)
    if found.request_bytes is None:
        inactive = [
            block.size_bytes
            for segment in replay.segments
            for block in segment.blocks
            if block.state == "inactive"
        ]
        assert sorted(inactive) == sorted(piece.size_bytes for piece in free_pieces(replay, at - 1))
        assert (found.unusable_bytes, found.whole) == (0, False)


def test_a_fragmented_capture_holds_more_free_than_its_largest_piece(captures: Path) -> None:
    found = looked_at(read_snapshot_file(captures / "fragment.pickle"))
    # 90 MiB were asked for and got a segment of their own, though 135 MiB were free.
    assert found.free_bytes == 383_778_816 - 242_221_056
    (key,) = found.keys
    assert (key.pieces, key.largest_bytes, key.small) == (12, 23_068_672, False)
    assert found.largest_usable_bytes < 90 * MIB < found.free_bytes


@pytest.mark.parametrize("name", ["oom_observer", "oom_capped"])
def test_a_failure_says_as_torch_does_how_much_was_reserved_but_unallocated(
    captures: Path, name: str
) -> None:
    found = looked_at(read_snapshot_file(captures / f"{name}.pickle"))
    assert found.request_bytes == 32 * MIB
    # "53.82 MiB is reserved by PyTorch but unallocated"
    assert f"{found.free_bytes / MIB:.2f}" == "53.82"
    assert found.unusable_bytes == found.free_bytes
    assert found.largest_usable_bytes == 12 * MIB
    assert found.whole
    assert {(key.small, key.usable) for key in found.keys} == {(True, False), (False, True)}


def test_streams_and_pools_have_free_memory_of_their_own(captures: Path) -> None:
    streams = looked_at(read_snapshot_file(captures / "streams.pickle"))
    assert len({key.stream for key in streams.keys}) == 2
    graph = looked_at(read_snapshot_file(captures / "cudagraph.pickle"))
    assert {key.pool for key in graph.keys} == {(0, 0), (1, 0)}


def failing(request: int, *, small_free: bool, large_mebibytes: int) -> Fragmentation:
    allocator = Allocator()
    if small_free:
        allocator.free(allocator.malloc(1000))
    allocator.free(allocator.malloc(large_mebibytes * MIB))
    allocator.out_of_memory(request, 0)
    return looked_at(parse_snapshot(typed(allocator)))


def test_a_small_piece_is_of_no_use_to_a_large_request() -> None:
    found = failing(24 * MIB, small_free=True, large_mebibytes=22)
    assert (found.free_bytes, found.unusable_bytes) == (24 * MIB, 24 * MIB)
    assert found.largest_usable_bytes == 22 * MIB
    assert found.whole


def test_a_request_that_would_not_fit_into_all_that_is_free() -> None:
    found = failing(24 * MIB + 1, small_free=True, large_mebibytes=22)
    assert not found.whole


def test_a_request_is_rounded_before_it_has_to_fit() -> None:
    assert failing(22 * MIB - 100, small_free=False, large_mebibytes=22).unusable_bytes == 0
    assert failing(22 * MIB + 1, small_free=False, large_mebibytes=22).unusable_bytes == 22 * MIB


def test_powers_of_two_are_rounded_to_as_the_settings_say() -> None:
    allocator = Allocator(divisions=4)
    allocator.malloc(3 * MIB)
    # 17 MiB of the segment are left, but a request of 16.5 MiB takes 20 MiB.
    allocator.out_of_memory(33 * MIB // 2, 0)
    found = looked_at(parse_snapshot(typed(allocator)))
    assert (found.largest_usable_bytes, found.unusable_bytes) == (17 * MIB, 17 * MIB)


def test_pages_that_come_and_go_after_the_failure() -> None:
    allocator = Allocator(expandable=True)
    allocator.malloc(30 * MIB)
    middle = allocator.malloc(60 * MIB)
    allocator.malloc(30 * MIB)
    allocator.free(middle)
    allocator.out_of_memory(70 * MIB, 0)
    allocator.empty_cache()
    # The pages of 20 MiB that lie wholly in the piece are given back, and its two ends stay.
    found = looked_at(parse_snapshot(allocator.snapshot()))
    assert [(key.pieces, key.largest_bytes) for key in found.keys] == [(1, 60 * MIB)]
    allocator.out_of_memory(70 * MIB, 0)
    allocator.malloc(60 * MIB)
    allocator.malloc(45 * MIB)
    found = looked_at(parse_snapshot(allocator.snapshot()))
    assert [(key.pieces, key.free_bytes) for key in found.keys] == [(2, 20 * MIB)]


def test_what_another_stream_freed_does_not_help() -> None:
    allocator = Allocator()
    allocator.free(allocator.malloc(30 * MIB, stream=7))
    allocator.out_of_memory(20 * MIB, 0)
    tree = typed(allocator)
    tree["segments"][0]["stream"] = 7
    found = looked_at(parse_snapshot(tree))
    (key,) = found.keys
    assert (key.stream, key.usable) == (7, False)
    assert (found.largest_usable_bytes, found.unusable_bytes, found.whole) == (0, 30 * MIB, True)


def test_what_the_program_freed_after_the_failure_was_not_free_at_it() -> None:
    allocator = Allocator()
    pieces = [allocator.malloc(30 * MIB) for _ in range(3)]
    allocator.free(pieces[0])
    allocator.out_of_memory(40 * MIB, 0)
    allocator.free(pieces[1])
    allocator.empty_cache()
    found = looked_at(parse_snapshot(typed(allocator)))
    assert (found.free_bytes, found.unusable_bytes, found.whole) == (30 * MIB, 30 * MIB, False)


@settings(max_examples=300, deadline=None)
@given(
    allocator=ALLOCATORS,
    before=st.lists(STEPS, min_size=5, max_size=50),
    after=st.lists(STEPS, max_size=50),
)
def test_free_pieces_at_any_entry_are_the_allocators_own(
    allocator: Allocator, before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    play(allocator, before)
    entry = len(allocator.entries) - 1
    truth = sorted(
        (piece.address, piece.size)
        for region in allocator.regions
        for piece in region.pieces
        if piece.state == "inactive"
    )
    play(allocator, after)
    replay = replay_device(parse_snapshot(allocator.snapshot()), 0)
    found = sorted((piece.address, piece.size_bytes) for piece in free_pieces(replay, entry))
    assert found == truth
