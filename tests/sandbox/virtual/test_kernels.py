"""Buffers inside kernels against those that the allocator of an H200 saw."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parent / "h200_kernels.json"
ROWS = json.loads(FILE.read_text())["rows"]


@pytest.fixture(scope="module")
def planned(run_plain: Callable[..., Any]) -> list[list[int]]:
    """Planned sizes of every row, largest first."""
    done = run_plain("virtual_plans.py", str(FILE))
    assert done.code == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.torch
@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{n}-{ROWS[n]['op'][5:]}")
def test_buffers_are_the_measured_ones(number: int, planned: list[list[int]]) -> None:
    row = ROWS[number]
    measured = row["bytes"]
    assert planned[number][: len(measured)] == [
        pytest.approx(size, rel=row["off"]) if row["off"] else size for size in measured
    ]
