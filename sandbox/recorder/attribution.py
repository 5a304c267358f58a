"""The `trace` pass's account of who allocates: labels, forward sites of nodes, owners of the backward pass.

All of it stands aside for good where it could change what the program does: see `stand_aside`.
"""

import functools
import importlib
import os
import sys
import threading
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

from .backward import Backward
from .detection import Detection
from .frames import Frames
from .labels import EVALUATION, FORWARD, OPTIMIZER, OTHER, Labels
from .lines import Lines
from .mode import Watch, make_mode
from .modules import Modules
from .nodes import Nodes
from .progress import Progress
from .sites import Sites

NO_OWNERS = (
    "backward allocations get no forward line: this torch lays out its graph in an unknown way"
)
NO_LABELS = "allocations are not labelled: this torch's allocator takes no labels"
COMPILED = "torch.compile is used: modules and forward lines of allocations are not noted any more"


class Attribution:
    """Wires the parts together; made in a `trace` pass only.

    Args:
        torch: The imported torch.
        lines: Where notes go.
        progress: Updates and calls so far.
        compiles: Whether this torch can compile programs; the virtual GPU's does not.
    """

    def __init__(
        self, torch: ModuleType, lines: Lines, progress: Progress, *, compiles: bool
    ) -> None:
        self._torch, self._lines = torch, lines
        self.frames = Frames(Path(torch.__file__ or "").parent, torch.nn.Module._call_impl.__code__)
        self.labels = Labels(progress, getattr(torch._C, "_cuda_setMemoryMetadata", _nothing))
        self.modules, nodes = Modules(), Nodes(torch, lambda: lines.note(NO_OWNERS))
        self.sites = Sites(self.frames, nodes)
        self.backward = Backward(torch, lines, self.labels, self.modules, self.sites)
        self._watch = Watch(torch, self.frames, self.labels, self.modules, self.sites, self._failed)
        self.mode = make_mode(torch, self._watch)
        self._detection = Detection(torch, self.mode, self._watch, lines.guarded(self._take_off))
        self._thread, self._is_off = threading.get_ident(), False
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._on = False
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._watches_compile = not compiles

    def install(self) -> None:
        """Hook in; called when torch has just been imported, so that no other mode is there yet."""
        optimizer = importlib.import_module("torch.optim.optimizer")
        enter, leave = (
            self._lines.guarded(self.labels.enter),
            self._lines.guarded(self.labels.leave),
        )
        note = self._lines.guarded(self._note_optimizer)

        def before(stepping: Any, *_: Any) -> None:
            note(stepping)
            enter(OPTIMIZER)

        optimizer.register_optimizer_step_pre_hook(before)
        optimizer.register_optimizer_step_post_hook(lambda *_: leave(OPTIMIZER))
        if threading.current_thread() is not threading.main_thread():
            self._lines.note("torch was imported by a thread: modules of allocations are not noted")
            return
        self.labels.thread.phase = OTHER
        self.backward.install()
        if not self._watches_compile:
            self._watch_compile()
        self._detection.install()
        self._torch._C._push_on_torch_function_stack(self.mode)
        self._on = True
        os.register_at_fork(after_in_child=self._lines.guarded(self._stand_aside))

    def _note_optimizer(self, optimizer: Any) -> None:
        self._optimizers[id(optimizer)] = weakref.ref(optimizer)

    def optimizers(self) -> "list[Any]":
        """Optimizers that have stepped and are still there."""
        alive = [reference() for reference in list(self._optimizers.values())]
        return [optimizer for optimizer in alive if optimizer is not None]

    def on_initialised(self) -> None:
        """CUDA is there, and the allocator records."""
        if not hasattr(self._torch._C, "_cuda_setMemoryMetadata"):
            self.stand_aside(NO_LABELS)
        self.labels.enable()

    def begin_call(self, module: Any, name: "str | None", *, trains: bool) -> None:
        """An outermost module call begins."""
        self._take_off()
        if self._on and not self._watches_compile:
            self._watch_dynamo()
        if name is not None:
            self.modules.see(module, name)
        self.labels.enter(FORWARD if trains else EVALUATION, module)

    def end_call(self) -> None:
        """An outermost module call has ended, if one had begun."""
        self.labels.leave(FORWARD)

    def _failed(self, error: BaseException) -> None:
        if self._on:
            self.stand_aside(f"attribution failed: {type(error).__name__}: {error}")

    def stand_aside(self, reason: str) -> None:
        """Leave for good, and say why."""
        if self._on:
            self._stand_aside()
            self._lines.note(reason)
        self._take_off()

    def _stand_aside(self) -> None:
        self._on = self.backward.on = False
        self._watch.off = True
        self._take_off()

    def _take_off(self) -> None:
        """Take the mode off this thread's stack, whatever lies on it, and undo what was replaced.

        Inside a call that the mode sees, torch has put it aside and brings it back after: the next that comes here does
        it, and until then the mode only calls through.
        """
        if self._is_off or not self._watch.off:
            return
        native = self._torch._C
        length, at = native._len_torch_function_stack, native._get_function_stack_at
        if not any(at(index) is self.mode for index in range(length())):
            return
        modes = [native._pop_torch_function_stack() for _ in range(length())]
        for mode in reversed(modes):
            if mode is not self.mode:
                native._push_on_torch_function_stack(mode)
        if threading.get_ident() == self._thread:
            self._is_off = True
            self._undo()

    def _undo(self) -> None:
        self._detection.restore()
        for holder, name, real, ours in self._replaced:
            if getattr(holder, name, None) is ours:
                setattr(holder, name, real)

    def _watch_compile(self) -> None:
        """Step aside before a compiler first looks at the program: it would compile us along with it."""
        self._before(self._torch, "compile")
        export = sys.modules.get("torch.export")
        if export is not None:
            self._before(export, "export")

    def _watch_dynamo(self) -> None:
        """The compiler's own entrance, once the program has imported it."""
        dynamo = sys.modules.get("torch._dynamo.eval_frame")
        context = getattr(dynamo, "OptimizeContext", None)
        if context is not None:
            self._watches_compile = True
            self._before(context, "__init__")

    def _before(self, holder: Any, name: str) -> None:
        real = getattr(holder, name, None)
        if real is None:
            return
        step_aside = self._lines.guarded(self.stand_aside)

        @functools.wraps(real)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            step_aside(COMPILED)
            return real(*args, **kwargs)

        setattr(holder, name, wrapped)
        self._replaced.append((holder, name, real, wrapped))


def _nothing(_text: str) -> None:
    """Stands for the allocator's function in a torch without CUDA."""
