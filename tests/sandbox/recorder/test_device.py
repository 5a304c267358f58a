"""What the recorder asks of the device, on the virtual GPU: peaks, caps, out-of-memory errors, snapshots."""

import json

import pytest

from headroom.evidence.ledger import build_ledger
from headroom.evidence.reading.history import Action
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.records.events import read_events

pytestmark = pytest.mark.torch

MIB = 2**20
VIRTUAL = {"device": "virtual", "card": "h200"}


def test_the_peak_is_the_highest_of_the_run_whatever_the_program_resets(record, torch_python):
    source = """
        import torch
        x = torch.empty(300 * 2**20, dtype=torch.uint8, device="cuda"); del x
        torch.cuda.reset_peak_memory_stats()
        y = torch.empty(100 * 2**20, dtype=torch.uint8, device="cuda")
        print(torch.cuda.max_memory_allocated() >> 20)
    """
    done = record(source, python=torch_python, **VIRTUAL)
    assert done.stdout == "100\n"
    assert done.record.peak_allocated_bytes == 300 * MIB
    assert done.record.peak_reserved_bytes >= 300 * MIB
    assert not done.record.peak_is_lower_bound
    assert done.record.device == "virtual"
    assert done.record.device_info.name == "NVIDIA H200"


def test_a_program_that_never_touches_cuda_has_no_device(record, torch_python):
    done = record("import torch; print(torch.cuda.is_available())", python=torch_python, **VIRTUAL)
    assert done.stdout == "True\n"
    assert done.record.device is None
    assert done.record.peak_allocated_bytes is None
    assert done.record.outcome == "completed"


@pytest.mark.parametrize("purpose", ["measure", "trace"])
def test_running_out_of_memory(record, torch_python, purpose):
    source = """
        import torch
        held = []
        def grow():
            for _ in range(10): held.append(torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda"))
        grow()
    """
    done = record(source, python=torch_python, capacity_bytes=300 * MIB, purpose=purpose, **VIRTUAL)
    run = done.record
    assert (run.outcome, run.exit_code) == ("oom", 1)
    assert run.exception.type == "torch.OutOfMemoryError"
    assert (run.exception.line, run.exception.function) == (5, "grow")
    assert run.oom.count == 1
    assert run.oom.live_bytes == 256 * MIB
    assert run.oom.requested_bytes == 64 * MIB
    assert run.peak_allocated_bytes == 320 * MIB
    assert run.peak_is_lower_bound
    assert run.device_info.capacity_bytes == 300 * MIB
    assert "OutOfMemoryError" in done.stderr
    assert "recorder" not in done.stderr and "virtual/" not in done.stderr
    if purpose == "trace":
        ledger = build_ledger(read_snapshot_file(done.folder / run.snapshot))
        assert ledger.live_allocated_bytes == 256 * MIB
        assert ledger.demand_bytes == 320 * MIB
        assert ledger.stacks[0].site is not None and ledger.stacks[0].site.line == 5
    else:
        assert run.snapshot is None


def test_an_out_of_memory_error_that_is_caught_is_recorded_all_the_same(record, torch_python):
    source = """
        import torch
        try: torch.empty(2**30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError: print("smaller")
        torch.empty(2**20, dtype=torch.uint8, device="cuda")
    """
    run = record(source, python=torch_python, capacity_bytes=300 * MIB, **VIRTUAL).record
    assert run.outcome == "completed"
    assert run.oom.count == 1


def test_an_out_of_memory_error_wrapped_in_another_is_still_one(record, torch_python):
    source = """
        import torch
        try: torch.empty(2**30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error: raise RuntimeError("training failed") from error
    """
    run = record(source, python=torch_python, capacity_bytes=300 * MIB, **VIRTUAL).record
    assert run.outcome == "oom"
    assert run.exception.type == "RuntimeError"


