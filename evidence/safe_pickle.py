"""Reads an allocator snapshot from a file that may have been made to harm.

Three locks, each enough against code execution: the opcodes are scanned before anything runs (`pickle_scan`), the
unpickler refuses every global and every persistent id, and only plain containers and scalars can come out.

Not covered here: memory within the file's own proportions (crafted data take up to forty times their file, torch
four times), CPU time of crafted hash collisions, files that grow while they are read. A child process with limits on
memory and time has to stand around this for files from strangers.
"""

import gc
import io
import pickle
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from headroom.errors import SnapshotError
from headroom.evidence.pickle_scan import check_opcodes
from headroom.evidence.snapshot import Snapshot, parse_snapshot
from headroom.units import GIB, format_bytes

# About twelve million entries, each some 170 bytes of file and 640 bytes of memory.
MAX_SNAPSHOT_BYTES: Final = 2 * GIB


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that can make plain data only."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse every global, the harmless ones too: a snapshot has none."""
        raise SnapshotError(
            f"The snapshot file is refused: it asks to import {module[:60]!r}, which a snapshot never does."
        )

    def persistent_load(self, pid: object) -> NoReturn:
        """Refuse references to objects outside the file."""
        raise SnapshotError(
            "The snapshot file is refused: it refers to objects outside itself, which a snapshot never does."
        )


@contextmanager
def paused_collector() -> Iterator[None]:
    """Keep the garbage collector off: over a million fresh entries it takes most of the time and finds nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load_plain(data: bytes) -> object:
    """Unpickle plain data: dict, list, tuple, str, int, float, bool and None.

    Raises:
        SnapshotError: The bytes are empty, torn, no pickle, or hold anything else.
    """
    check_opcodes(data)
    with paused_collector():
        try:
            return PlainUnpickler(io.BytesIO(data)).load()
        except SnapshotError:
            raise
        # The unpickler raises whatever the bytes provoke: key, index, type, value, memory and attribute errors.
        except Exception as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise SnapshotError(f"The snapshot file is damaged: {reason}.") from error


def read_snapshot(data: bytes) -> Snapshot:
    """Read a snapshot from the bytes of its pickle.

    Raises:
        SnapshotError: The bytes are no allocator snapshot.
    """
    if len(data) > MAX_SNAPSHOT_BYTES:
        raise SnapshotError(_too_large(len(data), MAX_SNAPSHOT_BYTES))
    return parse_snapshot(load_plain(data))


def read_snapshot_file(path: Path, *, max_bytes: int = MAX_SNAPSHOT_BYTES) -> Snapshot:
    """Read a snapshot file.

    Args:
        path: A regular file.
        max_bytes: Largest file to read; the data take about four times as much memory.

    Raises:
        SnapshotError: The file is missing, no regular file, too large, or no allocator snapshot.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SnapshotError(f"{path} is not a regular file.")
        if status.st_size > max_bytes:
            raise SnapshotError(_too_large(status.st_size, max_bytes))
        data = path.read_bytes()
    except OSError as error:
        raise SnapshotError(
            f"{path} cannot be read: {error.strerror or type(error).__name__}."
        ) from error
    return parse_snapshot(load_plain(data))


def _too_large(size_bytes: int, max_bytes: int) -> str:
    return (
        f"The snapshot has {format_bytes(size_bytes)}, over the limit of {format_bytes(max_bytes)}."
    )
