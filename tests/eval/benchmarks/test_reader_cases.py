"""The truth that readers are held against is itself right."""

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headroom.eval.benchmarks.readers.cases import (
    captures,
    forward_peaks,
    synthetic_cases,
    window_peaks,
    write_snapshot,
)
from headroom.evidence.account.replay import replay_device
from headroom.evidence.reading.safe_pickle import read_snapshot_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cases")


def test_captures_are_held_against_torchs_own_counters(capture_truth: Any) -> None:
    cases = {case.name: case for case in captures()}
    assert len(cases) == 13
    for name in cases.keys() - {"ring", "alloc_ctx"}:
        truth = capture_truth(name)
        assert cases[name].requested_bytes == truth["requested_peak"]
        assert cases[name].allocated_bytes == truth["max_memory_allocated"]


@pytest.mark.parametrize("name", ["ring", "alloc_ctx"])
def test_a_ring_is_held_against_what_its_window_holds(name: str) -> None:
    # Not against the run's peak, which the ring has dropped; the figures are of the whole capture's last 600 entries.
    case = next(case for case in captures() if case.name == name)
    assert (case.requested_bytes, case.allocated_bytes) == (330_887_200, 330_888_704)


def test_the_state_before_the_window_counts() -> None:
    entries = [
        {"action": "alloc", "size": 1000},
        {"action": "free_requested", "size": 1000},
        {"action": "free_completed", "size": 1000},
    ]
    assert forward_peaks(entries, 2) == (1000, 1024)
    assert forward_peaks(entries, 1) == (0, 0)


def test_a_block_whose_free_was_requested_before_the_window_is_not_live_in_it() -> None:
    actions = ("alloc", "free_requested", "free_completed", "snapshot")
    device = SimpleNamespace(
        trace=[{"action": action} for action in actions],
        requested_after=[1000, 1000, 0, 0],
        rounded_after=[1024, 1024, 0, 0],
    )
    assert window_peaks(device, 0) == (1000, 1024)
    assert window_peaks(device, 3) == (1000, 1024)  # the state before the first kept entry counts
    assert window_peaks(device, 2) == (0, 0)


def test_simulated_truths_equal_the_replay(folder: Path) -> None:
    names = set()
    for case in synthetic_cases(folder):
        replay = replay_device(read_snapshot_file(case.snapshot), case.device)
        # Requested bytes of the replay are counted until `free_completed`, so only the allocated ones compare always.
        assert replay.peak_allocated_bytes == case.allocated_bytes, case.name
        names.add(case.name)
        case.snapshot.unlink()
    assert {"complete", "complete, OOM", "ring of 500", "two devices, OOM"} <= names


def test_large_snapshots_have_the_keys_that_torch_writes(captures: Path, tmp_path: Path) -> None:
    write_snapshot(2000, tmp_path / "made.pickle")
    with (tmp_path / "made.pickle").open("rb") as file:
        made = pickle.load(file)
    with (captures / "full.pickle").open("rb") as file:
        real = pickle.load(file)
    assert made.keys() == real.keys()
    assert made["segments"][0].keys() == real["segments"][0].keys()
    alloc = [
        next(entry for entry in snapshot["device_traces"][0] if entry["action"] == "alloc")
        for snapshot in (made, real)
    ]
    # torch 2.11, which wrote the capture, had no `pool_id` yet.
    assert alloc[0].keys() == alloc[1].keys() | {"pool_id"}
    assert len(made["device_traces"][0]) >= 2000
    assert len(alloc[0]["frames"]) == 40
