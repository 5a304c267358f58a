"""The interpreter leaves as it would without us: exit code, output, traceback, exit handlers."""

import signal
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def left(run_virtual: Callable[..., Any]) -> Callable[[str], Any]:
    """Leaves once in each way."""
    return cache(lambda how: run_virtual("virtual_exit.py", how))


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("end", 0, ""),
        ("busy", 0, ""),
        ("exception", 1, "ValueError: on purpose"),
        ("exit", 3, ""),
        ("oom", 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4096.00 GiB."),
        ("interrupt", -signal.SIGINT, "KeyboardInterrupt"),
    ],
)
def test_exit(how: str, code: int, message: str, left: Callable[[str], Any]) -> None:
    done = left(how)

    assert done.code == code, done.stderr[-3000:]
    assert ("end\n" in done.stdout) == (how in ("end", "busy"))
    assert "handler [2.0, 2.0]" in done.stdout
    assert done.known["peaks"]["allocated_bytes"] > 40_000_000
    assert "Fatal" not in done.stderr and "Segmentation" not in done.stderr
    if message:
        assert done.stderr.splitlines()[-1].startswith(message)
    else:
        assert "Traceback" not in done.stderr


def test_tracebacks_end_at_the_programs_line(left: Callable[[str], Any]) -> None:
    done = left("oom")

    files = [line for line in done.stderr.splitlines() if line.lstrip().startswith("File ")]
    assert files[-2].split(",")[0].endswith('virtual_exit.py"'), done.stderr
    assert "dispatch.py" in files[-1]  # the one frame that raises
