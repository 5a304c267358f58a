"""The recorder and the sandbox on a real device. `make test PYTEST='-m gpu'` where there is one."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from headroom.evidence.ledger import build_ledger
from headroom.evidence.reading.history import Action
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.snapshots.reader import read_analysis
from headroom.snapshots.recorded import device_facts

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

MIB = 2**20
TRAIN = """
    import torch, torch.nn as nn
    torch.manual_seed(3)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(8):
        x = torch.randn(2048, 1024, device="cuda")
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))
    print("PEAK", torch.cuda.max_memory_allocated())
"""


def floats(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"^\d+\.\d+(?:e-?\d+)?$", text, re.MULTILINE)]


def test_cuda_is_not_initialised_before_the_program_does_it(record, torch_python):
    done = record("import torch; print(torch.cuda.is_initialized())", python=torch_python)
    assert done.stdout == "False\n"
    assert done.record.device is None


def test_a_forked_process_can_still_initialise_cuda(record, torch_python):
    source = """
        import os, torch
        pid = os.fork()
        if pid == 0:
            torch.ones(1, device="cuda"); os._exit(0)
        print(os.waitpid(pid, 0)[1])
    """
    assert record(source, python=torch_python).stdout == "0\n"


def test_recording_changes_neither_peak_nor_losses(record, torch_python, project: Path):
    measured = record(TRAIN, python=torch_python)
    plain = subprocess.run(
        [torch_python, str(project / "program.py")], capture_output=True, text=True, check=True
    ).stdout
    traced = record(TRAIN, python=torch_python, purpose="trace")
    assert measured.stdout == plain
    assert traced.stdout == plain
    peak_bytes = int(plain.split("PEAK ")[1])
    assert measured.record.peak_allocated_bytes == peak_bytes
    assert traced.record.peak_allocated_bytes == peak_bytes
    assert list(measured.record.losses) == floats(plain)
    assert measured.record.device == "cuda"
    assert measured.record.versions.driver is not None
    assert all(seconds > 0 for seconds in measured.record.step_seconds[1:])


def test_the_ledger_of_a_trace_equals_the_devices_own_counters(record, torch_python):
    done = record(TRAIN, python=torch_python, purpose="trace")
    ledger = build_ledger(
        read_snapshot_file(done.folder / "snapshot.pickle"), roots=(str(done.project),)
    )
    assert ledger.complete
    assert ledger.peak.allocated_bytes == done.record.peak_allocated_bytes
    assert ledger.peak_reserved_bytes == done.record.peak_reserved_bytes
    assert ledger.peak.tick.update > 0


@pytest.mark.parametrize("purpose", ["measure", "trace"])
def test_running_out_of_memory_under_a_cap(record, torch_python, purpose):
    source = """
        import torch
        held = []
        for _ in range(10): held.append(torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda"))
    """
    done = record(source, python=torch_python, capacity_bytes=300 * MIB, purpose=purpose)
    run = done.record
    assert run.outcome == "oom"
    assert (run.oom.live_bytes, run.oom.requested_bytes) == (256 * MIB, 64 * MIB)
    assert run.peak_allocated_bytes == 320 * MIB and run.peak_is_lower_bound
    if purpose == "trace":
        ledger = build_ledger(
            read_snapshot_file(done.folder / "snapshot.pickle"), roots=(str(done.project),)
        )
        assert ledger.demand_bytes == 320 * MIB


def test_mixed_precision_losses_are_unscaled(record, torch_python):
    source = """
        import torch
        model = torch.nn.Linear(64, 64).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler()
        for _ in range(4):
            with torch.autocast("cuda", torch.float16):
                loss = model(torch.ones(8, 64, device="cuda")).float().square().mean()
            scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
            print(repr(loss.item()))
    """
    done = record(source, python=torch_python)
    assert list(done.record.losses) == floats(done.stdout)
    assert json.loads(done.record.to_json())["device"] == "cuda"


def test_a_free_repeats_the_stack_of_its_allocation(record, torch_python):
    source = """
        import torch
        for _ in range(40):
            x = torch.empty(2**20, device="cuda")
            del x
    """
    done = record(source, python=torch_python, purpose="trace")
    snapshot = read_snapshot_file(done.folder / "snapshot.pickle")
    history = snapshot.history_of(0)
    lines = {
        (action, snapshot.stacks.frames(number)[0].line)
        for action, number in zip(history.actions, history.stacks, strict=True)
        if action in (Action.ALLOC, Action.FREE_COMPLETED)
    }
    assert lines == {(Action.ALLOC, 4), (Action.FREE_COMPLETED, 4)}


def test_what_is_not_torchs_is_measured_and_the_books_close(record, torch_python: str):
    done = record(TRAIN, python=torch_python, purpose="trace")
    outside = done.record.non_torch_bytes
    assert outside is not None
    # A CUDA context alone takes some hundred MiB.
    assert 100 * MIB < outside < 20_000 * MIB
    analysis = read_analysis(done.folder / "snapshot.pickle", facts=device_facts(done.record))
    sheet = analysis.main.ledger.end_balance
    assert sheet is not None
    assert sheet.device_free_bytes is not None
    assert sheet.device_free_bytes >= 0
    total = sheet.reserved_bytes + outside + sheet.device_free_bytes
    assert total == sheet.device_total_bytes == done.record.device_info.total_memory_bytes
