"""Peaks, the cap, the out-of-memory observer, and the allocator's history with its snapshot."""

import gc
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from .attribution import Attribution
from .config import Config
from .lines import Lines
from .names import Names
from .progress import Progress
from .snapshots import finish_snapshot

PEAK_EVERY_SECONDS = 1.0
SNAPSHOT_FILE = "snapshot.pickle"
PROTOCOL = 4
"""torch's own viewer reads protocol 4 and not 5."""


class Memory:
    """Everything that asks the caching allocator. Nothing here allocates on the device."""

    def __init__(
        self,
        torch: ModuleType,
        config: Config,
        lines: Lines,
        progress: Progress,
        kind: str,
        attribution: "Attribution | None" = None,
        names: "Names | None" = None,
    ) -> None:
        self._torch, self._config, self._lines, self._progress = torch, config, lines, progress
        self._kind, self._attribution, self._names = kind, attribution, names
        self._kept_allocated_bytes = 0
        self._kept_reserved_bytes = 0
        self._next_peak = 0.0
        self._dumped_oom = False
        self.initialised = False

    def install(self) -> None:
        """Wait for the program to initialise CUDA, and keep the peaks that it resets."""
        cuda = self._torch._C
        reset: Callable[[int], None] | None = getattr(cuda, "_cuda_resetPeakMemoryStats", None)
        if reset is not None:
            keep = self._lines.guarded(self._keep_peak)

            def reset_after_keeping(device: int) -> None:
                keep()
                reset(device)

            cuda._cuda_resetPeakMemoryStats = reset_after_keeping
        self._torch.cuda._lazy_call(self._lines.guarded(self._on_initialised))

    def _on_initialised(self) -> None:
        torch, cuda = self._torch, self._torch.cuda
        self.initialised = True
        properties = cuda.get_device_properties(0)
        capacity_bytes = properties.total_memory
        if self._config.capacity_bytes is not None and self._config.capacity_bytes < capacity_bytes:
            capacity_bytes = self._config.capacity_bytes
            if self._kind == "cuda":
                for device in range(cuda.device_count()):
                    total = cuda.get_device_properties(device).total_memory
                    cuda.set_per_process_memory_fraction(min(1.0, capacity_bytes / total), device)
        self._lines.write(
            "device",
            device=self._kind,
            name=properties.name,
            total_memory_bytes=properties.total_memory,
            capacity_bytes=capacity_bytes,
            capability=f"{properties.major}.{properties.minor}",
            count=cuda.device_count(),
            driver=driver_version() if self._kind == "cuda" else None,
        )
        torch._C._cuda_attach_out_of_memory_observer(self._lines.guarded(self._on_oom))
        if self._config.trace:
            cuda.memory._record_memory_history(
                max_entries=self._config.history_entries, stacks="python", context="alloc"
            )
            if self._attribution is not None:
                self._attribution.on_initialised()

    def peak(self) -> "tuple[int, int]":
        """Highest allocated and reserved bytes of any device so far, whatever the program reset."""
        allocated, reserved = self._kept_allocated_bytes, self._kept_reserved_bytes
        for device in range(self._torch.cuda.device_count()):
            stats = self._torch._C._cuda_memoryStats(device)
            allocated = max(allocated, stats["allocated_bytes"]["all"]["peak"])
            reserved = max(reserved, stats["reserved_bytes"]["all"]["peak"])
        return allocated, reserved

    def _keep_peak(self) -> None:
        if self.initialised:
            self._kept_allocated_bytes, self._kept_reserved_bytes = self.peak()

    def write_peak(self, *, at_most_every_second: bool = False) -> None:
        """Write the peaks; often enough that a killed program leaves a recent one, seldom enough to cost nothing."""
        now = time.monotonic()
        if not self.initialised or (at_most_every_second and now < self._next_peak):
            return
        self._next_peak = now + PEAK_EVERY_SECONDS
        allocated, reserved = self.peak()
        self._lines.write("peak", allocated_bytes=allocated, reserved_bytes=reserved)

    def _on_oom(self, device: int, requested: int, _limit: int, device_free: int) -> None:
        """Called by the allocator before it raises: everything that filled the device is still there."""
        stats = self._torch._C._cuda_memoryStats(device)
        self._lines.write(
            "oom",
            requested_bytes=requested,
            live_bytes=stats["allocated_bytes"]["all"]["current"],
            reserved_bytes=stats["reserved_bytes"]["all"]["current"],
            device_free_bytes=device_free,
            device_total_bytes=self._torch.cuda.get_device_properties(device).total_memory,
            update=self._progress.updates,
        )
        self.write_peak()
        if self._config.trace:
            self.dump("oom")
            self._dumped_oom = True
            if self._names is not None:
                self._names.walk("oom")

    def finish(self, *, oom: bool) -> None:
        """Write the final peaks, and the snapshot unless the one at the failure is what matters."""
        self.write_peak()
        if self.initialised and self._kind == "cuda":
            self._lines.guarded(self._write_device)()
        if self._config.trace and self.initialised and not (oom and self._dumped_oom):
            if self._attribution is not None:
                self._attribution.labels.clear()
            self.dump("end")
            if self._names is not None:
                self._names.walk("end")

    def _write_device(self) -> None:
        """What the driver says is free: with the allocator's reserved bytes it tells what is not torch's.

        Of the current device: asking about another would make a context on it.
        """
        cuda = self._torch.cuda
        device = cuda.current_device()
        free, total = cuda.mem_get_info(device)
        stats = self._torch._C._cuda_memoryStats(device)
        self._lines.write(
            "device_memory",
            device=device,
            free_bytes=free,
            total_bytes=total,
            reserved_bytes=stats["reserved_bytes"]["all"]["current"],
        )

    def dump(self, reason: str) -> None:
        """Write the allocator's snapshot, with the paths that the user knows."""
        snapshot = self._torch.cuda.memory._snapshot()
        sites = self._attribution.sites if self._attribution is not None else None
        self._lines.guarded(finish_snapshot)(snapshot, self._config, sites)
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            with Path(self._config.out, SNAPSHOT_FILE).open("wb") as file:
                pickle.dump(snapshot, file, protocol=PROTOCOL)
        finally:
            if was_enabled:
                gc.enable()
        self._lines.write(
            "snapshot",
            file=SNAPSHOT_FILE,
            entries=max((len(trace) for trace in snapshot["device_traces"]), default=0),
            max_entries=self._config.history_entries,
            reason=reason,
        )


def driver_version() -> "str | None":
    """The NVIDIA kernel driver's version, as the driver itself states it."""
    try:
        first = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    return next(
        (word for word in first.split() if word.count(".") >= 1 and word[0].isdigit()), None
    )
