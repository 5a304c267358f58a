"""A run's artifacts into the evidence that agents get. Reads files; decides nothing."""

from collections.abc import Mapping
from pathlib import Path

from headroom.agents.protocol import Evidence
from headroom.agents.syntax import parse_file
from headroom.errors import SnapshotError
from headroom.evidence.pack.build import build_pack
from headroom.records.run import RunRecord
from headroom.snapshots.reader import read_analysis
from headroom.snapshots.recorded import (
    device_facts,
    facts_of,
    is_utf8,
    read_sources,
    read_walks,
)


def gather(record: RunRecord, folder: Path, files: Mapping[str, bytes]) -> Evidence:
    """Build the evidence from a `trace` run.

    Args:
        record: The run.
        folder: Its folder in the store.
        files: Contents of the files that this state of the program has changed.

    Raises:
        SnapshotError: The run left no snapshot, or one that cannot be read.
    """
    if record.snapshot is None:
        raise SnapshotError(f"run {record.run_id} left no snapshot: {record.reason}")
    roots = record.program.roots
    walks, unread = read_walks(record, folder)
    analysis = read_analysis(
        folder / record.snapshot,
        roots=roots,
        walks=walks,
        facts=device_facts(record),
    )
    sources = read_sources(record, files)
    return Evidence(
        ledger=analysis.main.ledger,
        call_sites=record.call_sites,
        sources=sources,
        parameters_bytes=sum(parameter.size_bytes for parameter in record.parameters),
        pack=build_pack(analysis, facts=facts_of(record), sources=sources, notes=unread).markdown,
        roots=roots,
        device=analysis.main,
    )


def unread_sources(record: RunRecord) -> tuple[str, ...]:
    """A sentence for each of the program's own files that no agent can read, and so none can change."""
    notes = []
    for path in filter(Path.is_file, map(Path, record.sources)):
        content = path.read_bytes()
        if not is_utf8(content):
            notes.append(f"{path} is not UTF-8, so it was not read")
        elif parse_file(str(path), content) is None:
            notes.append(f"{path} nests its code too deeply, so it was not read")
    return tuple(notes)
