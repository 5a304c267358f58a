"""Reads an allocator snapshot from a file that may have been made to harm.

The unpickler refuses every global, every persistent id and every extension, so nothing but plain containers and scalars
can come out of it, and no code of anybody's runs. What it does not bound is memory and time: nine bytes can ask for
a memo of two gigabytes. So a file from a stranger is read in a child process whose address space and processor
time are limited in proportion to the file (`headroom.snapshots`). What comes out is then checked field by field, with
no recursion (`snapshot`, `columns`).
"""

import gc
import io
import pickle
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from headroom.errors import SnapshotError
from headroom.evidence.reading.snapshot import Snapshot, parse_snapshot
from headroom.units import format_bytes

_MAGIC: Final = b"\x80"


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


def load_plain(file: BinaryIO) -> object:
    """Unpickle plain data: dict, list, tuple, str, bytes, int, float, bool and None.

    Raises:
        SnapshotError: The file is empty, torn, no pickle, or holds anything else.
        MemoryError: It takes more memory than the process may have.
    """
    head = file.read(4)
    file.seek(0)
    if not head.startswith(_MAGIC):
        raise SnapshotError(f"The file is {_what_it_is(head)}, so it is no allocator snapshot.")
    with paused_collector():
        try:
            return PlainUnpickler(file).load()
        except (SnapshotError, MemoryError):
            raise
        # The unpickler raises whatever the bytes provoke: key, index, type, value and attribute errors.
        except Exception as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise SnapshotError(f"The snapshot file is damaged: {reason}.") from error


def _what_it_is(head: bytes) -> str:
    if not head:
        return "empty"
    if head == b"PK\x03\x04":
        return "a zip archive, as torch.save writes checkpoints"
    return "no pickle of protocol 2 to 5"


def read_snapshot(data: bytes) -> Snapshot:
    """Read a snapshot from the bytes of its pickle.

    Raises:
        SnapshotError: The bytes are no allocator snapshot.
    """
    return parse_snapshot(load_plain(io.BytesIO(data)))


def read_snapshot_file(path: Path, *, max_bytes: int | None = None) -> Snapshot:
    """Read a snapshot file in this process: for files that one trusts.

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
        if max_bytes is not None and status.st_size > max_bytes:
            raise SnapshotError(
                f"The snapshot has {format_bytes(status.st_size)}, over the limit of {format_bytes(max_bytes)}."
            )
        with path.open("rb") as file:
            return parse_snapshot(load_plain(file))
    except OSError as error:
        raise SnapshotError(
            f"{path} cannot be read: {error.strerror or type(error).__name__}."
        ) from error
