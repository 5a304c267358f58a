"""Fixtures that several folders share."""

import io
import json
import os
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headroom.records.run import Program, RunRecord
from headroom.sandbox.process import ProcessSandbox
from headroom.sandbox.protocol import Limits, RunRequest, Terminal

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


@dataclass(frozen=True)
class Recorded:
    """A run's record, what it printed, and where things lie."""

    record: RunRecord
    stdout: str
    stderr: str
    project: Path
    folder: Path


Record = Callable[..., Recorded]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The user's folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def record(project: Path, tmp_path: Path) -> Record:
    """`record("print(1)", "arg", timeout=5)` runs a script and gives its `Recorded`."""
    count = 0

    def run(
        source: str,
        *args: str,
        python: str = sys.executable,
        environment: dict[str, str] | None = None,
        in_place: bool = False,
        timeout: float | None = 120,
        memory: int | None = None,
        module: str | None = None,
        **fields: Any,
    ) -> Recorded:
        nonlocal count
        count += 1
        script = project / "program.py"
        script.write_text(textwrap.dedent(source))
        folder = tmp_path / f"run{count}"
        folder.mkdir()
        program = Program(
            kind="module" if module else "script",
            target=module or str(script),
            typed=module or "program.py",
            args=args,
            cwd=str(project),
            roots=(str(project),),
            python=python,
        )
        out, err = io.BytesIO(), io.BytesIO()
        request = RunRequest(
            run_id=f"run{count}",
            folder=folder,
            program=program,
            limits=Limits(seconds=timeout, memory_bytes=memory),
            **{"purpose": "measure", "device": "cuda", **fields},
        )
        sandbox = ProcessSandbox(environment, in_place=in_place)
        result = sandbox.run(request, Terminal(stdout=out, stderr=err))
        return Recorded(
            record=result,
            stdout=out.getvalue().decode(),
            stderr=err.getvalue().decode(),
            project=project,
            folder=folder,
        )

    return run
