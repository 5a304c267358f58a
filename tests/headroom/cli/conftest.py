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
        *words: str | Path, cwd: Path = project, stdin: bytes = b"", **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", "headroom", *map(str, words)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200", **environment},
            input=stdin,
            capture_output=True,
            check=False,
            timeout=300,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return run
