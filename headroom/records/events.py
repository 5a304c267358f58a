"""The recorder's JSON lines: one model for each `kind`, and the reader that validates them.

The recorder runs in the user's interpreter and imports nothing of ours, so it writes plain dictionaries; this is the
other side of that contract. `tests/golden/events.jsonl` tests both.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from headroom.records.base import Part, read_json_lines
from headroom.records.run import CallSite, ExceptionInfo, Parameter, Phase

EVENTS_VERSION = 1


class _Event(Part):
    v: Literal[1]


class Start(_Event):
    """First line: the interpreter is up and the program is about to start."""

    kind: Literal["start"]
    pid: int
    python: str
    seed: int


class Torch(_Event):
    """The program has imported torch; hooks are in place, apart from those in `failed`."""

    kind: Literal["torch"]
    torch: str
    cuda: str | None
    cudnn: str | None
    seeded: tuple[str, ...]
    failed: tuple[str, ...]


class DeviceSeen(_Event):
    """CUDA was initialised by the program."""

    kind: Literal["device"]
    device: Literal["cuda", "virtual"]
    name: str
    total_memory_bytes: int
    capacity_bytes: int
    capability: str
    count: int
    driver: str | None


class Parameters(_Event):
    """Parameters of an outermost module, when it was first called."""

    kind: Literal["parameters"]
    root: str
    parameters: tuple[Parameter, ...]


class Update(_Event):
    """An update is complete: `index` counts from 1."""

    kind: Literal["update"]
    index: int
    loss: float | None
    samples: int | None
    gradients: int | None = None
    seconds: float | None


class Peak(_Event):
    """`max_memory_allocated` and `max_memory_reserved` so far, whatever the program reset."""

    kind: Literal["peak"]
    allocated_bytes: int
    reserved_bytes: int


class DeviceMemory(_Event):
    """What the driver says of the device at the end, and what the allocator holds of it."""

    kind: Literal["device_memory"]
    device: int
    free_bytes: int
    total_bytes: int
    reserved_bytes: int


class Oom(_Event):
    """The out-of-memory observer was called."""

    kind: Literal["oom"]
    requested_bytes: int
    live_bytes: int
    reserved_bytes: int
    device_free_bytes: int
    device_total_bytes: int
    update: int


class Snapshot(_Event):
    """A snapshot was written into the run's folder."""

    kind: Literal["snapshot"]
    file: str
    entries: int
    max_entries: int
    reason: Literal["oom", "end"]


class NamesWalked(_Event):
    """A walk over live storages was appended to a file in the run's folder; `walks` counts from 1."""

    kind: Literal["names"]
    file: str
    walks: int
    reason: Literal["oom", "update", "call", "end"]
    seconds: float
    cut: bool


class Calls(_Event):
    """Call sites and phases so far; the last such line counts."""

    kind: Literal["calls"]
    sites: tuple[CallSite, ...]
    phases: tuple[Phase, ...]


class Sources(_Event):
    """SHA-256 of the program's own files."""

    kind: Literal["sources"]
    files: dict[str, str]
    numpy: str | None


class Virtual(_Event):
    """What the virtual GPU could not model."""

    kind: Literal["virtual"]
    card: str
    operations: int
    forward_operations: dict[str, int]
    backward_operations: dict[str, int]
    unsupported: dict[str, str]
    assumed_values: int
    upper_bound_shapes: int
    not_modelled: tuple[str, ...]


class Unavailable(_Event):
    """The recorder cannot run the program as asked, and says why; nothing of the program ran."""

    kind: Literal["unavailable"]
    reason: str


class Raised(_Event):
    """The program ended with an exception (SystemExit with a failing code included)."""

    kind: Literal["raised"]
    exception: ExceptionInfo
    oom: bool


class Note(_Event):
    """A hook failed; the program went on."""

    kind: Literal["note"]
    text: str


class End(_Event):
    """Last line: the main module is done, normally or not."""

    kind: Literal["end"]
    stopped_after_updates: bool


Event = Annotated[
    Start
    | Torch
    | DeviceSeen
    | Parameters
    | Update
    | Peak
    | DeviceMemory
    | Oom
    | Snapshot
    | NamesWalked
    | Calls
    | Sources
    | Virtual
    | Unavailable
    | Raised
    | Note
    | End,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)


def read_events(text: str) -> list[Event]:
    """Validate the recorder's lines; a torn last one is left out.

    Raises:
        ValueError: A line that is not the last is no event of this version.
    """
    return read_json_lines(text, _ADAPTER.validate_json, "an event")
