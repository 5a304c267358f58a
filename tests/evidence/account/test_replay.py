"""Single rules of the replay, on histories short enough to check by hand."""

from typing import Any

import pytest

from headroom.errors import SnapshotError
from headroom.evidence.account.replay import Replay, replay_device
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.reference_allocator import MIB, Allocator


def replayed(tree: dict[str, Any]) -> Replay:
    return replay_device(parse_snapshot(tree), 0)


def test_a_block_is_allocated_until_its_free_is_requested_and_active_until_it_completes() -> None:
    allocator = Allocator()
    held = allocator.malloc(5 * MIB)
    allocator.free(held, pending=True)
    allocator.malloc(3 * MIB)
    allocator.complete(held)
    replay = replayed(allocator.snapshot())
    # segment, alloc, free_requested, alloc, free_completed
    assert list(replay.allocated_after) == [0, 0, 5 * MIB, 0, 3 * MIB, 3 * MIB]
    assert list(replay.active_after) == [0, 0, 5 * MIB, 5 * MIB, 8 * MIB, 3 * MIB]
    assert (replay.peak_allocated_bytes, replay.peak_active_bytes) == (5 * MIB, 8 * MIB)


def test_a_block_pending_at_the_end_is_active_and_not_allocated() -> None:
    allocator = Allocator()
    allocator.free(allocator.malloc(5 * MIB), pending=True)
    replay = replayed(allocator.snapshot())
    assert (replay.allocated_after[-1], replay.active_after[-1]) == (0, 5 * MIB)


def test_an_unsplit_remainder_belongs_to_a_block_that_is_gone_by_the_end() -> None:
    allocator = Allocator()
    first = allocator.malloc(20 * MIB - MIB // 2)
    allocator.free(first)
    replay = replayed(allocator.snapshot())
    assert replay.peak_allocated_bytes == 20 * MIB
    assert replay.peak_requested_bytes == 20 * MIB - MIB // 2


def test_expandable_pieces_split_to_512_bytes_even_where_they_were_unmapped_since() -> None:
    allocator = Allocator(expandable=True)
    allocator.free(allocator.malloc(20 * MIB - MIB // 2))
    allocator.empty_cache()
    replay = replayed(allocator.snapshot())
    assert replay.peak_allocated_bytes == 20 * MIB - MIB // 2
    assert (replay.peak_reserved_bytes, replay.reserved_after[-1]) == (20 * MIB, 0)


def test_a_block_over_the_split_limit_keeps_its_whole_piece() -> None:
    allocator = Allocator(max_split=24 * MIB)
    allocator.free(allocator.malloc(42 * MIB))
    allocator.free(allocator.malloc(30 * MIB))
    replay = replayed(allocator.snapshot())
    assert list(replay.allocated_after)[-3:] == [42 * MIB, 0, 0]


def test_an_address_that_is_used_again_begins_a_new_life() -> None:
    allocator = Allocator()
    for size in (4 * MIB, 6 * MIB, 2 * MIB):
        allocator.free(allocator.malloc(size))
    replay = replayed(allocator.snapshot())
    assert len({*replay.lives.address}) == 1
    assert sorted(replay.lives.allocated_bytes) == [2 * MIB, 4 * MIB, 6 * MIB]
    assert replay.peak_allocated_bytes == 6 * MIB


def test_the_first_of_equal_peaks_is_the_peak() -> None:
    allocator = Allocator()
    allocator.free(allocator.malloc(4 * MIB))
    allocator.free(allocator.malloc(4 * MIB))
    assert replayed(allocator.snapshot()).peak_entry == 1


def test_the_peak_may_lie_before_the_first_entry() -> None:
    allocator = Allocator()
    first = allocator.malloc(4 * MIB)
    before = len(allocator.entries)
    allocator.free(first)
    replay = replayed(allocator.snapshot(dropped=before))
    assert (replay.peak_entry, replay.peak_allocated_bytes) == (-1, 4 * MIB)
    assert replay.rows_allocated(-1) == [0]
    assert not replay.complete


def test_no_history_at_all_gives_the_live_bytes() -> None:
    allocator = Allocator()
    allocator.malloc(4 * MIB)
    replay = replayed(allocator.snapshot(dropped=len(allocator.entries)))
    assert (replay.peak_entry, replay.peak_allocated_bytes) == (-1, 4 * MIB)


def test_cached_segments_older_than_the_history_make_it_incomplete() -> None:
    allocator = Allocator()
    allocator.free(allocator.malloc(4 * MIB))
    replay = replayed(allocator.snapshot(dropped=len(allocator.entries)))
    assert replay.allocated_after[0] == 0
    assert not replay.complete


def test_a_block_of_unknown_size_is_counted_rounded_and_named_uncertain() -> None:
    allocator = Allocator()
    wall = allocator.malloc(8 * MIB)
    neighbour = allocator.malloc(4 * MIB)
    allocator.malloc(8 * MIB)
    allocator.free(wall)
    unknown = allocator.malloc(7 * MIB + MIB // 2)  # keeps half a MiB, up to its neighbour
    allocator.free(neighbour)
    dropped = len(allocator.entries)
    allocator.free(unknown)
    replay = replayed(allocator.snapshot(dropped))
    assert allocator.truth[dropped - 1]["allocated"] == 16 * MIB
    assert replay.peak_allocated_bytes == 16 * MIB - MIB // 2
    assert list(replay.uncertain.values()) == [MIB]
    assert replay.uncertain_peak_bytes == MIB


def test_a_later_neighbour_shows_the_size_of_an_older_block() -> None:
    allocator = Allocator()
    wall = allocator.malloc(8 * MIB)
    neighbour = allocator.malloc(4 * MIB)
    allocator.malloc(8 * MIB)
    allocator.free(wall)
    unknown = allocator.malloc(7 * MIB + MIB // 2)
    allocator.free(neighbour)
    dropped = len(allocator.entries)
    allocator.free(allocator.malloc(4 * MIB))
    allocator.free(unknown)
    replay = replayed(allocator.snapshot(dropped))
    assert replay.uncertain == {}
    assert replay.allocated_after[0] == allocator.truth[dropped - 1]["allocated"] == 16 * MIB


@pytest.mark.parametrize(
    "entry",
    [
        {"action": "alloc", "addr": 1 << 30, "size": 512},
        {"action": "free_requested", "addr": 1 << 30, "size": 512},
        {"action": "free_completed", "addr": 1 << 44, "size": 4 * MIB},
    ],
)
def test_entries_that_cannot_be_true_are_counted(entry: dict[str, Any]) -> None:
    allocator = Allocator()
    allocator.malloc(4 * MIB)
    tree = allocator.snapshot()
    tree["device_traces"] = [[*tree["device_traces"][0], entry]]
    assert replayed(tree).contradictions == 1


def test_a_known_size_that_the_rules_do_not_give_is_counted() -> None:
    allocator = Allocator()
    allocator.malloc(4 * MIB)
    tree = allocator.snapshot()
    first, second = tree["segments"][0]["blocks"]
    first["size"] += 4096
    second["address"] += 4096
    second["size"] -= 4096
    assert replayed(tree).rule_misses == 1


def test_sizes_beyond_any_device_are_refused() -> None:
    blocks = [{"size": 2**47, "state": "active_allocated", "frames": []}]
    segment = {"total_size": 2**47, "blocks": blocks, "device": 0}
    tree = {"segments": [{**segment, "address": place * 2**47} for place in range(2**16)]}
    with pytest.raises(SnapshotError, match="more than any device"):
        replayed(tree)
