"""Tells of outermost module calls, at next to no cost for the calls inside them."""

import contextlib
import functools
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from .stacks import is_library

Begin = Callable[[Any, Any, FrameType], Any]
End = Callable[[Any, Any], None]


_OF_MODULES = ("_forward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called")


class _Nesting(threading.local):
    """The modules that this thread is inside of, and what `begin` returned for the outermost."""

    def __init__(self) -> None:
        self.modules: list[Any] = []
        self.call: Any = None


class _OnModule:
    """A hook of ours on an outermost module. Copies and pickles made during the call get one that does nothing."""

    def __init__(self, hook: Callable[..., None]) -> None:
        self._hook = hook

    def __call__(self, *given: Any) -> None:
        self._hook(*given)

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")


class OutermostCalls:
    """Global module hooks that step aside while a call is under way.

    torch runs a module on a faster path, and in one frame less, when no hook is registered at all. So the hooks leave
    with an outermost call, and a hook on that one module brings them back at its end. Where that could be noticed,
    they stay, and only keep the nesting: see `_may_step_aside`.

    Args:
        torch: The imported torch.
        begin: Called with an outermost module, its arguments and the frame that calls the hook.
        end: Called with the output and what `begin` returned, unless that was None.
        left: Called when an outermost call is over, however it ended.
        guarded: Wraps a function so that its errors do not reach the program.
    """

    def __init__(
        self,
        torch: ModuleType,
        begin: Begin,
        end: End,
        left: Callable[[], None],
        guarded: Callable[[Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        self._torch, self._begin, self._end, self._guarded = torch, begin, end, guarded
        self._left = guarded(left)
        self._hooks = torch.nn.modules.module
        self._nesting = _Nesting()
        # Weak, so that a model that failed can be given up.
        self._aside: weakref.ref[Any] | None = None
        self._left_on: weakref.ref[Any] | None = None
        self._before_id = self._after_id = -1

    def install(self) -> None:
        """Register with torch.nn for all modules."""
        self._before, self._after = self._make_hooks()
        self._before_id = self._hooks.register_module_forward_pre_hook(self._before).id
        self._after_id = self._hooks.register_module_forward_hook(self._after, always_call=True).id
        self._hide_from_warning()

    def _hide_from_warning(self) -> None:
        """torch.compile warns of global hooks before it calls a module; ours are no reason to."""
        hooks = self._hooks
        real = getattr(hooks, "_has_any_global_hook", None)
        if real is None:
            return  # an older torch, which does not warn

        @functools.wraps(real)
        def has_any_global_hook() -> Any:
            if len(hooks._global_forward_pre_hooks) > 1 or len(hooks._global_forward_hooks) > 1:
                return True
            return hooks._global_backward_pre_hooks or hooks._global_backward_hooks

        hooks._has_any_global_hook = has_any_global_hook

    def recover(self) -> None:
        """Forget calls that ended without their hooks, as Ctrl-C ends them."""
        if self._aside is None and not self._nesting.modules:
            return
        code = self._torch.nn.Module._call_impl.__code__
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code is code:
                return
            frame = frame.f_back
        self._nesting.modules.clear()
        self._nesting.call = None
        self._come_back()
        self._left()

    def _make_hooks(self) -> "tuple[Callable[..., None], Callable[..., None]]":
        """The two hooks, as closures: where they cannot step aside they run for every module of every forward pass.

        While torch.compile traces they do nothing, since what they do would become part of the program.
        """
        is_compiling, nesting = self._torch.compiler.is_compiling, self._nesting
        enter, leave = self._guarded(self._enter), self._guarded(self._leave)

        def before(module: Any, args: Any) -> None:
            if is_compiling():
                return
            inside = nesting.modules
            inside.append(module)
            if len(inside) == 1:
                enter(module, args, sys._getframe(1))

        def after(module: Any, _args: Any, output: Any) -> None:
            if is_compiling():
                return
            inside = nesting.modules
            if inside and inside[-1] is module:
                inside.pop()
            elif not _unwind(inside, module):
                return
            if not inside:
                leave(output)

        return before, after

    def _enter(self, module: Any, args: Any, caller: FrameType) -> None:
        self._take_off()
        self._nesting.call = self._begin(module, args, caller)
        if self._may_step_aside(module):
            self._step_aside(module)

    def _leave(self, output: Any) -> None:
        self._come_back()
        call, self._nesting.call = self._nesting.call, None
        if call is not None:
            self._end(output, call)
        self._left()

    def _may_step_aside(self, module: Any) -> bool:
        """Not beside others' global hooks, nor other threads; nor where torch looks for hooks to choose a kernel.

        While a backward pass recomputes in its own thread, the one that asked for it waits.
        """
        hooks = self._hooks
        alone = len(hooks._global_forward_pre_hooks) == len(hooks._global_forward_hooks) == 1
        return (
            alone
            and all(type(module.__dict__.get(name)) is OrderedDict for name in _OF_MODULES)
            and not isinstance(module, self._torch.nn.TransformerEncoderLayer)
            and (self._torch._C._current_graph_task_id() != -1 or not _others_may_call())
        )

    def _step_aside(self, module: Any) -> None:
        """Leave the rest of the call to hooks on its module; the first of them is for calls of itself in itself."""
        pre_hooks, hooks, always_called = (module.__dict__[name] for name in _OF_MODULES)
        pre_hooks[self._before_id] = _OnModule(self._before)
        hooks[self._after_id] = _OnModule(self._after)
        always_called[self._after_id] = True
        self._aside = weakref.ref(module)
        self._hooks._global_forward_pre_hooks.pop(self._before_id, None)
        self._hooks._global_forward_hooks.pop(self._after_id, None)

    def _come_back(self) -> None:
        """Put the global hooks back."""
        if self._aside is None:
            return
        # In an exception torch is iterating over the module's hooks: they are taken off before the next call.
        self._left_on, self._aside = self._aside, None
        if sys.exc_info()[0] is None:
            self._take_off()
        self._hooks._global_forward_pre_hooks[self._before_id] = self._before
        self._hooks._global_forward_hooks[self._after_id] = self._after

    def _take_off(self) -> None:
        """Remove the hooks from the module that the last call was of."""
        module = self._left_on() if self._left_on is not None else None
        self._left_on = None
        if module is not None:
            pre_hooks, hooks, always_called = (module.__dict__[name] for name in _OF_MODULES)
            pre_hooks.pop(self._before_id, None)
            hooks.pop(self._after_id, None)
            always_called.pop(self._after_id, None)


def _others_may_call() -> bool:
    """Whether another thread that lives may be the program's: not a library's helper in the background."""
    current = threading.get_ident()
    return any(
        thread.ident != current and not (thread.daemon and _is_helper(thread))
        for thread in threading.enumerate()
    )


def _is_helper(thread: threading.Thread) -> bool:
    # A timer keeps its function elsewhere.
    target = getattr(thread, "_target", None) or getattr(thread, "function", type(thread).run)
    code = getattr(target, "__code__", None)
    return code is not None and is_library(code.co_filename)


def _unwind(inside: "list[Any]", module: Any) -> bool:
    """Unwind to a module whose inner calls were left without their hooks; whether it was there at all."""
    for depth in range(len(inside) - 1, -1, -1):
        if inside[depth] is module:
            del inside[depth:]
            return True
    return False
