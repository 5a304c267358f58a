"""Watches one process group from outside: output, time, resident memory, and every way to die."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Final, Literal

import psutil

from headroom.sandbox.protocol import Limits, Terminal

POLL_SECONDS: Final = 0.1
MEMORY_POLL_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 5.0
OUTPUT_LIMIT_BYTES: Final = 32 * 1024**2
"""What is kept of each of the program's two streams; the terminal still gets all of it."""

Stopped = Literal["time", "memory", "interrupt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the process ended. `code` is None where a signal ended it; `stopped` says that we did it, and why."""

    code: int | None
    signal: str | None
    stopped: Stopped | None
    wall_seconds: float
    peak_resident_bytes: int


def supervise(
    argv: Sequence[str],
    environment: Mapping[str, str],
    limits: Limits,
    terminal: Terminal,
    folder: Path,
) -> Exit:
    """Run a command in its own session until it ends or a limit ends it.

    The streams are copied to `folder/stdout.txt` and `folder/stderr.txt` as they come, and to the terminal. Ctrl-C is
    passed on as SIGINT, so that the program can end as it would have; after a grace period it is killed. It must be
    called from the main thread, which the kernel takes as the child's parent.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        list(argv),
        env=dict(environment),
        stdin=None if terminal.stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    pumps = [
        _Pump(process.stdout, folder / "stdout.txt", terminal.stdout),
        _Pump(process.stderr, folder / "stderr.txt", terminal.stderr),
    ]
    watch = _Watch(process, limits, started)
    stopped = watch.until_end()
    kill_tree(process)
    for pump in pumps:
        pump.join(GRACE_SECONDS)
    code = process.returncode
    return Exit(
        code=code if code >= 0 else None,
        signal=signal.Signals(-code).name if code < 0 else None,
        stopped=stopped,
        wall_seconds=time.monotonic() - started,
        peak_resident_bytes=watch.peak_resident_bytes,
    )


class _Pump(threading.Thread):
    """Copies one stream to a file (up to a limit) and to the terminal (all of it)."""

    def __init__(self, source: IO[bytes], path: Path, sink: BinaryIO | None) -> None:
        super().__init__(daemon=True)
        self._source, self._path, self._sink = source, path, sink
        self.start()

    def run(self) -> None:
        left = OUTPUT_LIMIT_BYTES
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(self._source)
            file = self._open(stack)
            while chunk := os.read(source.fileno(), 65536):
                self._show(chunk)
                if file is not None and not self._keep(file, chunk[:left]):
                    file = None
                left -= len(chunk[:left])
            if left == 0 and file is not None:
                self._keep(file, b"\n[headroom kept only the first 32 MiB]\n")

    def _open(self, stack: contextlib.ExitStack) -> BinaryIO | None:
        try:
            return stack.enter_context(self._path.open("wb", buffering=0))
        except OSError:
            return None

    @staticmethod
    def _keep(file: BinaryIO, chunk: bytes) -> bool:
        """Write to the file; a full disk ends the keeping, not the showing."""
        try:
            file.write(chunk)
        except OSError:
            return False
        return True

    def _show(self, chunk: bytes) -> None:
        if self._sink is None:
            return
        try:
            self._sink.write(chunk)
            self._sink.flush()
        except (OSError, ValueError):
            # The reader of our output is gone (`| head`); the program goes on, as it would behind a pipe of its own.
            self._sink = None


class _Watch:
    """Waits for the end, keeping time and resident memory within the limits."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits, started: float) -> None:
        self._process, self._limits, self._started = process, limits, started
        self._next_memory_look = 0.0
        self.peak_resident_bytes = 0

    def until_end(self) -> Stopped | None:
        """Block until the process has ended; says which limit ended it, if one did."""
        while True:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(POLL_SECONDS)
                    return None
                reason = self._exceeded()
                if reason is not None:
                    kill_tree(self._process)
                    self._process.wait()
                    return reason
            except KeyboardInterrupt:
                self._interrupt()
                return "interrupt"

    def _exceeded(self) -> Stopped | None:
        now = time.monotonic()
        if self._limits.seconds is not None and now - self._started > self._limits.seconds:
            return "time"
        if now < self._next_memory_look:
            return None
        self._next_memory_look = now + MEMORY_POLL_SECONDS
        resident_bytes = resident(self._process.pid)
        self.peak_resident_bytes = max(self.peak_resident_bytes, resident_bytes)
        limit = self._limits.memory_bytes
        return "memory" if limit is not None and resident_bytes > limit else None

    def _interrupt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(GRACE_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            kill_tree(self._process)
            self._process.wait()


def resident(pid: int) -> int:
    """Resident bytes of a process and its descendants; pages they share are counted once for each."""
    total = 0
    for process in _tree(pid):
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the process group and to descendants that left it. Safe to call when all is over."""
    descendants = _tree(process.pid)[1:]
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in descendants:
        with contextlib.suppress(psutil.Error):
            child.kill()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []
