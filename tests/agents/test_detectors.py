"""What the ledger shows by itself, on real captures: causes with their own bytes, and no cause without."""

from pathlib import Path

import pytest

from headroom.agents.detectors import detect
from headroom.evidence.account.account import DeviceFacts
from headroom.evidence.analysis import analyse
from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from headroom.units import GIB, MIB
from tests.evidence.reference_allocator import Allocator


def device_of(captures: Path, name: str) -> DeviceAnalysis:
    return analyse(read_snapshot_file(captures / f"{name}.pickle")).main


def test_activations_that_no_backward_frees_are_found(captures: Path) -> None:
    (cause,) = detect(device_of(captures, "eval_leak"))
    assert cause.kind == "kept_activations"
    assert cause.file is not None
    assert cause.file.endswith("capture.py")
    assert GIB < cause.peak_bytes < 2 * GIB


def test_free_memory_in_pieces_too_small_is_found(captures: Path) -> None:
    (cause,) = detect(device_of(captures, "oom_observer"))
    assert cause.kind == "fragmentation"
    assert "32.00 MiB" in cause.summary
    assert "12.00 MiB" in cause.summary


@pytest.mark.parametrize("name", ["full", "labels", "late_start", "streams", "cudagraph"])
def test_training_as_it_should_be_has_no_cause(captures: Path, name: str) -> None:
    assert detect(device_of(captures, name)) == ()


def growing(updates: int, rest_from: int) -> DeviceAnalysis:
    """A line that keeps 4 MiB more at each update until it comes to rest."""
    allocator = Allocator()
    allocator.frames = [{"filename": "/srv/job/train.py", "line": 9, "name": "log"}]
    for update in range(updates):
        allocator.label = f"hr:u={update},c={update}"
        piece = allocator.malloc(4 * MIB)
        if update >= rest_from:
            allocator.free(piece)
    return analyse(parse_snapshot(allocator.snapshot())).main


def test_growth_is_a_cause_with_its_line() -> None:
    (cause,) = detect(growing(12, rest_from=12))
    assert (cause.kind, cause.file, cause.line) == ("growth", "/srv/job/train.py", 9)
    assert cause.peak_bytes == 48 * MIB
    assert "4.00 MiB more with every update" in cause.summary


def test_memory_outside_of_torch_is_a_cause_when_it_is_a_good_part(captures: Path) -> None:
    snapshot = read_snapshot_file(captures / "oom_observer.pickle")
    failure = analyse(snapshot).main.ledger.failure
    assert failure is not None
    small = failure.device_free_bytes + GIB
    for total, found in ((small, False), (2 * small, True)):
        device = analyse(snapshot, facts=DeviceFacts(total_bytes=total)).main
        assert ("outside_torch" in {cause.kind for cause in detect(device)}) == found
