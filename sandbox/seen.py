"""The events of one run, by kind: what a record needs of them."""

from typing import TypeVar

from headroom.records import events as ev
from headroom.records.run import DeviceInfo, ExceptionInfo, OomInfo, Parameter, VirtualCoverage

E = TypeVar("E")


class Seen:
    """The events of one run, by kind."""

    def __init__(self, lines: list[ev.Event]) -> None:
        self._lines = lines
        self.device = self._device()
        self.peak = self._highest_peak()
        self.oom = self._worst_oom()
        raised = self.last(ev.Raised)
        self.exception: ExceptionInfo | None = raised.exception if raised else None

    def all(self, kind: type[E]) -> list[E]:
        """All events of a kind, in order."""
        return [event for event in self._lines if isinstance(event, kind)]

    def last(self, kind: type[E]) -> E | None:
        """The last event of a kind."""
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
        """Parameters of all outermost modules, as last written."""
        by_root = {event.root: event.parameters for event in self.all(ev.Parameters)}
        return tuple(
            parameter.model_copy(update={"root": root})
            for root, parameters in by_root.items()
            for parameter in parameters
        )

    def seeded(self) -> tuple[str, ...]:
        """What the recorder seeded."""
        torch = self.last(ev.Torch)
        return ("random", *torch.seeded) if torch else ("random",)

    def sources(self) -> dict[str, str]:
        """Hashes of the program's own files; empty where it died before they were listed."""
        event = self.last(ev.Sources)
        return event.files if event else {}

    def notes(self) -> tuple[str, ...]:
        """Hooks that could not be installed, or failed."""
        torch = self.last(ev.Torch)
        failed = tuple(f"hook not installed: {name}" for name in torch.failed) if torch else ()
        return failed + tuple(event.text for event in self.all(ev.Note))

    def virtual(self) -> VirtualCoverage | None:
        """What the virtual GPU said of itself."""
        event = self.last(ev.Virtual)
        if event is None:
            return None
        return VirtualCoverage(**event.model_dump(include=set(VirtualCoverage.model_fields)))
