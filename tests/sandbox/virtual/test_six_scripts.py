"""Six unmodified training scripts against what an H200 measured, peak and allocation by allocation."""

import json
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
MEASURED = json.loads((FOLDER.parents[1] / "recordings" / "h200_peaks.json").read_text())["peaks"]
TRACED_BYTES = 1 << 20
RESERVED_WITHIN = {"s3_resnet_sgd": 0.05}
"""cuDNN's workspaces are estimated; they move what is reserved."""

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@cache
def traces() -> Any:
    """Sizes of large allocations on the H200, by script."""
    return json.loads((FOLDER / "h200_traces.json").read_text())


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_the_peak_is_the_measured_one(
    name: str, run_virtual: Callable[..., Any], tmp_path: Path
) -> None:
    kept = tmp_path / "snapshot.pickle"
    done = run_virtual(f"h200/{name}.py", options=("--history", "--keep", str(kept)))
    assert done.code == 0, done.stderr[-3000:]

    allocated, reserved = MEASURED[name]
    peaks = done.known["peaks"]
    assert peaks["allocated_bytes"] == pytest.approx(allocated, rel=0.001)
    assert peaks["reserved_bytes"] == pytest.approx(reserved, rel=RESERVED_WITHIN.get(name, 0.005))
    assert done.known["coverage"]["unsupported"] == {}
    if name in traces():
        trace = pickle.loads(kept.read_bytes())["device_traces"][0]
        assert _large(trace) == traces()[name]


def _large(trace: list[dict[str, Any]]) -> list[int]:
    sizes = [entry["size"] for entry in trace if entry["action"] == "alloc"]
    return [size for size in sizes if size >= TRACED_BYTES]
