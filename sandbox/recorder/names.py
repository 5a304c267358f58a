"""Names of live storages: which parameter, gradient, state, buffer or variable of the program each of them is.

Walks are taken when memory runs out, at the end, and where live memory has grown since the last: before an outermost
module call or a backward pass (the results of what came before have their names by then), and after an update.
"""

import gc
import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from .attribution import Attribution
from .config import Config
from .lines import Lines
from .progress import Progress
from .roots import Roots
from .saved import Graphs
from .walk import Walk

VERSION = 1
NAMES_FILE = "names.jsonl"
WALKS = 64
WALK_SECONDS = 0.5
GROWTH, GROWTH_BYTES = 1.05, 2**20
STORAGES_WRITTEN = 20_000
UNREADABLE = "saved tensors are not named: this torch does not show them without running hooks"


class Names:
    """Takes walks and appends each to `names.jsonl`, one line a walk."""

    def __init__(
        self,
        torch: ModuleType,
        config: Config,
        lines: Lines,
        progress: Progress,
        attribution: Attribution,
    ) -> None:
        self._torch, self._config, self._lines, self._progress = torch, config, lines, progress
        self._attribution = attribution
        self._graphs = Graphs(torch)
        self._last_bytes = 0
        self._walks = 0

    def grown(self, reason: str) -> None:
        """Walk if live memory has grown enough since the last walk."""
        native = self._torch._C
        if (
            self._walks >= WALKS
            or not self._attribution.labels.enabled
            or not self._lines.owned
            or native._current_graph_task_id() != -1
            or native._get_tracing_state() is not None
        ):
            return
        live = self._live_bytes()
        if live > self._last_bytes * GROWTH and live > self._last_bytes + GROWTH_BYTES:
            self.walk(reason)

    def _live_bytes(self) -> int:
        stats = self._torch._C._cuda_memoryStats
        devices = range(self._torch.cuda.device_count())
        return sum(stats(device)["allocated_bytes"]["all"]["current"] for device in devices)

    def walk(self, reason: str) -> None:
        """Name what is live now. Nothing is allocated on the device, and no code of the program's is run."""
        if not self._lines.owned or self._walks >= 2 * WALKS:
            return
        self._walks += 1
        self._last_bytes = self._live_bytes()
        began, now_us = time.perf_counter(), time.time_ns() // 1000
        was_enabled = gc.isenabled()
        try:
            gc.disable()  # a collection would free garbage of the program's before its time
            with self._torch._C.DisableTorchFunction():
                found, cut = self._collect()
        finally:
            if was_enabled:
                gc.enable()
        line = {
            "v": VERSION,
            "time_us": now_us,
            "reason": reason,
            "update": self._progress.updates,
            "call": self._progress.calls,
            "live_bytes": self._last_bytes,
            "cut": cut,
            "storages": found,
        }
        text = json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        with Path(self._config.out, NAMES_FILE).open("ab") as file:
            file.write(text)
        seconds = round(time.perf_counter() - began, 4)
        self._lines.write(
            "names", file=NAMES_FILE, walks=self._walks, reason=reason, seconds=seconds, cut=cut
        )

    def _collect(self) -> "tuple[list[dict[str, Any]], bool]":
        walk = Walk(self._torch, self._attribution.modules, WALK_SECONDS)
        walk.known(self._attribution.optimizers())
        walk.follow(Roots(self._config))
        if self._graphs.readable:
            self._graphs.follow(walk, self._attribution.backward.under_way())
        else:
            self._lines.note(UNREADABLE)
        found = sorted(walk.found.values(), key=lambda entry: -entry["size_bytes"])
        return found[:STORAGES_WRITTEN], walk.cut or len(found) > STORAGES_WRITTEN
