"""Where the program's folder stands in Git, if it does."""

import subprocess
from pathlib import Path

from headroom.records.run import GitState


def top_level(folder: Path) -> Path | None:
    """The top of the work tree that holds `folder`."""
    answer = _git(folder, "rev-parse", "--show-toplevel")
    return Path(answer) if answer else None


def git_state(folder: Path) -> GitState | None:
    """Commit, branch and whether tracked files differ; None outside a work tree, or without Git."""
    if top_level(folder) is None:
        return None
    return GitState(
        commit=_git(folder, "rev-parse", "HEAD"),
        branch=_git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        dirty=bool(_git(folder, "status", "--porcelain", "--untracked-files=no")),
    )


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
