"""What our recorder left beside a snapshot, as the evidence wants it."""

from collections.abc import Mapping
from pathlib import Path

from headroom.agents.text import source_text
from headroom.evidence.account import DeviceFacts
from headroom.evidence.names import NameWalk
from headroom.records.run import RunRecord
from headroom.units import format_bytes


def read_walks(record: RunRecord, folder: Path) -> tuple[NameWalk, ...]:
    """The walks of a run, oldest first; none where it wrote none."""
    return ()


def device_facts(record: RunRecord) -> DeviceFacts:
    """What a run's record says of its device."""
    info = record.device_info
    return DeviceFacts(
        total_bytes=info.total_memory_bytes if info is not None else None,
        ring_full=None if record.snapshot_complete is None else not record.snapshot_complete,
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
