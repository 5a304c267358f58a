"""What the benchmarks share: running commands, medians, tables."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headroom import __version__
from headroom.sandbox.git import git_state

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = Path(__file__).resolve().parent / "programs"
SCENARIOS: Final = Path(__file__).resolve().parent.parent / "scenarios"


def headroom(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the `headroom` command of this very installation."""
    command = [sys.executable, "-m", "headroom", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)


def median(values: Sequence[float]) -> float:
    """The middle value; the lower of two."""
    return sorted(values)[(len(values) - 1) // 2]


def surroundings() -> dict[str, Any]:
    """Where a figure was measured: machine, versions, commit."""
    git = git_state(ROOT)
    return {
        "headroom": __version__,
        "commit": git.commit[:12] if git and git.commit else os.environ.get("HEADROOM_COMMIT"),
        "dirty": git.dirty if git else None,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table, ready for RESULTS.md."""
    print("| " + " | ".join(columns) + " |")
    print("|" + " --- |" * len(columns))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def finish(name: str, figures: dict[str, Any], out: Path | None) -> None:
    """Print the figures as one JSON line, and keep them in a file where one was named."""
    text = json.dumps({"benchmark": name, **surroundings(), **figures})
    print(text)
    if out is not None:
        out.write_text(text + "\n")
