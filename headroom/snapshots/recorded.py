"""What our recorder left beside a snapshot, as the evidence wants it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headroom.agents.text import source_text
from headroom.evidence.account.account import DeviceFacts
from headroom.evidence.account.names import NameWalk, StorageName
from headroom.evidence.model import Category, Holder
from headroom.evidence.reading.stacks import is_library
from headroom.evidence.text import NAME_LIMIT, PATH_LIMIT, clean_text
from headroom.records.names import Storage, read_names
from headroom.records.run import DeviceInfo, RunRecord
from headroom.units import format_bytes

# What only an autograd graph saves is an activation.
_CATEGORIES: Final[dict[str, Category]] = {
    "parameter": "parameter",
    "gradient": "gradient",
    "optimizer_state": "optimizer_state",
    "buffer": "buffer",
    "variable": "variable",
    "saved": "activation",
}


def read_walks(record: RunRecord, folder: Path) -> tuple[tuple[NameWalk, ...], tuple[str, ...]]:
    """The recorder's walks over live storages, oldest first, and a note where they cannot be read."""
    if record.names is None:
        return (), ()
    try:
        walks = read_names((folder / record.names).read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError) as error:
        return (), (f"the names of tensors could not be read, so none is told: {error}",)
    named = tuple(
        NameWalk(time_us=walk.time_us, storages=tuple(map(_storage, walk.storages)))
        for walk in walks
    )
    return named, ()


def _storage(found: Storage) -> StorageName:
    holder = found.holder
    # A name that no line of the program says is no help: an unnamed container, or a variable inside a library.
    if holder is not None and (
        not holder.file or not holder.line or holder.name.startswith("<") or is_library(holder.file)
    ):
        holder = None
    return StorageName(
        device=found.device,
        address=found.address,
        size_bytes=found.size_bytes,
        category=_CATEGORIES[found.category],
        name=clean_text(found.name, NAME_LIMIT),
        holder=None
        if holder is None
        else Holder(
            kind=holder.kind,
            name=clean_text(holder.name, NAME_LIMIT),
            file=clean_text(holder.file, PATH_LIMIT),
            line=holder.line or 0,
            function=clean_text(holder.function, NAME_LIMIT),
        ),
    )


def _cap(info: DeviceInfo | None) -> int | None:
    if info is None or info.capacity_bytes >= info.total_memory_bytes:
        return None
    return info.capacity_bytes


def device_facts(record: RunRecord) -> DeviceFacts:
    """What a run's record says of its device."""
    info = record.device_info
    return DeviceFacts(
        total_bytes=info.total_memory_bytes if info is not None else None,
        non_torch_bytes=record.non_torch_bytes,
        cap_bytes=_cap(info),
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
