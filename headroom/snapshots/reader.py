"""Reads a snapshot in a child process: the parent holds the clock and turns every end of the child into a sentence."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headroom.errors import SnapshotError
from headroom.evidence.account.account import DeviceFacts
from headroom.evidence.account.names import NameWalk
from headroom.evidence.analysis_model import Analysis
from headroom.snapshots.limits import MAX_FILE_BYTES, limits_for
from headroom.snapshots.request import ReadAnswer, ReadRequest, pack_message, unpack_message
from headroom.units import format_bytes

_SLOW = (
    "The snapshot file is refused: reading it takes far longer than a snapshot of its size needs."
)
_KILLED = "The snapshot could not be read: the system ended the reading process, as it does when memory runs out."


def read_analysis(
    path: Path,
    *,
    device: int | None = None,
    roots: tuple[str, ...] = (),
    walks: Sequence[NameWalk] = (),
    facts: DeviceFacts | None = None,
) -> Analysis:
    """Analyse an uncompressed snapshot file.

    Args:
        path: The file; it may come from anybody.
        device: Index of the device; all of them by default.
        roots: Folders of the program.
        walks: What the recorder named.
        facts: What else is known of the device.

    Raises:
        SnapshotError: It is no snapshot, or takes more than a snapshot of its size may take.
    """
    names = sum(len(walk.storages) for walk in walks)
    request = ReadRequest(
        path=str(path.resolve()),
        limits=limits_for(_size(path), names),
        device=device,
        roots=roots,
        walks=tuple(walks),
        facts=facts,
    )
    analysis = ask(request).analysis
    assert analysis is not None
    return analysis


def scrub_file(path: Path, target: Path) -> int:
    """Write a shareable copy without paths and names; says how many bytes it has.

    Raises:
        SnapshotError: It is no snapshot, or takes more than a snapshot of its size may take.
    """
    request = ReadRequest(
        path=str(path.resolve()),
        limits=limits_for(_size(path)),
        task="scrub",
        scrub_to=str(target.resolve()),
    )
    written = ask(request).written_bytes
    assert written is not None
    return written


def ask(request: ReadRequest) -> ReadAnswer:
    """Start the child, give it the request, and wait for the answer or the end of its time.

    Raises:
        SnapshotError: With the child's own sentence, or one on how it ended.
    """
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "headroom.snapshots.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
        start_new_session=True,
    )
    try:
        data, _ = child.communicate(pack_message(request), timeout=request.limits.wall_seconds)
    except subprocess.TimeoutExpired:
        raise SnapshotError(_SLOW) from None
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()
    if child.returncode == -signal.SIGXCPU:
        raise SnapshotError(_SLOW)
    if child.returncode == -signal.SIGKILL:
        raise SnapshotError(_KILLED)
    answer = _answer(data, child.returncode)
    if answer.refused is not None:
        raise SnapshotError(answer.refused)
    return answer


def _answer(data: bytes, code: int) -> ReadAnswer:
    try:
        answer = unpack_message(data)
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError) as error:
        raise SnapshotError(
            f"The snapshot could not be read: the reading process ended with code {code}."
        ) from error
    assert isinstance(answer, ReadAnswer)
    return answer


def _environment() -> dict[str, str]:
    """Nothing that changes what Python imports or writes, and no secrets: the child needs none of it."""
    kept = (
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TMPDIR",
        "VIRTUAL_ENV",
        "PYTHONHOME",
        "COVERAGE_PROCESS_START",
    )
    return {name: os.environ[name] for name in kept if name in os.environ}


def _size(path: Path) -> int:
    try:
        size_bytes = path.stat().st_size
        if not path.is_file():
            raise SnapshotError(f"{path} is not a regular file.")
        with path.open("rb"):
            pass
    except OSError as error:
        raise SnapshotError(
            f"{path} cannot be read: {error.strerror or type(error).__name__}."
        ) from error
    if size_bytes > MAX_FILE_BYTES:
        raise SnapshotError(
            f"The snapshot has {format_bytes(size_bytes)}, over the limit of {format_bytes(MAX_FILE_BYTES)}."
        )
    return size_bytes
