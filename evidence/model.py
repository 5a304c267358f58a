"""The account of one device as frozen dataclasses: what replay and ledger hand on to plays, pack and reports.

Bytes come in four ledgers that are never added across: *requested* is what the program asked for, *allocated* is what
`torch.cuda.memory_allocated` counts (blocks rounded to 512 bytes, unsplit remainders included), *reserved* is mapped
segments, and *non-torch* is what the device holds beside the allocator.
"""

from dataclasses import dataclass
from typing import Literal, NewType

StackId = NewType("StackId", str)
GrowthId = NewType("GrowthId", str)

TickKind = Literal["update", "call"]
Missing = Literal["before recording", "lost by the ring", "no stack", "private pool"]
Phase = Literal["forward", "evaluation", "backward", "optimizer", "other"]
Category = Literal[
    "parameter",
    "gradient",
    "optimizer_state",
    "buffer",
    "activation",
    "input",
    "backward_temporary",
    "evaluation",
    "workspace",
    "variable",
    "other",
]
Lifetime = Literal["persistent", "several updates", "forward to backward", "step", "temporary"]
HolderKind = Literal[
    "variable", "attribute", "container", "closure", "exception", "global", "graph"
]


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
class Holder:
    """Who keeps a storage alive by reference: `history[3]` in a function, an attribute, a closure, a graph."""

    kind: HolderKind
    name: str
    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlock:
    """A block that is allocated at the peak.

    `born` is None when it is older than the recording; `lives_until` is None when it is never freed within it.
    `inferred` says that the category follows from stack and lifetime, not from what the recorder saw. `name` is the
    tensor's where the recorder named the storage (`GPT.blocks.3.attn.weight`), `module` the path of the module that
    ran.
    """

    stack: StackId | None
    allocated_bytes: int
    requested_bytes: int
    born: Tick | None
    missing: Missing | None = None
    lives_until: Tick | None = None
    address: int = 0
    stream: int = 0
    pool: tuple[int, int] = (0, 0)
    category: Category = "other"
    inferred: bool = True
    lifetime: Lifetime = "persistent"
    phase: Phase | None = None
    module: str = ""
    name: str = ""
    holder: Holder | None = None


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
    """Blocks of one stack that pile up: survivors at the peak from `ticks` different updates or calls.

    `leak` says that it was still growing in the last third of the recorded ticks; otherwise it is warm-up that came
    to rest.
    """

    id: GrowthId
    stack: StackId
    kind: TickKind
    ticks: int
    bytes_per_tick: int
    allocated_bytes: int
    leak: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The out-of-memory entry of the trace: the request that did not fit.

    `live_allocated_bytes` is what was allocated at that entry; a dump after unwinding has lost it by its end.
    """

    requested_bytes: int
    device_free_bytes: int
    stack: tuple[Frame, ...]
    live_allocated_bytes: int | None = None
    entry: int = 0
    stream: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment of the highest allocated bytes within the recorded window."""

    allocated_bytes: int
    requested_bytes: int
    entry: int
    tick: Tick
    time_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """The three ledgers of the allocator, each as torch's `memory_stats` counts it.

    As a peak, each is the highest of its own series, and these need not be at the same entry.
    """

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAccount:
    """What one stream holds of one memory pool. `pool` is (0, 0) for the default one.

    `at_peak` is at the entry of the device's peak, `peak` the highest of this account alone, `live` at the end.
    """

    stream: int
    pool: tuple[int, int]
    at_peak: Quantities
    peak: Quantities
    live: Quantities


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceSheet:
    """One moment of a device, closed to the byte.

    `requested + rounding = allocated`; `allocated + pending + cached + private_cached = reserved`; where the device's
    size is known, `reserved + non_torch + device_free = device_total`. `pending` was freed by the program while
    another stream used it, `cached` is free inside segments, `private_cached` is free inside a private pool (a CUDA
    graph's, which nothing else can use). `non_torch` is the CUDA context, other libraries and other processes.
    """

    entry: int
    requested_bytes: int
    rounding_bytes: int
    allocated_bytes: int
    pending_bytes: int
    cached_bytes: int
    private_cached_bytes: int
    reserved_bytes: int
    non_torch_bytes: int | None = None
    device_free_bytes: int | None = None
    device_total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What part of the program's life the history covers.

    `entries` are recorded; `lost_frees` blocks were freed within it though the history does not know their birth,
    `older_bytes` of the peak are older than it. `ring` says that its oldest entry is in the middle of the program's
    work, as a full ring or a late start leaves it.
    """

    entries: int
    first_time_us: int
    last_time_us: int
    lost_frees: int
    older_bytes: int
    ring: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The account of one device.

    `peak.allocated_bytes` equals the sum over `stacks` plus the sum over `unattributed`. `complete` says that no
    block (and no segment that could have held one) is older than the recording; otherwise the peak is that of the
    recorded window. `pending_bytes` were freed by the program at the peak but are still held for another stream: they
    are beside the peak, not in it. `uncertain_bytes` is by how much the peak may be higher than counted, because
    blocks older than the recording were freed in it. `contradictions` counts what cannot be true in the history;
    unless it is 0 nothing here holds to the byte. `balance` is at
    the peak, `end_balance` at the end of the history, `failure_balance` at the failing request.
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
    peaks: Quantities | None = None
    live: Quantities | None = None
    balance: BalanceSheet | None = None
    end_balance: BalanceSheet | None = None
    failure_balance: BalanceSheet | None = None
    pools: tuple[PoolAccount, ...] = ()
    window: Window | None = None
    cap_bytes: int | None = None

    @property
    def demand_bytes(self) -> int:
        """Peak of live bytes, or live plus the failing request where the program ran out of memory."""
        if self.failure is None:
            return self.peak.allocated_bytes
        live_bytes = self.failure.live_allocated_bytes
        if live_bytes is None:
            live_bytes = self.live_allocated_bytes
        return max(self.peak.allocated_bytes, live_bytes + self.failure.requested_bytes)

    @property
    def named_bytes(self) -> int:
        """Bytes of the peak that carry a line of the user's code or the name of a tensor."""
        with_line = {use.id for use in self.stacks if use.user_frames}
        return sum(
            block.allocated_bytes for block in self.blocks if block.stack in with_line or block.name
        )

    def stack(self, stack_id: StackId) -> StackUse:
        """The stack with this ID.

        Raises:
            KeyError: No stack has it.
        """
        for use in self.stacks:
            if use.id == stack_id:
                return use
        raise KeyError(stack_id)
