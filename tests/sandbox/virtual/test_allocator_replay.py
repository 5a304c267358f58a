"""The allocator, fed with the requests of real H200 histories, does what the real one did."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headroom.sandbox.virtual.allocator import CachingAllocator
from headroom.sandbox.virtual.blocks import Block
from headroom.sandbox.virtual.snapshot import snapshot

NAMES = ("full", "labels", "all_stacks", "eval_leak", "fragment", "streams")


def replayed(trace: list[dict[str, Any]]) -> CachingAllocator:
    allocator = CachingAllocator(1 << 60)
    allocator.history.configure("all", None, 1 << 40)
    live: dict[int, Block] = {}
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["addr"]] = allocator.malloc(entry["size"], stream=entry["stream"])
        elif entry["action"] == "free_completed":
            allocator.free(live.pop(entry["addr"]))
    return allocator


@pytest.mark.parametrize("name", NAMES)
def test_segments_and_peaks_are_the_real_ones(
    name: str, captures: Path, capture_truth: Callable[[str], Any]
) -> None:
    recorded = pickle.loads((captures / f"{name}.pickle").read_bytes())
    trace, truth = recorded["device_traces"][0], capture_truth(name)

    allocator = replayed(trace)

    taken = [e.size_bytes for e in allocator.history.entries() if e.action == "segment_alloc"]
    assert taken == [e["size"] for e in trace if e["action"] == "segment_alloc"]
    assert allocator.stats.peak("allocated_bytes") == truth["max_memory_allocated"]
    assert allocator.stats.peak("reserved_bytes") == truth["max_memory_reserved"]
    assert allocator.stats.peak("requested_bytes") == truth["requested_peak"]
    assert allocator.stats.current("allocated_bytes") == truth["memory_allocated"]


@pytest.mark.parametrize("name", NAMES)
def test_blocks_at_the_end_are_the_real_ones(name: str, captures: Path) -> None:
    recorded = pickle.loads((captures / f"{name}.pickle").read_bytes())

    ours = snapshot(replayed(recorded["device_traces"][0]), lambda stack: [])

    assert _blocks(ours) == _blocks(recorded)


def _blocks(snapshot: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Pool, size and state of every block, in no order: addresses are not ours to choose."""
    return sorted(
        (segment["segment_type"], block["size"], block["state"])
        for segment in snapshot["segments"]
        for block in segment["blocks"]
    )
