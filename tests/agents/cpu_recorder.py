"""Run programs on the CPU and account for their tensors as if the CPU were the device.

`python cpu_recorder.py OUT.json PROGRAM.py...`, under an interpreter with torch. Storages are followed by weak
references, so the peak, its stacks and ticks are real; only the allocator is not.
"""

import contextlib
import io
import json
import runpy
import sys
import traceback
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Stack = tuple[tuple[int, str], ...]


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch is not installed where mypy runs
    """Live storages by stack, at the moment when they were most."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self.program = program
        self.live: dict[int, tuple[int, Stack, bool, int]] = {}
        self.watched: dict[int, Any] = {}
        self.now_bytes = self.peak_bytes = 0
        self.peak: list[tuple[int, Stack, bool, int]] = []
        self.peak_call = 0
        self.calls = 0
        self.depth = 0
        self.sites: dict[tuple[int, str, str, bool], dict[str, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self.note(tensor.untyped_storage())
        return out

    def note(self, storage: Any) -> None:
        key = storage._cdata
        if key in self.live or not storage.nbytes():
            return
        backward = torch._C._current_graph_task_id() != -1
        self.live[key] = (storage.nbytes(), self.stack(), backward, self.calls)
        self.watched[key] = weakref.ref(storage, lambda _reference: self.forget(key))
        self.now_bytes += storage.nbytes()
        if self.now_bytes > self.peak_bytes:
            self.peak_bytes, self.peak_call = self.now_bytes, self.calls
            self.peak = list(self.live.values())

    def forget(self, key: int) -> None:
        self.now_bytes -= self.live.pop(key)[0]
        del self.watched[key]

    def stack(self) -> Stack:
        return tuple((frame.f_lineno, frame.f_code.co_name) for frame in self.frames())

    def frames(self) -> list[FrameType]:
        found = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.program:
                found.append(frame)
            frame = frame.f_back
        return found

    def before_call(self, module: Any, _args: Any) -> None:
        self.depth += 1
        if self.depth > 1:
            return
        self.calls += 1
        frame = self.frames()[0]
        empty = {"calls": 0, "grad_calls": 0, "eval_calls": 0, "reached_calls": 0}
        kind = type(module).__name__
        key = (frame.f_lineno, frame.f_code.co_name, kind, bool(module.training))
        site = self.sites.setdefault(key, empty)
        site["calls"] += 1
        site["grad_calls"] += torch.is_grad_enabled()
        site["eval_calls"] += not module.training
        self.site = site

    def after_call(self, _module: Any, _args: Any, output: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and isinstance(output, torch.Tensor) and output.requires_grad:
            site = self.site
            output.register_hook(lambda _grad: site.update(reached_calls=site["reached_calls"] + 1))


def record(program: str) -> dict[str, Any]:
    recorder = Recorder(program)
    module = torch.nn.modules.module
    handles = [
        module.register_module_forward_pre_hook(recorder.before_call),
        module.register_module_forward_hook(recorder.after_call),
    ]
    printed, error = io.StringIO(), ""
    try:
        with recorder, contextlib.redirect_stdout(printed):
            runpy.run_path(program, run_name="__main__")
    except Exception:
        error = traceback.format_exc()
    for handle in handles:
        handle.remove()
    sites = [
        {"line": line, "function": function, "module": kind, **counts}
        for (line, function, kind, _), counts in recorder.sites.items()
    ]
    return {
        "printed": printed.getvalue(),
        "error": error,
        "peak_bytes": recorder.peak_bytes,
        "call": recorder.peak_call,
        "blocks": recorder.peak,
        "sites": sites,
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps([record(program) for program in sys.argv[2:]]))
