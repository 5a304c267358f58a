"""From the recorder's lines and the way the process ended to the `RunRecord`. Reads files, starts nothing."""

import contextlib
import hashlib
import platform
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from headroom import __version__
from headroom.errors import PrerequisiteError, SandboxError
from headroom.records import events as ev
from headroom.records.run import (
    DeviceInfo,
    ExceptionInfo,
    GitState,
    Isolation,
    OomInfo,
    Outcome,
    Parameter,
    RunRecord,
    Versions,
    VirtualCoverage,
)
from headroom.sandbox.protocol import RunRequest
from headroom.sandbox.supervisor import Exit

E = TypeVar("E")

INTERRUPTED: Final = "interrupted from the keyboard"
_STOPPED: Final[dict[str, tuple[Outcome, str]]] = {
    "time": ("timeout", "stopped by Headroom at the time limit"),
    "memory": ("killed", "stopped by Headroom at the limit on resident memory"),
    "interrupt": ("killed", INTERRUPTED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of a run from outside the process."""

    started_at: datetime
    git: GitState | None
    written_files: tuple[str, ...]
    isolation: Isolation


def collect(request: RunRequest, ended: Exit, around: Surroundings) -> RunRecord:
    """Fold a run's events and exit into its record.

    Raises:
        PrerequisiteError: The recorder said that it cannot run the program as asked.
        SandboxError: The recorder's lines are not of this version.
    """
    path = request.folder / "events.jsonl"
    try:
        lines = ev.read_events(path.read_text(errors="replace") if path.exists() else "")
    except ValueError as error:
        raise SandboxError(f"the recorder's events cannot be read: {error}") from error
    for event in lines:
        if isinstance(event, ev.Unavailable):
            raise PrerequisiteError(event.reason)
    seen = _Seen(lines)
    outcome, reason = judge(seen, ended)
    peak_bytes, is_lower_bound = _peak(seen, outcome)
    snapshot = seen.last(ev.Snapshot)
    calls = seen.last(ev.Calls)
    updates = seen.all(ev.Update)
    end = seen.last(ev.End)
    return RunRecord(
        run_id=request.run_id,
        program=request.program,
        purpose=request.purpose,
        outcome=outcome,
        exit_code=ended.code,
        signal=ended.signal,
        reason=reason,
        exception=seen.exception,
        device=request.device if seen.device else None,
        device_info=seen.device,
        versions=_versions(seen),
        peak_allocated_bytes=peak_bytes,
        peak_reserved_bytes=seen.peak.reserved_bytes if seen.peak else None,
        peak_is_lower_bound=is_lower_bound,
        oom=seen.oom,
        updates=updates[-1].index if updates else 0,
        stopped_after_updates=bool(end and end.stopped_after_updates),
        losses=tuple(event.loss for event in updates),
        samples_per_update=tuple(event.samples for event in updates),
        step_seconds=tuple(event.seconds for event in updates),
        parameters=seen.parameters(),
        phases=calls.phases if calls else (),
        call_sites=calls.sites if calls else (),
        seed=request.seed,
        seeded=seen.seeded(),
        git=around.git,
        sources=seen.sources() or _entry_hash(request),
        snapshot=snapshot.file if snapshot else None,
        snapshot_complete=snapshot.entries < snapshot.max_entries if snapshot else None,
        written_files=around.written_files,
        isolation=around.isolation,
        virtual=seen.virtual(),
        recorder_notes=seen.notes(),
        started_at=around.started_at,
        wall_seconds=ended.wall_seconds,
    )


def judge(seen: "_Seen", ended: Exit) -> tuple[Outcome, str]:
    """The outcome and its sentence, from the recorder's last words and the process's end."""
    if ended.stopped is not None:
        return _STOPPED[ended.stopped]
    if ended.signal is not None:
        return "killed", f"killed by {ended.signal}"
    raised = seen.last(ev.Raised)
    if raised is not None and raised.oom:
        return "oom", f"{raised.exception.type}: {_first_line(raised.exception.message)}"
    if raised is not None and raised.exception.type == "SystemExit":
        return "failed", f"the program left by sys.exit({raised.exception.message})"
    if raised is not None:
        return "failed", f"{raised.exception.type}: {_first_line(raised.exception.message)}"
    end = seen.last(ev.End)
    if end is None:
        return "failed", f"the process left with code {ended.code} before its main module was done"
    if ended.code != 0:
        return "failed", f"the process left with code {ended.code} after its main module was done"
    if end.stopped_after_updates:
        return "completed", "stopped by Headroom after the number of updates asked for"
    return "completed", "the program ended normally"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _peak(seen: "_Seen", outcome: Outcome) -> tuple[int | None, bool]:
    """Peak allocated bytes; after an out-of-memory error the demand, flagged as a lower bound."""
    if seen.peak is None and seen.oom is None:
        return None, False
    measured = seen.peak.allocated_bytes if seen.peak else 0
    if outcome == "oom" and seen.oom is not None:
        return max(measured, seen.oom.live_bytes + seen.oom.requested_bytes), True
    return measured, outcome in ("killed", "timeout", "failed")


def _entry_hash(request: RunRequest) -> dict[str, str]:
    """The script's own hash, for programs that died before the recorder could list all files."""
    if request.program.kind != "script":
        return {}
    path = request.program.target
    content = request.changed_files.get(path)
    if content is None:
        with contextlib.suppress(OSError):
            content = Path(path).read_bytes()
    return {} if content is None else {path: hashlib.sha256(content).hexdigest()}


def _versions(seen: "_Seen") -> Versions:
    start, torch = seen.last(ev.Start), seen.last(ev.Torch)
    device, sources = seen.last(ev.DeviceSeen), seen.last(ev.Sources)
    return Versions(
        headroom=__version__,
        python=start.python if start else platform.python_version(),
        torch=torch.torch if torch else None,
        cuda=torch.cuda if torch else None,
        cudnn=torch.cudnn if torch else None,
        numpy=sources.numpy if sources else None,
        driver=device.driver if device else None,
    )


class _Seen:
    """The events of one run, by kind."""

    def __init__(self, lines: list[ev.Event]) -> None:
        self._lines = lines
        self.device = self._device()
        self.peak = self._highest_peak()
        self.oom = self._worst_oom()
        raised = self.last(ev.Raised)
        self.exception: ExceptionInfo | None = raised.exception if raised else None

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self._lines if isinstance(event, kind)]

    def last(self, kind: type[E]) -> E | None:
        found = self.all(kind)
        return found[-1] if found else None

    def _device(self) -> DeviceInfo | None:
        event = self.last(ev.DeviceSeen)
        if event is None:
            return None
        return DeviceInfo(
            kind=event.device,
            name=event.name,
            total_memory_bytes=event.total_memory_bytes,
            capacity_bytes=event.capacity_bytes,
            capability=event.capability,
            count=event.count,
        )

    def _highest_peak(self) -> ev.Peak | None:
        peaks = self.all(ev.Peak)
        if not peaks:
            return None
        return ev.Peak(
            v=1,
            kind="peak",
            allocated_bytes=max(peak.allocated_bytes for peak in peaks),
            reserved_bytes=max(peak.reserved_bytes for peak in peaks),
        )

    def _worst_oom(self) -> OomInfo | None:
        events = self.all(ev.Oom)
        if not events:
            return None
        worst = max(events, key=lambda event: event.live_bytes + event.requested_bytes)
        return OomInfo(
            count=len(events),
            requested_bytes=worst.requested_bytes,
            live_bytes=worst.live_bytes,
            reserved_bytes=worst.reserved_bytes,
            device_free_bytes=worst.device_free_bytes,
            device_total_bytes=worst.device_total_bytes,
            update=worst.update,
        )

    def parameters(self) -> tuple[Parameter, ...]:
        by_root = {event.root: event.parameters for event in self.all(ev.Parameters)}
        return tuple(parameter for parameters in by_root.values() for parameter in parameters)

    def seeded(self) -> tuple[str, ...]:
        torch = self.last(ev.Torch)
        return ("random", *torch.seeded) if torch else ("random",)

    def sources(self) -> dict[str, str]:
        event = self.last(ev.Sources)
        return event.files if event else {}

    def notes(self) -> tuple[str, ...]:
        torch = self.last(ev.Torch)
        failed = tuple(f"hook not installed: {name}" for name in torch.failed) if torch else ()
        return failed + tuple(event.text for event in self.all(ev.Note))

    def virtual(self) -> VirtualCoverage | None:
        event = self.last(ev.Virtual)
        if event is None:
            return None
        return VirtualCoverage(
            card=event.card,
            operations=event.operations,
            unsupported=event.unsupported,
            assumed_values=event.assumed_values,
            upper_bound_shapes=event.upper_bound_shapes,
            not_modelled=event.not_modelled,
        )
