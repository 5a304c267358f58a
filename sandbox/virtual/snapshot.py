"""The allocator's state in the shape of `torch.cuda.memory._snapshot()`.

Keys and values were compared with snapshots of an H200 (torch 2.11); `pool_id` is torch 2.13's. Only dict, list, tuple,
str, int, float and bool occur, so that a reader may refuse every pickle global.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .allocator import CachingAllocator
from .blocks import Block, Segment, Stack
from .history import TraceEntry

DEFAULT_POOL = (0, 0)
FramesOf = Callable[[Stack], list[dict[str, Any]]]
"""Turns a stack into torch's list of frames, innermost first."""


def snapshot(allocator: CachingAllocator, frames_of: FramesOf) -> dict[str, Any]:
    """Everything the allocator knows now, with the events in its ring, oldest first."""
    with allocator.lock:
        entries = allocator.history.entries()
        segments = [_segment(segment, frames_of) for segment in allocator.segments()]
        # torch adds this entry after it has copied the trace: the next snapshot shows it
        allocator.history.record("snapshot", 0, allocator.stats.current("active_bytes"), 0, None)
    return {
        "segments": segments,
        "device_traces": [[_entry(entry, frames_of) for entry in entries]],
        "allocator_settings": _settings(),
        "external_annotations": [],
    }


def _segment(segment: Segment, frames_of: FramesOf) -> dict[str, Any]:
    blocks = list(segment.blocks())
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.size_bytes,
        "allocated_size": sum(block.size_bytes for block in blocks if block.allocated),
        "active_size": sum(block.size_bytes for block in blocks if block.active),
        "requested_size": sum(block.requested_bytes for block in blocks if block.active),
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "segment_pool_id": DEFAULT_POOL,
        "is_expandable": False,
        "frames": frames_of(segment.stack) if segment.stack is not None else [],
        "blocks": [_block(block, frames_of) for block in blocks],
    }


def _block(block: Block, frames_of: FramesOf) -> dict[str, Any]:
    state = "active_pending_free" if block.active else "inactive"
    if block.allocated:
        state = "active_allocated"
    return {
        "address": block.address,
        "size": block.size_bytes,
        "requested_size": block.requested_bytes,
        "state": state,
        "frames": frames_of(block.stack) if block.stack is not None else [],
    }


def _entry(entry: TraceEntry, frames_of: FramesOf) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "action": entry.action,
        "device_free" if entry.action == "oom" else "addr": entry.address,
        "size": entry.size_bytes,
        "stream": entry.stream,
        "time_us": entry.time_us,
        "compile_context": "N/A",
        "user_metadata": entry.user_metadata,
        "pool_id": DEFAULT_POOL,
    }
    if entry.stack is not None:
        shown["frames"] = frames_of(entry.stack)
    return shown


def _settings() -> dict[str, Any]:
    return {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "max_split_size": -1,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": False,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
    }
