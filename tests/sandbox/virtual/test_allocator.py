"""The allocator's rules one by one, against values worked out from CUDACachingAllocator.cpp by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.sandbox.virtual.allocator import (
    CachingAllocator,
    OutOfMemory,
    round_size,
    segment_size,
)
from headroom.sandbox.virtual.blocks import Block

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.fixture
def allocator() -> CachingAllocator:
    made = CachingAllocator(GIB)
    made.history.configure("all", None, 10_000)
    return made


def actions(allocator: CachingAllocator) -> list[tuple[str, int]]:
    return [(entry.action, entry.size_bytes) for entry in allocator.history.entries()]


@pytest.mark.parametrize(
    ("asked", "given"),
    [(1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512), (5 * MIB, 5 * MIB)],
)
def test_sizes_are_rounded_to_512(asked: int, given: int, allocator: CachingAllocator) -> None:
    assert round_size(asked) == given
    assert allocator.malloc(asked).size_bytes == given


@pytest.mark.parametrize(
    ("block", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (64 * MIB, 64 * MIB),
    ],
)
def test_segments_by_block_size(block: int, segment: int, allocator: CachingAllocator) -> None:
    assert segment_size(block) == segment
    allocator.malloc(block)
    assert allocator.reserved_bytes == segment


def test_small_and_large_pools_do_not_mix(allocator: CachingAllocator) -> None:
    allocator.free(allocator.malloc(20 * MIB))
    allocator.malloc(KIB)
    assert allocator.reserved_bytes == 22 * MIB


def test_a_small_block_is_split_down_to_512(allocator: CachingAllocator) -> None:
    first = allocator.malloc(MIB)
    second = allocator.malloc(MIB - 512)
    third = allocator.malloc(512)
    assert allocator.reserved_bytes == 2 * MIB
    assert (second.address - first.address, third.address - second.address) == (MIB, MIB - 512)


@pytest.mark.parametrize(("left", "split"), [(MIB, False), (MIB + 512, True)])
def test_a_large_block_keeps_a_rest_of_up_to_one_mebibyte(
    left: int, split: bool, allocator: CachingAllocator
) -> None:
    allocator.free(allocator.malloc(32 * MIB))
    block = allocator.malloc(32 * MIB - left)
    assert block.size_bytes == (32 * MIB - left if split else 32 * MIB)
    assert allocator.stats.current("allocated_bytes") == block.size_bytes


def test_best_fit_and_the_lowest_address_among_equals(allocator: CachingAllocator) -> None:
    sizes = (30 * MIB, 12 * MIB, 12 * MIB, 40 * MIB)
    blocks = [allocator.malloc(size) for size in sizes]
    for block in blocks:
        allocator.free(block)
    lower = min(blocks[1].address, blocks[2].address)
    assert allocator.malloc(11 * MIB + MIB // 2).address == lower
    assert allocator.malloc(31 * MIB).address == blocks[3].address


def test_addresses_fall_as_on_a_real_device(allocator: CachingAllocator) -> None:
    first, second = allocator.malloc(20 * MIB), allocator.malloc(20 * MIB)
    assert second.address == first.address - 20 * MIB
    allocator.free(first)
    allocator.release_cached_blocks()
    assert allocator.malloc(20 * MIB).address == first.address


def test_neighbours_are_merged(allocator: CachingAllocator) -> None:
    blocks = [allocator.malloc(5 * MIB) for _ in range(4)]  # tile one segment of 20 MiB
    for index in (1, 3):
        allocator.free(blocks[index])
    assert allocator.stats.current("inactive_split") == 2
    assert allocator.stats.current("inactive_split_bytes") == 10 * MIB
    allocator.free(blocks[2])
    assert allocator.stats.current("inactive_split") == 1
    assert allocator.stats.current("inactive_split_bytes") == 15 * MIB
    allocator.free(blocks[0])
    assert allocator.stats.current("inactive_split_bytes") == 0
    assert allocator.malloc(20 * MIB).address == blocks[0].address
    assert allocator.reserved_bytes == 20 * MIB


def test_streams_have_their_own_blocks(allocator: CachingAllocator) -> None:
    allocator.free(allocator.malloc(20 * MIB, stream=7))
    allocator.malloc(20 * MIB, stream=0)
    assert allocator.reserved_bytes == 40 * MIB
    allocator.malloc(20 * MIB, stream=7)
    assert allocator.reserved_bytes == 40 * MIB


def test_a_block_used_on_another_stream_waits(allocator: CachingAllocator) -> None:
    block = allocator.malloc(20 * MIB)
    allocator.record_stream(block, 3)
    allocator.free(block)
    assert actions(allocator)[-1] == ("free_requested", 20 * MIB)
    assert allocator.stats.current("active_bytes") == 20 * MIB
    assert allocator.stats.current("allocated_bytes") == 0
    assert allocator.malloc(20 * MIB) is block  # done by the next request
    assert allocator.reserved_bytes == 20 * MIB


def test_empty_cache_keeps_segments_in_use(allocator: CachingAllocator) -> None:
    kept = allocator.malloc(5 * MIB)
    allocator.free(allocator.malloc(5 * MIB))
    allocator.free(allocator.malloc(64 * MIB))
    allocator.free(allocator.malloc(KIB))
    allocator.release_cached_blocks()
    assert allocator.reserved_bytes == 20 * MIB and kept.active
    assert actions(allocator)[-2:] == [("segment_free", 64 * MIB), ("segment_free", 2 * MIB)]


def test_cached_segments_go_before_a_request_fails(allocator: CachingAllocator) -> None:
    for block in [allocator.malloc(450 * MIB), allocator.malloc(450 * MIB)]:
        allocator.free(block)
    allocator.malloc(600 * MIB)
    assert allocator.reserved_bytes == 600 * MIB
    assert allocator.stats.num_alloc_retries == 1 and allocator.stats.num_ooms == 0
    assert [action for action, _ in actions(allocator)[-3:]] == [
        "segment_free",
        "segment_alloc",
        "alloc",
    ]


def test_out_of_memory_names_what_torch_names(allocator: CachingAllocator) -> None:
    allocator.used_elsewhere_bytes = 24 * MIB
    held = allocator.malloc(900 * MIB)
    with pytest.raises(OutOfMemory) as refused:
        allocator.malloc(101 * MIB)
    failure = refused.value
    assert (failure.requested_bytes, failure.segment_bytes) == (101 * MIB, 102 * MIB)
    assert (failure.free_bytes, failure.allowed_bytes) == (100 * MIB, None)
    assert (failure.allocated_bytes, failure.reserved_bytes) == (held.size_bytes, 900 * MIB)
    last = allocator.history.entries()[-1]
    assert (last.action, last.address, last.size_bytes) == ("oom", 100 * MIB, 101 * MIB)
    assert allocator.stats.num_ooms == 1
    allocator.malloc(100 * MIB)


def test_the_limit_is_on_reserved_bytes(allocator: CachingAllocator) -> None:
    allocator.limit_bytes = 40 * MIB
    allocator.malloc(5 * MIB)  # takes 20 MiB
    allocator.malloc(20 * MIB)
    with pytest.raises(OutOfMemory) as refused:
        allocator.malloc(KIB)
    assert refused.value.allowed_bytes == 40 * MIB
    assert allocator.malloc(15 * MIB).size_bytes == 15 * MIB  # from what is reserved


def test_the_ring_forgets_the_oldest(allocator: CachingAllocator) -> None:
    allocator.history.configure("all", None, 3, clear=True)
    for size in (1, 2, 3):
        allocator.malloc(size)
    assert [size for _, size in actions(allocator)] == [1, 2, 3]
    allocator.malloc(4)
    assert [size for _, size in actions(allocator)] == [2, 3, 4]
    allocator.history.configure("all", None, 2)
    assert [size for _, size in actions(allocator)] == [3, 4]
    allocator.history.configure(None, None, 10)
    allocator.malloc(5)
    assert actions(allocator) == []


def test_skipped_actions_are_not_recorded(allocator: CachingAllocator) -> None:
    allocator.history.configure("all", None, 10, skipped_actions=["free_requested"])
    allocator.free(allocator.malloc(1))
    assert [action for action, _ in actions(allocator)][-2:] == ["alloc", "free_completed"]


def test_a_request_needs_a_byte(allocator: CachingAllocator) -> None:
    with pytest.raises(ValueError, match="at least one byte"):
        allocator.malloc(0)


SIZES = st.one_of(st.integers(1, 4 * KIB), st.integers(1, 3 * MIB), st.integers(1, 60 * MIB))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), SIZES, st.integers(0, 1)),
        st.tuples(st.just("free"), st.integers(0, 10_000), st.just(0)),
        st.tuples(st.just("share"), st.integers(0, 10_000), st.just(9)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_counters_equal_the_blocks_after_any_history(steps: list[tuple[str, int, int]]) -> None:
    allocator = CachingAllocator(GIB)
    live: list[Block] = []
    for action, number, stream in steps:
        if action == "malloc":
            try:
                live.append(allocator.malloc(number, stream=stream))
            except OutOfMemory:
                assert allocator.reserved_bytes + segment_size(round_size(number)) > GIB
        elif action == "empty":
            allocator.release_cached_blocks()
        elif live and action == "free":
            allocator.free(live.pop(number % len(live)))
        elif live:
            allocator.record_stream(live[number % len(live)], stream)
        _check(allocator, live)


def _check(allocator: CachingAllocator, live: list[Block]) -> None:
    stats = allocator.stats
    blocks = [block for segment in allocator.segments() for block in segment.blocks()]
    for segment in allocator.segments():
        end = segment.address
        free_before = False
        for block in segment.blocks():
            assert block.address == end and block.size_bytes > 0
            assert not (free_before and not block.active), "free neighbours were not merged"
            free_before = not block.active
            end += block.size_bytes
        assert end == segment.address + segment.size_bytes
    held = [block for block in blocks if block.allocated]
    active = [block for block in blocks if block.active]
    idle = [block for block in blocks if not block.active and block.is_split]
    assert {id(block) for block in held} == {id(block) for block in live}
    assert stats.current("allocation") == len(held)
    assert stats.current("active") == len(active)
    assert stats.current("inactive_split") == len(idle)
    assert stats.current("segment") == len(list(allocator.segments()))
    assert stats.current("allocated_bytes") == sum(block.size_bytes for block in held)
    assert stats.current("active_bytes") == sum(block.size_bytes for block in active)
    assert stats.current("requested_bytes") == sum(block.requested_bytes for block in active)
    assert stats.current("inactive_split_bytes") == sum(block.size_bytes for block in idle)
    assert stats.current("reserved_bytes") == sum(s.size_bytes for s in allocator.segments())
    assert stats.peak("reserved_bytes") <= GIB
