"""What every sandbox takes and gives, whatever isolates the program."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from headroom.records.run import Device, Pass, Program, RunRecord

HISTORY_ENTRIES = 1_000_000
"""Ring size of the allocator's history in a `trace` pass.

The ring has to hold the peak. One entry costs the host about 0.6 KiB, so a full ring is some 600 MiB of host memory.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a run is stopped from outside. None is no limit.

    Resident memory is the sum over the program's processes; an address-space limit would break CUDA, which reserves
    far more addresses than it uses.
    """

    seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run to make.

    Args:
        run_id: The run's name in the store.
        folder: Where the run's artifacts go; exists and is empty.
        program: What to run.
        purpose: The pass.
        device: `cuda`, or `virtual` for the virtual GPU.
        card: Which card the virtual GPU simulates.
        capacity_bytes: Cap on what the allocator may reserve; None is the whole device.
        unlimited: Let a virtual GPU never run out, so that a program which does not fit can be seen to its end.
        seed: Seeds `random`, numpy and torch before the program starts.
        updates: Stop the program after this many updates.
        limits: Time and resident memory.
        network: Whether the program may reach the network.
        keep_environment: Names of secret-looking variables that the program keeps.
        changed_files: New contents, by absolute path, that only this run sees.
    """

    run_id: str
    folder: Path
    program: Program
    purpose: Pass
    device: Device
    card: str | None = None
    capacity_bytes: int | None = None
    unlimited: bool = False
    seed: int = 0
    updates: int | None = None
    limits: Limits = Limits()
    network: bool = False
    keep_environment: tuple[str, ...] = ()
    changed_files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Where the program's output goes while it runs; None keeps it in the run's folder only.

    `stdin` says whether the program reads Headroom's own standard input; otherwise it sees an empty one.
    """

    stdout: BinaryIO | None = None
    stderr: BinaryIO | None = None
    stdin: bool = False


class Sandbox(Protocol):
    """Runs a program and always comes back with a record.

    Raises:
        SandboxError: The sandbox itself could not start; nothing of the program ran.
    """

    def run(self, request: RunRequest, terminal: Terminal) -> RunRecord:
        """Run the program once. A Ctrl-C ends the program and gives the outcome `killed`."""
        ...

    def describe(self, *, network: bool) -> str:
        """What it does on this machine, in a phrase: said before anything runs."""
        ...
