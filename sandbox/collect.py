"""From the recorder's lines and the way the process ended to the `RunRecord`. Reads files, starts nothing."""

import contextlib
import hashlib
import platform
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from headroom import __version__
from headroom.errors import PrerequisiteError, SandboxError
from headroom.records import events as ev
from headroom.records.run import (
    GitState,
    Isolation,
    Outcome,
    RunRecord,
    Versions,
)
from headroom.sandbox.protocol import RunRequest
from headroom.sandbox.seen import Seen
from headroom.sandbox.supervisor import Exit

INTERRUPTED: Final = "interrupted from the keyboard"
OVER_MEMORY: Final = "stopped by Headroom at the limit on resident memory"
REASON_LIMIT: Final = 200
NO_VIRTUAL_GPU: Final = (
    "headroom ... --device cuda   (on a machine with a GPU), or --python with a torch that it knows"
)
_STOPPED: Final[dict[str, tuple[Outcome, str]]] = {
    "time": ("timeout", "stopped by Headroom at the time limit"),
    "memory": ("killed", OVER_MEMORY),
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
    seen = Seen(_read_lines(request.folder / "events.jsonl"))
    unavailable = seen.last(ev.Unavailable)
    if unavailable is not None:
        raise PrerequisiteError(unavailable.reason, NO_VIRTUAL_GPU)
    outcome, reason = judge(seen, ended)
    peak_bytes, is_lower_bound = _peak(seen, outcome)
    snapshot = seen.last(ev.Snapshot)
    names = seen.last(ev.NamesWalked)
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
        non_torch_bytes=_non_torch(seen),
        oom=seen.oom,
        updates=updates[-1].index if updates else 0,
        stopped_after_updates=bool(end and end.stopped_after_updates),
        losses=tuple(event.loss for event in updates),
        samples_per_update=tuple(event.samples for event in updates),
        gradients_per_update=tuple(event.gradients for event in updates),
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
        names=names.file if names else None,
        written_files=around.written_files,
        isolation=around.isolation,
        virtual=seen.virtual(),
        recorder_notes=seen.notes(),
        started_at=around.started_at,
        wall_seconds=ended.wall_seconds,
    )


def _read_lines(path: Path) -> list[ev.Event]:
    try:
        return ev.read_events(
            path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        )
    except ValueError as error:
        raise SandboxError(f"the recorder's events cannot be read: {error}") from error


def judge(seen: Seen, ended: Exit) -> tuple[Outcome, str]:
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
    """The first line, cut after its second sentence: torch explains an out-of-memory error at length."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    return ". ".join(line.split(". ")[:2])[:REASON_LIMIT]


def _peak(seen: Seen, outcome: Outcome) -> tuple[int | None, bool]:
    """Peak allocated bytes; after an out-of-memory error the demand, flagged as a lower bound."""
    if seen.peak is None and seen.oom is None:
        return None, False
    measured = seen.peak.allocated_bytes if seen.peak else 0
    if outcome == "oom" and seen.oom is not None:
        return max(measured, seen.oom.live_bytes + seen.oom.requested_bytes), True
    return measured, outcome in ("killed", "timeout", "failed")


def _non_torch(seen: Seen) -> int | None:
    """What the first device held beside the allocator's segments at the end; None where another was the current one."""
    told = seen.last(ev.DeviceMemory)
    if told is None or told.device != 0:
        return None
    return max(0, told.total_bytes - told.free_bytes - told.reserved_bytes)


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


def _versions(seen: Seen) -> Versions:
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
