"""The account of a snapshot as frozen dataclasses: what replay, ledger, growth and pack hand on.

Bytes come in two ledgers that are never added: *requested* is what the program asked for, *allocated* is what
`torch.cuda.memory_allocated` counts (blocks rounded to 512 bytes, unsplit remainders included).
"""

from dataclasses import dataclass
from typing import Literal, NewType

StackId = NewType("StackId", str)
GrowthId = NewType("GrowthId", str)

TickKind = Literal["update", "call"]
Missing = Literal["before recording", "no stack", "private pool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame of an allocation stack; `line` counts from 1, 0 where it is unknown."""

    filename: str
    line: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Where the program stood: updates complete so far, and outermost module calls begun so far."""

    update: int
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlock:
    """A block that is allocated at the peak. `born` is None when it is older than the recording."""

    stack: StackId | None
    allocated_bytes: int
    requested_bytes: int
    born: Tick | None
    missing: Missing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackUse:
    """All blocks at the peak that share one stack (by content, innermost frame first)."""

    id: StackId
    frames: tuple[Frame, ...]
    user_frames: tuple[Frame, ...]
    backward: bool
    allocated_bytes: int
    requested_bytes: int
    blocks: int

    @property
    def site(self) -> Frame | None:
        """The innermost line of the user's own code, if the stack has one."""
        return self.user_frames[0] if self.user_frames else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Blocks of one stack that pile up: survivors at the peak from `ticks` different updates or calls."""

    id: GrowthId
    stack: StackId
    kind: TickKind
    ticks: int
    bytes_per_tick: int
    allocated_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The out-of-memory entry of the trace: the request that did not fit.

    `live_allocated_bytes` is what was allocated at that entry; a dump after unwinding has lost it by its end.
    """

    requested_bytes: int
    device_free_bytes: int
    stack: tuple[Frame, ...]
    live_allocated_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment of the highest allocated bytes within the recorded window."""

    allocated_bytes: int
    requested_bytes: int
    entry: int
    tick: Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The account of one device.

    `peak.allocated_bytes` equals the sum over `stacks` plus the sum over `unattributed`. `complete` says that no block
    (and no segment that could have held one) is older than the recording; otherwise the peak is that of the
    recorded window. `pending_bytes` were freed by the program at the peak but are still held for another stream: they
    are beside the peak, not in it. `uncertain_bytes` is by how much the peak may be higher than counted, because
    blocks older than the recording were freed in it. `contradictions` counts what cannot be true in the history;
    unless it is 0 nothing here holds to the byte.
    """

    device: int
    peak: Peak
    live_allocated_bytes: int
    live_requested_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    complete: bool
    entries: int
    stacks: tuple[StackUse, ...]
    blocks: tuple[LiveBlock, ...]
    unattributed: dict[Missing, int]
    growth: tuple[Growth, ...]
    failure: Failure | None
    pending_bytes: int = 0
    uncertain_bytes: int = 0
    contradictions: int = 0

    @property
    def demand_bytes(self) -> int:
        """Peak of live bytes, or live plus the failing request where the program ran out of memory."""
        if self.failure is None:
            return self.peak.allocated_bytes
        live_bytes = self.failure.live_allocated_bytes
        if live_bytes is None:
            live_bytes = self.live_allocated_bytes
        return max(self.peak.allocated_bytes, live_bytes + self.failure.requested_bytes)

    def stack(self, stack_id: StackId) -> StackUse:
        """The stack with this ID.

        Raises:
            KeyError: No stack has it.
        """
        for use in self.stacks:
            if use.id == stack_id:
                return use
        raise KeyError(stack_id)
