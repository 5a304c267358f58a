"""A reader in processes of its own: wall and CPU seconds, memory of the whole tree, output, limits.

Memory is the larger of two figures: the sum of resident sizes over the process and its descendants, looked at every
20 ms, and `ru_maxrss` of the largest single process, which misses nothing. Pages shared between processes count in
each of them. Linux only: `wait4` gives the resources of exactly one child and of what it waited for.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

import psutil

Commands = tuple[tuple[str, ...], ...]
Outcome = Literal["ok", "failed", "killed at the memory limit", "killed at the time limit"]

_INTERVAL_SECONDS: Final = 0.02
_KIBIBYTE: Final = 1024  # ru_maxrss counts these on Linux
_TOLD: Final = 300
"""Characters of a failed reader's last line that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a reader may take: resident bytes of its tree, and seconds for all of its commands together."""

    memory_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `output_bytes` is the files that it wrote and `stdout`, the standard output of its last command."""

    outcome: Outcome
    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    output_bytes: int
    stdout: str
    error: str = ""


@dataclass(slots=True)
class _Totals:
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0


def run_reader(
    commands: Callable[[Path, Path], Commands], snapshot: Path, limits: Limits, *, own_home: bool
) -> Run:
    """Run a reader's commands one after the other, in a folder of their own.

    Args:
        commands: Gives the command lines, from the path of the snapshot and the folder they run in and write to.
        snapshot: The file to read. The reader sees a link to it, for some write beside what they read.
        limits: When to kill it.
        own_home: Whether HOME is the folder too, so that nothing of the user's is read or changed.
    """
    with tempfile.TemporaryDirectory(prefix="headroom-readers-") as name:
        folder = Path(name)
        work, home = folder / "work", folder / "home"
        work.mkdir()
        home.mkdir()
        link = work / "snapshot.pickle"
        link.symlink_to(snapshot.resolve())
        env = {**os.environ, "HOME": str(home)} if own_home else dict(os.environ)
        return _run_all(commands(link, work), work, env, limits)


def _run_all(commands: Commands, work: Path, env: dict[str, str], limits: Limits) -> Run:
    totals, started = _Totals(), time.monotonic()
    stdout = work / "stdout.txt"
    outcome: Outcome = "ok"
    error = ""
    for command in commands:
        with stdout.open("wb") as out, (work.parent / "stderr.txt").open("w+b") as err:
            outcome = _run_one(command, work, env, (out, err), limits, started, totals)
            err.seek(0)
            error = "" if outcome == "ok" else _last_line(err.read().decode(errors="replace"))
        if outcome != "ok":
            break
    wall_seconds = time.monotonic() - started
    output_bytes = sum(
        path.stat().st_size for path in work.rglob("*") if path.is_file() and not path.is_symlink()
    )
    return Run(
        outcome=outcome,
        wall_seconds=wall_seconds,
        cpu_seconds=totals.cpu_seconds,
        peak_rss_bytes=totals.peak_rss_bytes,
        output_bytes=output_bytes,
        stdout=stdout.read_text(errors="replace") if outcome == "ok" else "",
        error=error,
    )


def _run_one(
    command: tuple[str, ...],
    work: Path,
    env: dict[str, str],
    files: tuple[IO[bytes], IO[bytes]],
    limits: Limits,
    started: float,
    totals: _Totals,
) -> Outcome:
    process = subprocess.Popen(
        command,
        cwd=work,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=files[0],
        stderr=files[1],
        start_new_session=True,
    )
    watch = _Watch(process.pid, limits, started + limits.seconds)
    watch.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        watch.finish()  # also when the benchmark itself is interrupted
    process.returncode = os.waitstatus_to_exitcode(status)
    totals.cpu_seconds += usage.ru_utime + usage.ru_stime
    peak = max(watch.peak_rss_bytes, usage.ru_maxrss * _KIBIBYTE)
    totals.peak_rss_bytes = max(totals.peak_rss_bytes, peak)
    if watch.killed is not None:
        return watch.killed
    return "ok" if process.returncode == 0 else "failed"


class _Watch(threading.Thread):
    """Looks at a process tree until it ends, and kills its group at a limit."""

    def __init__(self, pid: int, limits: Limits, deadline: float) -> None:
        super().__init__(daemon=True)
        self.pid, self.limits, self.deadline = pid, limits, deadline
        self.peak_rss_bytes = 0
        self.killed: Outcome | None = None
        self._ended = threading.Event()

    def run(self) -> None:
        """See the class."""
        while not self._ended.wait(_INTERVAL_SECONDS):
            self.peak_rss_bytes = max(self.peak_rss_bytes, tree_rss_bytes(self.pid))
            if self.peak_rss_bytes > self.limits.memory_bytes:
                self.killed = "killed at the memory limit"
            elif time.monotonic() > self.deadline:
                self.killed = "killed at the time limit"
            if self.killed is not None:
                _kill_group(self.pid)
                return

    def finish(self) -> None:
        """Stop looking; end what the reader left behind in its group."""
        self._ended.set()
        self.join()
        _kill_group(self.pid)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def tree_rss_bytes(pid: int) -> int:
    """Resident bytes of a process and its descendants, as far as they still exist."""
    total = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def warm(path: Path) -> None:
    """Read a file once, so that every reader finds it in the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_TOLD] if lines else ""
