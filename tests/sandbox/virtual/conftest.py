"""Programs on the virtual GPU, under the interpreter that has torch."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
TIMEOUT_S = 120
PURE = "_virtual_pure"


@dataclass(frozen=True)
class Finished:
    """What a program left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def known(self) -> Any:
        """The runner's last line: peaks and coverage."""
        lines = [line for line in self.stdout.splitlines() if line.startswith("VIRTUAL ")]
        assert len(lines) == 1, self.stdout[-2000:] + self.stderr[-2000:]
        return json.loads(lines[0].removeprefix("VIRTUAL "))

    @property
    def peaks(self) -> dict[str, int]:
        """Allocated bytes of every case that ran."""
        lines = [line for line in self.stdout.splitlines() if line.startswith("PEAK ")]
        found: dict[str, list[int]] = {}
        for line in lines:
            found.update(json.loads(line.removeprefix("PEAK ")))
        return {name: allocated for name, (allocated, _reserved) in found.items()}

    @property
    def checks(self) -> dict[str, str | None]:
        """Error, or None, of every check that ran."""
        lines = [line for line in self.stdout.splitlines() if line.startswith("CHECK ")]
        results = [json.loads(line.removeprefix("CHECK ")) for line in lines]
        return {result["check"]: result["error"] for result in results}


Run = Callable[..., Finished]


@pytest.fixture(scope="session")
def run_virtual(torch_python: str) -> Run:
    """`run_virtual("program.py", "argument", options=("--card", "t4"))` runs a program under the runner."""

    def run(program: str, *arguments: str, options: tuple[str, ...] = ()) -> Finished:
        return _run(
            torch_python, [PROGRAMS / "virtual_runner.py", *options, PROGRAMS / program, *arguments]
        )

    return run


@pytest.fixture(scope="session")
def run_plain(torch_python: str) -> Run:
    """`run_plain("program.py", "argument")` runs a program by itself."""

    def run(program: str, *arguments: str) -> Finished:
        return _run(torch_python, [PROGRAMS / program, *arguments])

    return run


def _run(python: str, command: list[Any]) -> Finished:
    done = subprocess.run(
        [python, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session", autouse=True)
def without_torch() -> Iterator[None]:
    """The pure parts must not need torch: Headroom's own environment has none."""
    yield
    assert "torch" not in sys.modules
