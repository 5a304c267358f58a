"""Counters, history and snapshots, compared with a real snapshot whose path is the first argument."""

import io
import pickle
import sys
import tempfile
import threading
from pathlib import Path

import torch

from virtual_check import check, raises

CUDA, MIB = "cuda", 1 << 20
REAL = pickle.loads(Path(sys.argv[1]).read_bytes())
memory = torch.cuda.memory


def entries():
    return memory._snapshot()["device_traces"][0]


def same_types(ours, real):
    assert ours.keys() == real.keys(), ours.keys() ^ real.keys()
    for key, value in real.items():
        assert type(ours[key]) is type(value), key


class Plain(pickle.Unpickler):
    """Refuses every global, as a careful reader does."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


@check
def nothing_is_recorded_before():
    x = torch.empty(MIB, device=CUDA)
    del x
    assert entries() == [] and not torch._C._cuda_isHistoryEnabled()
    assert torch.cuda.max_memory_allocated() == 4 * MIB  # peaks are kept all the same


@check
def counters():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    x = torch.empty(30 * MIB, dtype=torch.uint8, device=CUDA)
    y = torch.empty(100, dtype=torch.uint8, device=CUDA)
    assert torch.cuda.memory_allocated() - base == 30 * MIB + 512
    stats = torch.cuda.memory_stats()
    assert stats["requested_bytes.all.current"] == 30 * MIB + 100
    assert stats["reserved_bytes.large_pool.current"] == 30 * MIB
    assert stats["reserved_bytes.small_pool.current"] == torch.cuda.memory_reserved() - 30 * MIB
    del x
    assert torch.cuda.max_memory_allocated() - base == 30 * MIB + 512
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() - base == 512
    assert torch.cuda.memory_reserved() == 32 * MIB
    torch.cuda.empty_cache()
    assert (
        torch.cuda.memory_reserved() == torch.cuda.memory_stats()["segment.all.current"] * 2 * MIB
    )
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocated_bytes.all.allocated"] == 0
    del y


@check
def summary_and_device_memory():
    assert "Allocated memory" in torch.cuda.memory_summary()
    free, total = torch.cuda.mem_get_info()
    x = torch.empty(64 * MIB, dtype=torch.uint8, device=CUDA)
    assert torch.cuda.mem_get_info() == (free - 64 * MIB, total)
    assert torch.cuda.device_memory_used() == total - free + 64 * MIB
    assert torch.cuda.host_memory_stats()["num_host_alloc"] == 0
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
    assert x.is_cuda


@check
def raw_allocations():
    before = torch.cuda.memory_allocated()
    pointer = memory.caching_allocator_alloc(MIB)
    assert torch.cuda.memory_allocated() - before == MIB
    memory.caching_allocator_delete(pointer)
    assert torch.cuda.memory_allocated() == before


@check
def shape_of_a_real_snapshot():
    torch.cuda.empty_cache()
    memory._record_memory_history(max_entries=1000)
    x = torch.randn(3000, 3000, device=CUDA)
    y = x @ x
    del x
    ours = memory._snapshot()
    assert ours.keys() == REAL.keys()
    assert ours["allocator_settings"] == REAL["allocator_settings"]
    ours_segment, real_segment = ours["segments"][0], REAL["segments"][0]
    same_types(ours_segment, real_segment)
    same_types(ours_segment["blocks"][0], real_segment["blocks"][0])
    actions = {entry["action"]: entry for entry in ours["device_traces"][0]}
    real_actions = {e["action"]: e for e in REAL["device_traces"][0] if e["frames"]}
    for action in ("alloc", "free_requested", "free_completed", "segment_alloc"):
        entry = dict(actions[action])
        assert entry.pop("pool_id") == (0, 0)  # newer than the recording
        same_types(entry, real_actions[action])
        same_types(entry["frames"][0], real_actions[action]["frames"][0])
    state = [
        b["state"] for s in ours["segments"] for b in s["blocks"] if b["address"] == y.data_ptr()
    ]
    assert state == ["active_allocated"]


@check
def snapshots_are_plain_data():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "snapshot.pickle")
        memory._dump_snapshot(str(path))
        loaded = Plain(io.BytesIO(path.read_bytes())).load()
    assert loaded["segments"] and loaded["device_traces"][0]


@check
def blocks_tile_segments_and_carry_addresses():
    x = torch.randn(1000, 1000, device=CUDA)
    small = torch.ones(3, device=CUDA)
    snapshot = memory._snapshot()
    live = {}
    for segment in snapshot["segments"]:
        end = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == end
            end += block["size"]
            live[block["address"]] = block
        assert end == segment["address"] + segment["total_size"]
    for tensor in (x, small):
        block = live[tensor.untyped_storage().data_ptr()]
        assert block["state"] == "active_allocated"
        assert block["requested_size"] == tensor.untyped_storage().nbytes()
    held = sum(b["size"] for b in live.values() if b["state"] == "active_allocated")
    assert held == torch.cuda.memory_allocated()


@check
def the_ring_keeps_the_last():
    memory._record_memory_history(max_entries=4, clear_history=True)
    for size in (1, 2, 3):
        torch.empty(size, dtype=torch.uint8, device=CUDA)
    # each tensor makes three entries
    assert [entry["size"] for entry in entries()] == [2, 3, 3, 3]


@check
def contexts():
    for context, level in ((None, 0), ("state", 1), ("alloc", 2)):
        memory._record_memory_history(context=context, clear_history=True)
        x = torch.empty(MIB, device=CUDA)
        snapshot = memory._snapshot()
        blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
        (block,) = [b for b in blocks if b["address"] == x.data_ptr()]
        assert bool(block["frames"]) == (level >= 1)
        entry = [e for e in snapshot["device_traces"][0] if e["action"] == "alloc"][-1]
        assert ("frames" in entry) == (level >= 2)
    memory._record_memory_history("state", clear_history=True)
    x, y = torch.empty(1, device=CUDA), torch.empty(1, device=CUDA)
    assert len(entries()) == 1
    raises(RuntimeError, "expected context", lambda: memory._record_memory_history(context="no"))


@check
def metadata_belongs_to_the_thread():
    memory._record_memory_history(clear_history=True)
    memory._set_memory_metadata("here")
    other = threading.Thread(target=lambda: torch.empty(1, device=CUDA))
    other.start()
    other.join()
    x = torch.empty(2, device=CUDA)
    labels = [(e["size"], e["user_metadata"]) for e in entries() if e["action"] == "alloc"]
    assert labels == [(4, ""), (8, "here")]
    assert memory._get_memory_metadata() == "here"
    torch._C._cuda_setMemoryMetadata("")
    del x


@check
def stopping_clears():
    memory._record_memory_history(enabled=None)
    assert entries() == [] and not torch._C._cuda_isHistoryEnabled()


@check
def snapshots_note_themselves():
    memory._record_memory_history()
    memory._snapshot()
    assert entries()[-1]["action"] == "snapshot"
    memory._record_memory_history(enabled=None)


@check
def fraction_lowers_the_limit():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((reserved + 100.5 * MIB) / total)
    x = torch.empty(100 * MIB, dtype=torch.uint8, device=CUDA)
    raises(torch.OutOfMemoryError, "allowed", lambda: torch.empty(64 * MIB, device=CUDA))
    del x
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.get_per_process_memory_fraction() == 1.0
    torch.empty(200 * MIB, dtype=torch.uint8, device=CUDA)


@check
def known_values():
    import _virtual_under_test as virtual

    small, large = torch.ones(3, device=CUDA), torch.randn(1000, 1000, device=CUDA)
    loss = large.square().mean()
    assert virtual.is_known(small.sum()) and virtual.is_known(torch.ones(3))
    assert not virtual.is_known(large) and not virtual.is_known(loss)
    assert not virtual.is_known(loss * 2 + small.sum()) and loss.item() == 1.0
    copied = torch.zeros_like(loss)
    assert virtual.is_known(copied)
    copied.copy_(loss)
    assert not virtual.is_known(copied) and not virtual.is_known(copied.clone())
    small += loss
    assert not virtual.is_known(small)
    small.zero_()
    assert virtual.is_known(small)
    small.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert virtual.is_known(small.norm())