def test_a_killed_program_leaves_a_peak(record, torch_python):
    source = """
        import os, signal, torch
        w = torch.ones(2**20, device="cuda", requires_grad=True)
        optimizer = torch.optim.SGD([w], 0.1)
        for _ in range(3):
            w.sum().backward(); optimizer.step()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run = record(source, python=torch_python, **VIRTUAL).record
    assert (run.outcome, run.signal) == ("killed", "SIGKILL")
    assert run.updates == 3
    assert run.peak_allocated_bytes >= 8 * MIB
    assert run.peak_is_lower_bound
    assert list(run.sources) == [run.program.target]


def test_losses_are_null_where_nothing_is_computed(record, torch_python):
    source = """
        import torch
        model = torch.nn.Linear(4, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            model(torch.randn(3, 4, device="cuda")).sum().backward(); optimizer.step()
    """
    done = record(source, python=torch_python, **VIRTUAL)
    assert done.record.losses == (None, None)
    assert done.record.samples_per_update == (3, 3)
    assert json.loads(done.record.to_json())["losses"] == [None, None]
    assert done.record.virtual is not None and done.record.virtual.card == "h200"
    assert done.record.virtual.operations > 0


def test_a_trace_says_where_the_program_stood(record, torch_python):
    source = """
        import torch
        model = torch.nn.Linear(256, 256).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        kept = []
        for _ in range(4):
            kept.append(model(torch.randn(512, 256, device="cuda")))
            kept[-1].sum().backward(); optimizer.step()
    """
    done = record(source, python=torch_python, purpose="trace", **VIRTUAL)
    assert done.record.snapshot_complete
    ledger = build_ledger(
        read_snapshot_file(done.folder / "snapshot.pickle"), roots=(str(done.project),)
    )
    assert ledger.complete
    # One stack holds the four outputs, and the cuBLAS workspace of the first.
    outputs = ledger.stacks[0]
    size_bytes = 512 * 256 * 4
    births = {
        (block.born.update, block.born.call)
        for block in ledger.blocks
        if block.stack == outputs.id
        and block.allocated_bytes == size_bytes
        and block.born is not None
    }
    assert births == {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert outputs.site is not None and outputs.site.line == 7
    assert [growth.ticks for growth in ledger.growth if growth.stack == outputs.id] == [4]


def test_stacks_are_taken_of_allocations_only(record, torch_python):
    source = """
        import torch
        real = torch.cuda.memory._record_memory_history
        def shown(**options):
            print(options["stacks"], options["context"])
            real(**options)
        torch.cuda.memory._record_memory_history = shown
        torch.ones(5, device="cuda")
    """
    assert (
        record(source, python=torch_python, purpose="trace", **VIRTUAL).stdout == "python alloc\n"
    )


def test_a_measure_pass_records_no_history(record, torch_python):
    done = record("import torch; torch.ones(5, device='cuda')", python=torch_python, **VIRTUAL)
    assert done.record.snapshot is None
    assert not (done.folder / "snapshot.pickle").exists()


def test_every_line_of_a_run_is_a_known_event(record, torch_python):
    done = record(
        "import torch; torch.ones(5, device='cuda')",
        python=torch_python,
        purpose="trace",
        **VIRTUAL,
    )
    kinds = [event.kind for event in read_events((done.folder / "events.jsonl").read_text())]
    assert kinds[0] == "start" and kinds[-1] == "end"
    assert {"torch", "device", "peak", "snapshot", "virtual", "sources", "calls"} <= set(kinds)


def test_a_card_that_does_not_exist_is_said_before_the_program_runs(record, torch_python):
    from headroom.errors import PrerequisiteError

    with pytest.raises(PrerequisiteError, match="no card is called 'riva128'") as refused:
        record("import torch; print('ran')", python=torch_python, device="virtual", card="riva128")
    assert "--device cuda" in (refused.value.next_command or "")


def test_a_forked_child_leaves_the_snapshot_of_its_parent_alone(record, torch_python):
    source = """
        import os, torch
        try:
            held = [torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(10)]
        except torch.OutOfMemoryError:
            if os.fork():
                os.wait()
                raise
    """
    done = record(
        source, python=torch_python, purpose="trace", **{**VIRTUAL, "capacity_bytes": 300 * 2**20}
    )
    assert done.record.outcome == "oom"
    history = read_snapshot_file(done.folder / "snapshot.pickle").history_of(0)
    assert history.actions[-1] == Action.OOM
