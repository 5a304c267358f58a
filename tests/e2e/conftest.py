"""The whole product, as a user runs it, on the virtual GPU."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The user's folder: a Git work tree, as most are."""
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.fixture
def environment(root: Path) -> dict[str, str]:
    """The environment of the commands."""
    return {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"}


@pytest.fixture
def headroom(project: Path, environment: dict[str, str]) -> Command:
    """`headroom("fix", "train.py")` in the user's folder."""

    def run(*words: str, timeout: float = 300) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "headroom", *words],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    return run


@pytest.fixture
def fix(headroom: Command, torch_python: str) -> Callable[..., tuple[int, Any]]:
    """`fix("--capacity", "8GiB", "train.py")` gives the exit code and what `--json` printed."""

    def run(*words: str) -> tuple[int, Any]:
        done = headroom("fix", "--json", "--device", "virtual", "--python", torch_python, *words)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def scenario(root: Path, project: Path) -> Callable[[str], Path]:
    """`scenario("evaluation_graph")` is a copy of that program in the user's folder."""

    def copy(name: str) -> Path:
        return Path(shutil.copy(root / "eval" / "scenarios" / f"{name}.py", project / f"{name}.py"))

    return copy
