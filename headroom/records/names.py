"""Names of live storages: one JSON line for each walk that the recorder took in a `trace` pass.

An address is a storage's, not a tensor's: views share it. It says what lay there at `time_us`; the same address may
have held something else before and after.
"""

from typing import Literal

from headroom.records.base import Part, read_json_lines

NAMES_VERSION = 1

Category = Literal["parameter", "gradient", "optimizer_state", "buffer", "variable", "saved"]
HolderKind = Literal[
    "variable", "attribute", "container", "closure", "exception", "global", "graph"
]
WalkReason = Literal["oom", "update", "call", "end"]


class Holder(Part):
    """Who keeps a storage alive, and where that variable stands.

    `name` is written as Python would reach it (`history[3]`, `self.cache['x']`, `losses[12].grad_fn`); parts in angle
    brackets are no Python (`f.<closure> x`). `line` is the one that the frame was executing; file, line and function
    are null where the variable was not found, only what it holds.
    """

    kind: HolderKind
    name: str
    file: str | None = None
    line: int | None = None
    function: str | None = None


class Storage(Part):
    """One live storage. `size_bytes` is its own size, which the allocator rounds up."""

    device: int
    address: int
    size_bytes: int
    category: Category
    name: str
    holder: Holder | None = None


class NamesWalk(Part):
    """What was live at one moment, largest first.

    `time_us` is microseconds since the epoch, as the allocator's. `cut` says that the walk ran out of time and that
    names or storages are missing. `live_bytes` are the allocator's, of all devices.
    """

    v: Literal[1]
    time_us: int
    reason: WalkReason
    update: int
    call: int = 0
    live_bytes: int = 0
    cut: bool = False
    storages: tuple[Storage, ...]


def read_names(text: str) -> list[NamesWalk]:
    """Validate the lines of a `names.jsonl`; a torn last one is left out.

    Raises:
        ValueError: A line that is not the last is no walk of this version.
    """
    return read_json_lines(text, NamesWalk.model_validate_json, "a walk over names")
