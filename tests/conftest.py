"""Fixtures that several folders share."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
CAPTURES = ROOT / "tests" / "recordings" / "captures"


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The interpreter that programs under test run in: one with torch."""
    path = os.environ.get("HEADROOM_TEST_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
    if not Path(path).exists():
        pytest.skip(
            f"no interpreter with torch at {path}: run `make test`, or set HEADROOM_TEST_PYTHON"
        )
    return path


@pytest.fixture(scope="session")
def captures() -> Path:
    """The folder of real H200 snapshots, with torch's own counters beside each."""
    return CAPTURES


@pytest.fixture(scope="session")
def capture_truth() -> Any:
    """`capture_truth("full")` is what torch itself counted for that capture."""

    def read(name: str) -> Any:
        return json.loads((CAPTURES / f"{name}.truth.json").read_text())

    return read
