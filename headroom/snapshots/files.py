"""What a user names, as plain pickle files: compressed ones unpacked, a folder of ranks listed."""

import gzip
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import zstandard

from headroom.errors import SnapshotError, UserError
from headroom.snapshots.limits import MAX_FILE_BYTES
from headroom.units import MIB, format_bytes

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
# torch's files shrink 10 to 40 times; what grows more than this was made to.
_MOST_EXPANSION: Final = 300
_PIECE_BYTES: Final = 4 * MIB
_SUFFIXES: Final = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz", ".pickle.zst", ".pkl.zst")
_RANK: Final = re.compile(r"(?:rank|dev|gpu|_|-|^)(\d{1,6})(?=\D|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFile:
    """A snapshot in a folder of ranks; `rank` is the number in its name, or its place in the list."""

    rank: int
    path: Path


@contextmanager
def plain_file(path: Path) -> Iterator[Path]:
    """The file as an uncompressed pickle: itself, or a temporary copy of what was compressed.

    Raises:
        SnapshotError: It cannot be read, is damaged, or expands beyond all measure.
    """
    kind = _compression(path)
    if kind is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="headroom-") as folder:
        target = Path(folder) / "snapshot.pickle"
        _unpack(path, kind, target)
        yield target


def _compression(path: Path) -> bytes | None:
    # A pipe or a device would be waited for; standard input is asked for by its own name.
    if path.exists() and not path.is_file():
        raise SnapshotError(f"{path} is not a regular file.")
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise SnapshotError(
            f"{path} cannot be read: {error.strerror or type(error).__name__}."
        ) from error
    return next((magic for magic in (_GZIP, _ZSTD) if head.startswith(magic)), None)


def _unpack(path: Path, kind: bytes, target: Path) -> None:
    limit = min(MAX_FILE_BYTES, max(path.stat().st_size * _MOST_EXPANSION, 64 * MIB))
    try:
        with path.open("rb") as packed, target.open("wb") as out:
            if kind == _GZIP:
                with gzip.GzipFile(fileobj=packed) as unzipped:
                    _copy(unzipped.read, out, limit, path)
            else:
                decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
                with decompressor.stream_reader(packed) as stream:
                    _copy(stream.read, out, limit, path)
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise SnapshotError(f"{path} is damaged: its compressed data cannot be read.") from error


def _copy(read: Callable[[int], bytes], out: IO[bytes], limit: int, path: Path) -> None:
    written = 0
    while piece := read(_PIECE_BYTES):
        written += len(piece)
        if written > limit:
            raise SnapshotError(
                f"{path} is refused: it expands to more than {format_bytes(limit)}, as no snapshot does."
            )
        if shutil.disk_usage(Path(tempfile.gettempdir())).free < len(piece):
            raise SnapshotError(f"There is no room in {tempfile.gettempdir()} to unpack {path}.")
        out.write(piece)


def rank_files(folder: Path) -> tuple[RankFile, ...]:
    """The snapshots in a folder, by the rank in their names where all have one of their own.

    Raises:
        UserError: There is none.
    """
    paths = sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIXES))
    if not paths:
        raise UserError(
            f"{folder} holds no snapshot (no file that ends in .pickle, .pkl, or these with .gz or .zst)",
            "headroom analyze snapshot.pickle",
        )
    numbers = [_RANK.findall(path.name.split(".", 1)[0]) for path in paths]
    # Names such as `host3_rank12` have several numbers: the last one tells them apart, or their order does.
    ranks = [int(found[-1]) for found in numbers if found]
    if len(set(ranks)) != len(paths):
        ranks = list(range(len(paths)))
    files = [RankFile(rank=rank, path=path) for rank, path in zip(ranks, paths, strict=True)]
    return tuple(sorted(files, key=lambda one: one.rank))
