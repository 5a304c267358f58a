"""A run, for people."""

from rich.console import Console
from rich.table import Table

from headroom.records.run import RunRecord
from headroom.report.text import plain
from headroom.sandbox.overlay import WRITTEN_LIMIT
from headroom.units import format_bytes, format_seconds


def one_line(record: RunRecord) -> str:
    """How the run ended, in a line."""
    parts = [f"{record.run_id}: {record.outcome}"]
    if record.outcome != "completed":
        parts.append(record.reason)
    elif record.oom is not None:
        parts.append(f"after {record.oom.count} out-of-memory errors that the program caught")
    if record.peak_allocated_bytes is not None and record.device_info is not None:
        at_least = "at least " if record.peak_is_lower_bound else ""
        predicted = "predicted, " if record.device == "virtual" else ""
        parts.append(
            f"peak {at_least}{format_bytes(record.peak_allocated_bytes)} "
            f"({predicted}{record.device_info.name})"
        )
    elif record.device is None:
        parts.append("CUDA was never used")
    parts.append(f"{record.updates} updates in {format_seconds(record.wall_seconds)}")
    return ", ".join(parts)


def print_run(console: Console, record: RunRecord) -> None:
    """The run as a table."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows(record):
        table.add_row(name, plain(value))
    console.print(table)


def rows(record: RunRecord) -> list[tuple[str, str]]:
    """Names and values that a reader wants first; empty ones left out."""
    info, isolation = record.device_info, record.isolation
    found = [
        ("run", f"{record.run_id} ({record.purpose} pass)"),
        ("program", " ".join((record.program.label, *record.program.args))),
        ("outcome", f"{record.outcome}: {record.reason}"),
        ("where", _where(record)),
        (
            "device",
            f"{info.name}, {info.kind}, {format_bytes(info.capacity_bytes)}" if info else "none",
        ),
        ("out of memory", _oom(record)),
        ("peak allocated", _bytes(record.peak_allocated_bytes, record.peak_is_lower_bound)),
        ("peak reserved", _bytes(record.peak_reserved_bytes, False)),
        ("updates", str(record.updates)),
        ("losses", _losses(record)),
        ("parameters", _parameters(record)),
        ("torch", record.versions.torch or ""),
        (
            "sandbox",
            f"{isolation.kind}, files: {isolation.files}, network: {isolation.network}"
            if isolation
            else "",
        ),
        ("not stopped", "; ".join(isolation.not_stopped) if isolation else ""),
        ("held back", ", ".join(isolation.removed_environment) if isolation else ""),
        (
            "written",
            _written(record),
        ),
        ("virtual GPU", _virtual(record)),
        ("notes", "; ".join(record.recorder_notes)),
        ("took", format_seconds(record.wall_seconds)),
    ]
    return [(name, value) for name, value in found if value]


def _where(record: RunRecord) -> str:
    error = record.exception
    return f"{error.file}:{error.line}" if error is not None and error.file else ""


def _bytes(size_bytes: int | None, lower_bound: bool) -> str:
    if size_bytes is None:
        return ""
    return f"{'at least ' if lower_bound else ''}{format_bytes(size_bytes)} ({size_bytes:,} bytes)"


def _oom(record: RunRecord) -> str:
    oom = record.oom
    if oom is None:
        return ""
    times = "once" if oom.count == 1 else f"{oom.count} times"
    asked, live = format_bytes(oom.requested_bytes), format_bytes(oom.live_bytes)
    return f"{times}; at worst {asked} more than {live} live, after {oom.update} updates"


def _losses(record: RunRecord) -> str:
    known = [loss for loss in record.losses if loss is not None]
    if not known:
        return "not computed" if record.updates else ""
    return f"{known[0]:.6g} … {known[-1]:.6g} ({len(known)})"


def _parameters(record: RunRecord) -> str:
    if not record.parameters:
        return ""
    size_bytes = sum(parameter.size_bytes for parameter in record.parameters)
    return f"{len(record.parameters)} tensors, {format_bytes(size_bytes)}"


def _virtual(record: RunRecord) -> str:
    virtual = record.virtual
    if virtual is None:
        return ""
    doubts = list(virtual.not_modelled)
    if virtual.unsupported:
        doubts.append(f"{len(virtual.unsupported)} operations not modelled")
    if virtual.assumed_values:
        doubts.append(f"{virtual.assumed_values} assumed values")
    if virtual.upper_bound_shapes:
        doubts.append(f"{virtual.upper_bound_shapes} shapes at their largest")
    return f"{virtual.operations} operations; " + ("; ".join(doubts) or "all of them modelled")


def _written(record: RunRecord) -> str:
    count, isolation = len(record.written_files), record.isolation
    if not count or isolation is None:
        return ""
    more = " or more" if count >= WRITTEN_LIMIT else ""
    return f"{count}{more} files, in the sandbox only"
