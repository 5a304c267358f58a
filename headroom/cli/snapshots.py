"""From what the user typed to an analysed snapshot: a file, a run of the store (`stored`), standard input."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headroom.errors import SnapshotError, UserError
from headroom.evidence.analysis_model import Analysis
from headroom.snapshots.files import plain_file
from headroom.snapshots.reader import read_analysis
from headroom.snapshots.sources import NO_SOURCES, Sources, find_sources

if TYPE_CHECKING:
    from headroom.records.run import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An analysed snapshot with what else is known of it. `record` is the run's, where it is one of ours."""

    title: str
    analysis: Analysis
    sources: Sources
    record: "RunRecord | None" = None

    @property
    def roots(self) -> tuple[str, ...]:
        """Folders of the program; empty for a snapshot of others."""
        return self.record.program.roots if self.record is not None else ()


def load(
    name: str,
    *,
    store: Path | None = None,
    source: Path | None = None,
    device: int | None = None,
) -> Loaded:
    """Read a snapshot file, or the snapshot of a run in the store.

    Args:
        name: A path, a run's ID or a part of it, or `last`.
        store: Folder of the store.
        source: Folder to look for the program's files in.
        device: Index of the device; all by default.

    Raises:
        UserError: There is no such file and no such run.
        SnapshotError: It cannot be read as a snapshot.
    """
    path = Path(name)
    if source is not None and not source.is_dir():
        raise UserError(f"{source} is not a folder", f"headroom analyze {name} --source .")
    if path.exists():
        return load_file(path, source=source, device=device)
    # Records are schemas, and building these takes longer than reading a small snapshot: only runs need them.
    from headroom.cli.stored import load_stored

    return load_stored(name, store=store, source=source, device=device)


def load_sample(*, device: int | None = None) -> Loaded:
    """The bundled capture of a real run."""
    from headroom.cli.stored import load_bundled

    return load_bundled(device=device)


def load_file(path: Path, *, source: Path | None, device: int | None) -> Loaded:
    """Read a file of anybody's, compressed or not."""
    with plain_file(path) as plain:
        analysis = read_analysis(plain, device=device)
    sources = NO_SOURCES if source is None else find_sources(analysis, source)
    return Loaded(
        title=path.name,
        analysis=replace(analysis, notes=(*analysis.notes, *sources.notes)),
        sources=sources,
    )


@contextmanager
def standard_input() -> Iterator[Path | str]:
    """What comes on standard input: a snapshot as a temporary file, or text.

    Raises:
        SnapshotError: Nothing came.
    """
    data = sys.stdin.buffer.read()
    if not data.strip():
        raise SnapshotError("Nothing came on standard input.")
    if data[:1] == b"\x80" or data[:2] == b"\x1f\x8b" or data[:4] == b"\x28\xb5\x2f\xfd":
        with tempfile.TemporaryDirectory(prefix="headroom-") as folder:
            path = Path(folder) / "standard input"
            path.write_bytes(data)
            yield path
    else:
        yield data.decode(errors="replace")
