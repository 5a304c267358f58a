"""Keeps torch's own question "is anything overridden here?" from being answered yes because of us.

torch's functions that are written in Python ask it, and with a mode on the stack they take another way: more frames in
tracebacks and warnings, no fused attention in evaluation. Our mode alone is no reason for that.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .mode import Watch

QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

_EVERYWHERE = (*QUESTIONS, *(f"_{name}" for name in QUESTIONS))
"""`torch._C` has them under these names, and `pickle` looks there."""


class Detection:
    """Replaces the three questions in all of torch's modules, until `restore`."""

    def __init__(
        self, torch: ModuleType, mode: Any, watch: Watch, take_off: Callable[[], None]
    ) -> None:
        self._torch, self._mode = torch, mode
        self._watch, self._take_off = watch, take_off
        self._replaced: dict[int, tuple[Any, Any]] = {}

    def install(self) -> None:
        """Put ours in the place of torch's, wherever torch has imported them to, torch.jit's table included."""
        overrides = self._torch.overrides
        for name in QUESTIONS:
            real = getattr(overrides, name)
            ours = self._without(real)
            ours.__name__, ours.__qualname__ = real.__name__, real.__qualname__
            ours.__doc__, ours.__module__ = real.__doc__, real.__module__
            self._torch.jit._builtins._register_builtin(ours, "aten::has_torch_function")
            self._replaced[id(real)] = (real, ours)
        self._replace({place: ours for place, (_, ours) in self._replaced.items()})

    def restore(self) -> None:
        """Put torch's back."""
        self._replace({id(ours): real for real, ours in self._replaced.values()})

    @staticmethod
    def _replace(by_id: "dict[int, Any]") -> None:
        for name, module in list(sys.modules.items()):
            if name == "torch" or name.startswith("torch."):
                space = getattr(module, "__dict__", {})
                for question in _EVERYWHERE:
                    replacement = by_id.get(id(space.get(question)))
                    if replacement is not None:
                        space[question] = replacement

    def _without(self, real: Any) -> Any:
        """The question, asked while our mode is off the stack if it is all that there is on it."""
        native, mode, watch, take_off = self._torch._C, self._mode, self._watch, self._take_off
        length, at = native._len_torch_function_stack, native._get_function_stack_at
        pop, push = native._pop_torch_function_stack, native._push_on_torch_function_stack

        def ask(*relevant: Any) -> Any:
            if length() != 1 or at(0) is not mode:
                return real(*relevant)
            if watch.off:
                take_off()
                return real(*relevant)
            try:
                pop()
                return real(*relevant)
            finally:
                if length() == 0:  # it is not where Ctrl-C came before it was taken off
                    push(mode)

        return ask
