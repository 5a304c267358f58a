"""One execution of a program: what is asked for, and the `RunRecord` that it leaves."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from headroom.records.base import Part, Record

Outcome = Literal["completed", "oom", "failed", "killed", "timeout"]
Pass = Literal["measure", "trace"]
Device = Literal["cuda", "virtual"]


class Program(Part):
    """What the user runs, and under which interpreter."""

    kind: Literal["script", "module"]
    target: str = Field(description="absolute path of the script, or dotted name of the module")
    typed: str = Field(description="the script or module as the user typed it: `sys.argv[0]`")
    args: tuple[str, ...] = ()
    cwd: str
    roots: tuple[str, ...] = Field(
        (),
        description="folders that hold the program: copy-on-write in the sandbox, open to patches",
    )
    python: str = Field(description="absolute path of the user's interpreter")

    @property
    def label(self) -> str:
        """The short name that reports use."""
        return self.target.rsplit("/", 1)[-1] if self.kind == "script" else f"-m {self.target}"


class ExceptionInfo(Part):
    """The exception that ended the program, and the innermost line of the program's own files."""

    type: str
    message: str
    file: str | None = None
    line: int | None = None
    function: str | None = None
    traceback: str | None = None


class OomInfo(Part):
    """The allocator's out-of-memory events, as its observer saw them; bytes of the device.

    `requested_bytes` is the allocator's own request to the device for the failing allocation; `live_bytes` was
    allocated at that moment. Demand, their sum, is a lower bound of the peak.
    """

    count: int
    requested_bytes: int
    live_bytes: int
    reserved_bytes: int
    device_free_bytes: int
    device_total_bytes: int
    update: int


class DeviceInfo(Part):
    """The device of a run. `capacity_bytes` is the cap in force, else the whole device."""

    kind: Device
    name: str
    total_memory_bytes: int
    capacity_bytes: int
    capability: str | None = None
    count: int = 1


class Versions(Part):
    """Versions of everything that can change a result."""

    headroom: str
    python: str
    torch: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    numpy: str | None = None
    driver: str | None = None


class Parameter(Part):
    """A parameter of an outermost module, `root`; modules that share it each have it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool
    size_bytes: int
    on_device: bool = True
    root: str = ""


class CallSite(Part):
    """A line of the program that calls an outermost module (one that no other module is calling).

    `reached_calls` counts the calls whose output a gradient came back to: these are training; the rest is evaluation,
    whatever `.training` or grad mode said. `rows` are leading-dimension sizes of the first tensor argument,
    `reached_rows` those of reached calls. A line that calls a module in both modes has two such records, told apart by
    `eval_calls`.
    """

    file: str
    line: int
    function: str
    module: str
    calls: int
    grad_calls: int
    eval_calls: int
    reached_calls: int
    rows: int
    reached_rows: int = 0


class Phase(Part):
    """A stretch of outermost calls in one mode: `train` is the module's flag, `grad` is autograd's."""

    train: bool
    grad: bool
    first_update: int
    calls: int
    rows: int


class GitState(Part):
    """The version of the program's folder; None where it is not a Git work tree."""

    commit: str | None
    branch: str | None
    dirty: bool


class Isolation(Part):
    """What the sandbox really did on this machine, and what it does not stop."""

    kind: Literal["process"]
    network: Literal["none", "allowed", "not isolated"]
    files: Literal["overlay", "copy", "in place"]
    removed_environment: tuple[str, ...] = ()
    memory_limit_bytes: int | None = None
    time_limit_seconds: float | None = None
    not_stopped: tuple[str, ...] = ()


class VirtualCoverage(Part):
    """What the virtual GPU could not model in a run: the reasons to doubt its prediction."""

    card: str
    operations: int
    forward_operations: dict[str, int] = Field(
        {},
        description="device operations outside of backward passes, by name; views and copies included",
    )
    backward_operations: dict[str, int] = Field(
        {}, description="the same inside of backward passes"
    )
    unsupported: dict[str, str] = Field({}, description="operation: what was done instead")
    assumed_values: int = 0
    upper_bound_shapes: int = 0
    not_modelled: tuple[str, ...] = ()


class RunRecord(Record):
    """One run of a program. Times in seconds, memory in bytes of the first device.

    `losses[k]` is the loss of update k + 1 (the sum of the backward roots since the update before, loss scaling
    undone), `null` where no arithmetic took place or the root was not a scalar. `peak_allocated_bytes` is
    `max_memory_allocated` over the whole run, whatever the program reset; after an out-of-memory error it is live bytes
    plus the failing request where that is more, and `peak_is_lower_bound` is set.
    """

    run_id: str
    campaign_id: str | None = Field(None, description="the campaign that made this run")
    program: Program
    purpose: Pass = Field(alias="pass")
    outcome: Outcome
    exit_code: int | None = None
    signal: str | None = None
    reason: str = Field(description="one sentence: how the run ended")
    exception: ExceptionInfo | None = None
    device: Device | None = Field(None, description="null when the program never touched CUDA")
    device_info: DeviceInfo | None = None
    versions: Versions
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_is_lower_bound: bool = False
    non_torch_bytes: int | None = Field(
        None,
        description="of the device, when the program ended, beside the allocator's segments: CUDA context, other "
        "libraries, other processes",
    )
    oom: OomInfo | None = None
    updates: int = 0
    stopped_after_updates: bool = False
    losses: tuple[float | None, ...] = ()
    samples_per_update: tuple[int | None, ...] = ()
    gradients_per_update: tuple[int | None, ...] = Field(
        (),
        description="parameters that had a gradient at the optimizer steps since the update before",
    )
    step_seconds: tuple[float | None, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    phases: tuple[Phase, ...] = ()
    call_sites: tuple[CallSite, ...] = ()
    seed: int
    seeded: tuple[str, ...] = ()
    git: GitState | None = None
    sources: dict[str, str] = Field({}, description="SHA-256 of each file of the program, by path")
    snapshot: str | None = Field(None, description="file name inside the run's folder")
    snapshot_complete: bool | None = Field(
        None, description="false when the allocator's history ring had wrapped before the dump"
    )
    names: str | None = Field(
        None,
        description="file name inside the run's folder: names of live storages (`records.names`)",
    )
    written_files: tuple[str, ...] = ()
    isolation: Isolation | None = None
    virtual: VirtualCoverage | None = None
    recorder_notes: tuple[str, ...] = Field((), description="hooks that could not be installed")
    started_at: datetime
    wall_seconds: float

    @property
    def demand_bytes(self) -> int | None:
        """The peak as targets and tables use it."""
        return self.peak_allocated_bytes
