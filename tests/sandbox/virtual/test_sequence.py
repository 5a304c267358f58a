"""Every allocation and every free of a program, in order, as an H200 made them, to the last allocation.

What is freed after it depends on the order in which Python clears a module.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECORDING = Path(__file__).resolve().parents[2] / "recordings" / "h200_meters.json"


@pytest.mark.torch
def test_the_sequence_is_the_devices(run_virtual: Callable[..., Any]) -> None:
    measured = json.loads(RECORDING.read_text())["bytes"]
    done = run_virtual("virtual_sequence.py", "meters.py")
    assert done.code == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("SEQUENCE ")]
    assert json.loads(lines[0].removeprefix("SEQUENCE "))[: len(measured)] == measured
