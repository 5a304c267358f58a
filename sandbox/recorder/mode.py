"""Sees every call of torch's functions: labels what it allocates, notes which line makes nodes of the graph."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from .frames import Frames, Kind
from .labels import IN_MODULES, Labels
from .launch import without_leading
from .modules import Modules
from .sites import Sites
from .variables import slots, variable

FRAMES_SEARCHED = 60
_GETTER = type([].__len__)
"""The type of `Tensor.shape.__get__`: what reading an attribute of a tensor looks like to a mode."""


class Watch:
    """What the mode does before and after a call; `off` says that it is to do nothing any more."""

    def __init__(
        self,
        torch: ModuleType,
        frames: Frames,
        labels: Labels,
        modules: Modules,
        sites: Sites,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.frames, self.failed = frames, failed
        self.off = False
        names = slots(frames.module_call)
        self._self_at = tuple(index for index, name in enumerate(names) if name == "self")
        self.next_number = getattr(torch._C._autograd, "_get_sequence_nr", None) or (
            torch.autograd._get_sequence_nr
        )
        self._native, self._labels, self._modules, self._sites = torch._C, labels, modules, sites

    def before(self, frame: FrameType) -> "str | None":
        """Label what the call will allocate; the path of the module that it is made in."""
        thread = self._labels.thread
        if thread.phase not in IN_MODULES or not self._labels.enabled:
            return None
        path = self._path(frame, thread.root)
        if path != thread.path:
            self._labels.show(path)
        return path

    def _path(self, frame: "FrameType | None", root: Any) -> "str | None":
        """The innermost module that is being called and that is a part of the outermost one.

        Without an outermost one (what a backward pass computes again) it has to be a part of a single root.
        """
        of = self.frames.of
        for _ in range(FRAMES_SEARCHED):
            if frame is None:
                return None
            if of(frame.f_code).kind is Kind.MODULE_CALL:
                module = variable(frame, "self", self._self_at)
                path = (
                    self._modules.path(root, module)
                    if root is not None
                    else self._modules.only_path(module)
                )
                if path is not None:
                    return path
            frame = frame.f_back
        return None

    def after(self, first: int, end: int, frame: FrameType, path: "str | None") -> None:
        """The call made nodes."""
        native = self._native
        if (
            self._labels.enabled
            and native._get_tracing_state() is None
            and native._len_torch_dispatch_stack() == 0
            and native._functorch.peek_interpreter_stack() is None
        ):
            if path is None and self._labels.thread.phase is None:
                path = self._path(frame, None)
            self._sites.add(first, end, frame, path)


def make_mode(torch: ModuleType, watch: Watch) -> Any:
    """The mode. Its class is made here because the recorder is loaded before torch."""
    stand_in, before, after = watch.frames.stand_in, watch.before, watch.after
    number, current, getter = watch.next_number, sys._getframe, _GETTER

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if watch.off:
                return func(*args, **(kwargs or {}))
            path = None
            frame = current(1)
            try:
                call = stand_in(frame)
                if type(func) is not getter:
                    path = before(frame)
            except Exception as error:
                watch.failed(error)
                return func(*args, **(kwargs or {}))
            first = number()
            try:
                result = call(func, args, kwargs or {})
            except BaseException as error:
                error.__traceback__ = without_leading(error.__traceback__, 2)
                raise
            end = number()
            if end != first:
                try:
                    after(first, end, frame, path)
                except Exception as error:
                    watch.failed(error)
            return result

    return Mode()
