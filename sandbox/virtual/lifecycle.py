"""Forks and the end of the process."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from pathlib import Path

ENGINE_THREADS = "pt_autograd"
"""torch names the threads of its autograd engine so."""
POLL_S = 0.003
PATIENCE_S = 5.0
_TASKS = Path("/proc/self/task")
_COUNTED = ("State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")


def follow(after_fork: Callable[[], None]) -> None:
    """Calls `after_fork` in forked children, and keeps the engine from dying on the way out."""
    os.register_at_fork(after_in_child=after_fork)
    # Registered before the program's own handlers, so it runs after them.
    atexit.register(wait_for_engine)


def wait_for_engine() -> None:
    """Waits until autograd's device threads sleep.

    After a backward pass has returned, such a thread still gives back Python objects. If the interpreter begins to
    finalise before it holds the lock for that, the thread is killed and takes the process with it ("terminate called
    without an active exception").
    """
    deadline = time.monotonic() + PATIENCE_S
    before = None
    while time.monotonic() < deadline:
        now = _engine_threads()
        if now == before and all("S (sleeping)" in counted for counted in now.values()):
            return
        before = now
        time.sleep(POLL_S)  # gives the threads the interpreter's lock


def _engine_threads() -> dict[str, str]:
    """State and context switches of each engine thread; both stand still only in a thread that waits for work."""
    found = {}
    for task in _TASKS.iterdir():
        try:
            if not (task / "comm").read_text().startswith(ENGINE_THREADS):
                continue
            lines = (task / "status").read_text().splitlines()
        except OSError:
            continue  # the thread is gone
        found[task.name] = " ".join(line for line in lines if line.startswith(_COUNTED))
    return found
