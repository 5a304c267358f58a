"""A run's artifacts into the evidence that agents get. Reads files; decides nothing."""

from collections.abc import Mapping
from pathlib import Path

from headroom.agents.protocol import Evidence
from headroom.agents.syntax import parse_file
from headroom.agents.text import source_text
from headroom.errors import SnapshotError
from headroom.evidence.ledger import build_ledger
from headroom.evidence.pack import build_pack
from headroom.evidence.safe_pickle import read_snapshot_file
from headroom.records.run import RunRecord
from headroom.units import format_bytes


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
    ledger = build_ledger(read_snapshot_file(folder / record.snapshot), roots=roots)
    sources = read_sources(record, files)
    return Evidence(
        ledger=ledger,
        call_sites=record.call_sites,
        sources=sources,
        parameters_bytes=sum(parameter.size_bytes for parameter in record.parameters),
        pack=build_pack(ledger, facts=facts_of(record), sources=sources).markdown,
        roots=roots,
    )


def read_sources(record: RunRecord, files: Mapping[str, bytes]) -> dict[str, str]:
    """The program's own files as the run read them, by absolute path.

    A file that is not UTF-8 is left out: no record could hold an edit of it exactly.
    """
    sources = {}
    for path in record.sources:
        content = files.get(path)
        if content is None and Path(path).is_file():
            content = Path(path).read_bytes()
        if content is not None and is_utf8(content):
            sources[path] = source_text(content)
    return sources


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


def is_utf8(content: bytes) -> bool:
    """Whether the bytes are UTF-8 text, which is what Python sources are unless they say otherwise."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def facts_of(record: RunRecord) -> dict[str, str]:
    """What a reader of the pack needs to know before the figures."""
    info = record.device_info
    facts = {
        "program": record.program.label,
        "outcome": f"{record.outcome}: {record.reason}",
        "device": f"{info.name} ({info.kind})" if info else "none",
        "capacity": format_bytes(info.capacity_bytes) if info else "unknown",
        "torch": record.versions.torch or "not imported",
        "updates": str(record.updates),
    }
    if record.peak_allocated_bytes is not None:
        bound = " (lower bound)" if record.peak_is_lower_bound else ""
        facts["peak"] = format_bytes(record.peak_allocated_bytes) + bound
    if record.snapshot_complete is False:
        facts["history"] = "the ring had wrapped: the oldest allocations are unknown"
    return facts
