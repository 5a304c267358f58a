"""torch's out-of-memory message, read as data: all that is known when there is no snapshot. Pure.

Source of the sentences: `DeviceCachingAllocator::malloc` in c10/cuda/CUDACachingAllocator.cpp, torch 1.12 to 2.13.
Older ones have no "process has ... in use"; the amounts are rounded to two decimals of their unit, so nothing here is
exact to the byte.
"""

import re
from dataclasses import dataclass
from typing import Final

from headroom.units import format_bytes as shown
from headroom.units import parse_bytes

_SIZE: Final = r"(\d+(?:\.\d+)?\s*(?:[KMGT]i?B|bytes|B))"
_MESSAGE: Final = re.compile(r"(?:CUDA|HIP) out of memory\.|OutOfMemoryError")
_AMOUNTS: Final = {
    "requested_bytes": re.compile(rf"Tried to allocate {_SIZE}"),
    "total_bytes": re.compile(rf"(?:total capacity of {_SIZE})|(?:{_SIZE} total capacity)"),
    "free_bytes": re.compile(rf"(?:of which {_SIZE} is free)|(?:{_SIZE} free;)"),
    "process_bytes": re.compile(rf"this process has {_SIZE} memory in use"),
    "limit_bytes": re.compile(rf"(?:{_SIZE} allowed)|(?:{_SIZE} cap)"),
    "allocated_bytes": re.compile(
        rf"(?:allocated memory {_SIZE} is allocated by PyTorch)|(?:{_SIZE} already allocated)"
    ),
    "reserved_unallocated_bytes": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
    "reserved_bytes": re.compile(rf"{_SIZE} reserved in total by PyTorch"),
}
_DEVICE: Final = re.compile(r"GPU (\d+)")
_FRAME: Final = re.compile(
    r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OomMessage:
    """The amounts that a message states, each None where it does not, and the innermost line of a traceback above it.

    `allocated_bytes` is live tensors, `reserved_unallocated_bytes` free memory inside torch's segments, `process_bytes`
    what the whole process holds of the device, `limit_bytes` a cap by `set_per_process_memory_fraction`.
    """

    device: int | None
    requested_bytes: int | None
    total_bytes: int | None
    free_bytes: int | None
    process_bytes: int | None
    limit_bytes: int | None
    allocated_bytes: int | None
    reserved_unallocated_bytes: int | None
    file: str | None
    line: int | None

    @property
    def demand_bytes(self) -> int | None:
        """Live plus the failing request: what the program needed at least."""
        if self.allocated_bytes is None or self.requested_bytes is None:
            return None
        return self.allocated_bytes + self.requested_bytes

    @property
    def reserved_bytes(self) -> int | None:
        """What torch held of the device."""
        if self.allocated_bytes is None or self.reserved_unallocated_bytes is None:
            return None
        return self.allocated_bytes + self.reserved_unallocated_bytes

    @property
    def elsewhere_bytes(self) -> int | None:
        """What is neither free nor this process's, where the message tells that, or else neither free nor torch's."""
        own = self.process_bytes if self.process_bytes is not None else self.reserved_bytes
        if self.total_bytes is None or self.free_bytes is None or own is None:
            return None
        return max(0, self.total_bytes - self.free_bytes - own)


def read_oom_message(text: str) -> OomMessage | None:
    """Find the last out-of-memory message in a text, such as the end of a log; None where there is none."""
    starts = [match.start() for match in _MESSAGE.finditer(text)]
    if not starts:
        return None
    with_amount = [start for start in starts if "Tried to allocate" in text[start : start + 400]]
    start = (with_amount or starts)[-1]
    message = text[start : start + 2000]
    device = _DEVICE.search(message)
    amounts = {name: _amount(pattern, message) for name, pattern in _AMOUNTS.items()}
    reserved = amounts["reserved_bytes"]
    unallocated = amounts["reserved_unallocated_bytes"]
    if unallocated is None and reserved is not None and amounts["allocated_bytes"] is not None:
        unallocated = max(0, reserved - amounts["allocated_bytes"])
    frames = list(_FRAME.finditer(text[:start]))
    own = [frame for frame in frames if "site-packages" not in frame["file"]]
    where = (own or frames)[-1] if frames else None
    return OomMessage(
        device=int(device[1]) if device else None,
        requested_bytes=amounts["requested_bytes"],
        total_bytes=amounts["total_bytes"],
        free_bytes=amounts["free_bytes"],
        process_bytes=amounts["process_bytes"],
        limit_bytes=amounts["limit_bytes"],
        allocated_bytes=amounts["allocated_bytes"],
        reserved_unallocated_bytes=unallocated,
        file=where["file"] if where else None,
        line=int(where["line"]) if where else None,
    )


def _amount(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    if match is None:
        return None
    size = next(group for group in match.groups() if group is not None)
    return parse_bytes(size.replace("bytes", "B"))


def what_it_says(message: OomMessage) -> tuple[str, ...]:
    """What can honestly be said from the message alone, a sentence each, the most useful first."""
    said = []
    asked, live = message.requested_bytes, message.allocated_bytes
    if asked is not None and live is not None and message.demand_bytes is not None:
        said.append(
            f"The program needed at least {shown(message.demand_bytes)}: {shown(live)} were live when it asked for "
            f"{shown(asked)} more."
        )
    elif asked is not None:
        said.append(f"A request for {shown(asked)} failed; the message does not say what was live.")
    unused, elsewhere = message.reserved_unallocated_bytes, message.elsewhere_bytes
    if unused is not None and asked is not None:
        if unused >= asked:
            said.append(
                f"{shown(unused)} were free inside torch's segments, more than was asked for: fragmentation is a "
                "likely cause, and `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` may help without a change of "
                "the program."
            )
        else:
            said.append(
                f"Only {shown(unused)} were free inside torch's segments, so fragmentation alone does not explain it."
            )
    if elsewhere is not None and live is not None and elsewhere > max(live, 1) // 2:
        said.append(
            f"{shown(elsewhere)} of the device are held outside this program's tensors: by another process, most "
            "likely; look at nvidia-smi first."
        )
    if message.limit_bytes is not None:
        said.append(f"The process was limited to {shown(message.limit_bytes)} of the device.")
    said.append("Which lines hold the memory, the message does not say: that takes a snapshot.")
    return tuple(said)
