"""The command as a user types it, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def headroom(project: Path, root: Path) -> Command:
    """`headroom("run", "train.py")` in the user's folder."""

    def run(
        *words: str, cwd: Path = project, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "headroom", *words],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run
