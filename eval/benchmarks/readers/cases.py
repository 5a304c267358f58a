"""Snapshots with a known peak: simulated ones, and captures of an H200 with torch's own counters beside them.

The truth is the peak *within the recorded history*, for that is all a reader can know: the highest of the state just
before the oldest entry and the states after each entry. Run as a program, this writes one large snapshot; it is a
process of its own so that the benchmark itself stays small (a child process starts with its parent's resident size).
"""

import importlib.util
import json
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from headroom.eval.benchmarks.common import ROOT

CAPTURES: Final = ROOT / "tests" / "recordings" / "captures"
ENTRIES: Final = 10_000
"""Entries of a simulated case before its ring, if any, drops some."""

_PROTOCOL: Final = 4
"""What `torch.cuda.memory._dump_snapshot` writes."""

_SHAPES: Final[dict[str, dict[str, Any]]] = {
    "complete": {"preexisting": 0},
    "100 blocks before recording": {},
    "late: 250 blocks before recording": {"preexisting": 250},
    "ring of 5000": {"ring": 5000},
    "ring of 3000": {"ring": 3000},
    "ring of 2000": {"ring": 2000},
    "ring of 500": {"ring": 500},
    "two devices": {"devices": 2},
    "expandable segments": {"expandable": True},
    "private pool": {"pools": True},
    "two devices, ring of 3000, expandable, private pool": {
        "devices": 2,
        "ring": 3000,
        "expandable": True,
        "pools": True,
    },
}

_WHOLE_OF: Final = {"ring": "full", "alloc_ctx": "full"}
"""Captures whose ring wrapped, and the capture of the same run that holds all of its entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A snapshot on disk, and the peak of the device that a reader is asked about."""

    name: str
    snapshot: Path
    device: int
    requested_bytes: int
    allocated_bytes: int


def generator() -> ModuleType:
    """The simulation of the tests, which live outside the installed package.

    Raises:
        SystemExit: This is not a checkout.
    """
    path = ROOT / "tests" / "evidence" / "make_snapshot.py"
    if not path.is_file():
        raise SystemExit(f"{path} is missing: run this benchmark in a checkout of the repository.")
    spec = importlib.util.spec_from_file_location("headroom_make_snapshot", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_snapshot(entries: int, path: Path) -> None:
    """Simulate a history of that many entries, 40 frames a stack, and pickle it as torch does."""
    simulation = _simulate(generator(), {"entries": entries})
    _dump(simulation, path)


def synthetic_cases(folder: Path) -> Iterator[Case]:
    """Simulate each case, with and without an out-of-memory error at its end."""
    module = generator()
    for shape, words in _SHAPES.items():
        for oom in (False, True):
            simulation = _simulate(module, {"entries": ENTRIES, "oom": oom, **words})
            name = f"{shape}, OOM" if oom else shape
            path = folder / f"{name.replace(' ', '_').replace(',', '').replace(':', '')}.pickle"
            _dump(simulation, path)
            ring = words.get("ring", 0)
            peaks = [window_peaks(device, ring) for device in simulation.devices]
            device, (requested, allocated) = max(enumerate(peaks), key=lambda item: item[1][1])
            yield Case(
                name=name,
                snapshot=path,
                device=device,
                requested_bytes=requested,
                allocated_bytes=allocated,
            )


def captures() -> Iterator[Case]:
    """The captures; their truth is what torch counted on the device."""
    for path in sorted(CAPTURES.glob("*.pickle")):
        truth = _truth_of(path.stem)
        requested, allocated = truth["requested_peak"], truth["max_memory_allocated"]
        if path.stem in _WHOLE_OF:
            requested, allocated = _end_of_history(_WHOLE_OF[path.stem], len(_entries(path.stem)))
        yield Case(
            name=path.stem,
            snapshot=path,
            device=0,
            requested_bytes=requested,
            allocated_bytes=allocated,
        )


def window_peaks(device: Any, ring: int) -> tuple[int, int]:
    """Requested and allocated peak of the entries that a ring of that length kept (0: of all).

    `device` is the simulation's: its trace, and live bytes after each entry.
    """
    start = max(0, len(device.trace) - ring) - 1 if ring else 0
    # The simulation takes a block off after its `free_requested`, torch.cuda.memory_allocated at it.
    if device.trace[max(start, 0)]["action"] == "free_requested":
        start += 1
    first = max(start, 0)
    return max(device.requested_after[first:]), max(device.rounded_after[first:])


def forward_peaks(entries: Sequence[dict[str, Any]], kept: int) -> tuple[int, int]:
    """Requested and allocated peak of the last `kept` entries of a history that starts from nothing.

    Allocated bytes are requests rounded up to 512 bytes: right only where no block kept an unsplit remainder.
    """
    live, after = [0, 0], [(0, 0)]
    for entry in entries:
        sign = {"alloc": 1, "free_requested": -1}.get(entry["action"], 0)
        for place, size in enumerate((entry["size"], max(512, -(-entry["size"] // 512) * 512))):
            live[place] += sign * size
        after.append((live[0], live[1]))
    window = after[-(kept + 1) :]
    return max(requested for requested, _ in window), max(allocated for _, allocated in window)


def _end_of_history(whole: str, kept: int) -> tuple[int, int]:
    entries, truth = _entries(whole), _truth_of(whole)
    counted = (truth["requested_peak"], truth["max_memory_allocated"])
    # The sums are trusted for the window only because they equal torch's counters for the whole.
    if forward_peaks(entries, len(entries)) != counted:
        raise SystemExit(f"the entries of the capture {whole} do not add up to torch's counters")
    return forward_peaks(entries, kept)


def _entries(capture: str) -> list[dict[str, Any]]:
    with (CAPTURES / f"{capture}.pickle").open("rb") as file:
        entries: list[dict[str, Any]] = pickle.load(file)["device_traces"][0]
    return entries


def _truth_of(capture: str) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((CAPTURES / f"{capture}.truth.json").read_text())
    return truth


def _simulate(module: ModuleType, words: dict[str, Any]) -> Any:
    simulation = module.Simulation(module.Options(**words))
    simulation.run()
    return simulation


def _dump(simulation: Any, path: Path) -> None:
    """Pickle the snapshot, with the keys of a segment that torch writes and the simulation leaves out."""
    snapshot, _ = simulation.result()
    for segment in snapshot["segments"]:
        used = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
        segment["allocated_size"] = segment["active_size"] = sum(block["size"] for block in used)
        segment["requested_size"] = sum(block["requested_size"] for block in used)
    snapshot["external_annotations"] = []
    with path.open("wb") as file:
        pickle.dump(snapshot, file, protocol=_PROTOCOL)


if __name__ == "__main__":
    write_snapshot(int(sys.argv[1]), Path(sys.argv[2]))
