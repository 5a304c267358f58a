"""Streams and events of the virtual device: work on them is done as soon as it is asked for."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch

from .device import VirtualDevice

CUDA_DEVICE_TYPE = 1  # c10::DeviceType::CUDA
DEFAULT_STREAM = 0
_RealStream: Any = torch.Stream
_ids = itertools.count(DEFAULT_STREAM + 1)


class Stream(_RealStream):  # type: ignore[misc]
    """Stands for `torch.cuda.Stream`."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        """A new stream, or the one that the arguments name."""
        stream_id = kwargs.get("stream_id")
        made: Stream = _RealStream.__new__(
            cls,
            stream_id=next(_ids) if stream_id is None else stream_id,
            device_index=0,
            device_type=CUDA_DEVICE_TYPE,
        )
        made._priority = priority
        return made

    @property
    def cuda_stream(self) -> int:
        """The raw handle; 0 is the default stream, as on a real device."""
        return int(self.stream_id)

    @property
    def priority(self) -> int:
        """As asked for; it changes nothing."""
        return int(getattr(self, "_priority", 0))

    def __enter__(self) -> Stream:
        """Makes it the current stream, as `torch.cuda.stream` does."""
        self._before = torch.cuda.current_stream()
        torch.cuda.set_stream(self)
        return self

    def __exit__(self, *raised: object) -> None:
        torch.cuda.set_stream(self._before)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Lowest and highest priority."""
        return 0, -5

    def wait_event(self, event: Event) -> None:
        """Nothing is left to wait for."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is left to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        """Records `event`, or a new one."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """All work is done."""
        return True

    def synchronize(self) -> None:
        """All work is done."""

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream


class ExternalStream(Stream):
    """Stands for `torch.cuda.ExternalStream`."""

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> Stream:
        """The stream with that handle."""
        return Stream.__new__(cls, stream_id=stream_ptr)


class Event:
    """Stands for `torch.cuda.Event`; times are the host's."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        self.device = torch.device("cuda", 0)
        self._timed = enable_timing
        self._at: float | None = None

    @property
    def cuda_event(self) -> int:
        """The raw handle; 0 before the event is recorded."""
        return 0 if self._at is None else id(self)

    def record(self, stream: Any = None) -> None:
        """Notes the time."""
        self._at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Nothing is left to wait for."""

    def query(self) -> bool:
        """All work is done."""
        return True

    def synchronize(self) -> None:
        """All work is done."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds on the host's clock between two recorded events.

        Raises:
            ValueError: an event without timing or not recorded, as torch says it.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1000.0


class _AnyDevice(type):
    """Lets `torch.Stream` and `torch.Event`, which serve every kind of device, make CUDA ones.

    What is an instance of the class that it stands for is one of the stand-in's, too.
    """

    real: type
    cuda: type

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Anything but the CPU's is ours: torch's own would ask a driver."""
        device = kwargs.get("device", args[0] if args else None)
        if isinstance(device, (str, torch.device)) and torch.device(device).type != "cuda":
            return cls.real(*args, **kwargs)
        kwargs.pop("device", None)
        return cls.cuda(**kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (cls.real, cls.cuda))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (cls.real, cls.cuda))


def _for_any_device(real: type, cuda: type) -> type:
    return _AnyDevice(real.__name__, (), {"real": real, "cuda": cuda})


def set_stream(device: VirtualDevice, stream_id: int) -> None:
    """`torch._C._cuda_setStream`."""
    if stream_id != DEFAULT_STREAM:
        device.report.not_modelled(
            "Work on a second CUDA stream: its backward pass is modelled on the default stream, and streams never lag."
        )
    device.stream = stream_id


def install(cuda: Any) -> None:
    """Puts the classes where programs find them."""
    for module in (cuda, cuda.streams):
        module.Stream = Stream
        module.ExternalStream = ExternalStream
        module.Event = Event
    torch.Stream = _for_any_device(torch.Stream, Stream)
    torch.Event = _for_any_device(torch.Event, Event)
