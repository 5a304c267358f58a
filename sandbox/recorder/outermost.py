"""Tells of outermost module calls, at next to no cost for the calls inside them."""

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from .stacks import is_library

Begin = Callable[[Any, Any, FrameType], Any]
End = Callable[[Any, Any], None]


class _Nesting(threading.local):
    """The modules that this thread is inside of, and what `begin` returned for the outermost."""

    def __init__(self) -> None:
        self.modules: list[Any] = []
        self.call: Any = None


class _WithEnd(OrderedDict):  # type: ignore[type-arg]
    """A module's forward hooks while it runs: its own and ours. Copied or pickled, it is its own alone."""

    before: Any

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.before.__reduce_ex__(protocol)


class OutermostCalls:
    """Global module hooks that step aside while a call is under way.

    torch runs a module on a faster path, and in one frame less, when no hook is registered at all. So the hooks leave
    with an outermost call, and a hook on that one module brings them back at its end. Where that could be noticed,
    they stay, and only keep the nesting: see `_may_step_aside`.

    Args:
        torch: The imported torch.
        begin: Called with an outermost module, its arguments and the frame that calls the hook.
        end: Called with the output and what `begin` returned, unless that was None.
        guarded: Wraps a function so that its errors do not reach the program.
    """

    def __init__(
        self,
        torch: ModuleType,
        begin: Begin,
        end: End,
        guarded: Callable[[Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        self._torch, self._begin, self._end, self._guarded = torch, begin, end, guarded
        self._hooks = torch.nn.modules.module
        self._nesting = _Nesting()
        self._aside: Any = None
        self._before_id = self._after_id = -1

    def install(self) -> None:
        """Register with torch.nn for all modules."""
        self._before, self._after = self._make_hooks()
        self._before_id = self._hooks.register_module_forward_pre_hook(self._before).id
        self._after_id = self._hooks.register_module_forward_hook(self._after, always_call=True).id

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
        self._nesting.call = self._begin(module, args, caller)
        if self._may_step_aside(module):
            self._step_aside(module)

    def _leave(self, output: Any) -> None:
        self._come_back()
        call, self._nesting.call = self._nesting.call, None
        if call is not None:
            self._end(output, call)

    def _may_step_aside(self, module: Any) -> bool:
        """Not beside others' global hooks, nor other threads; nor where torch looks for hooks to choose a kernel.

        While a backward pass recomputes in its own thread, the one that asked for it waits.
        """
        hooks = self._hooks
        alone = len(hooks._global_forward_pre_hooks) == len(hooks._global_forward_hooks) == 1
        return (
            alone
            and type(module.__dict__.get("_forward_hooks")) is OrderedDict
            and not isinstance(module, self._torch.nn.TransformerEncoderLayer)
            and (self._torch._C._current_graph_task_id() != -1 or not _others_may_call())
        )

    def _step_aside(self, module: Any) -> None:
        own = module.__dict__["_forward_hooks"]
        mixed = _WithEnd(own)
        mixed.before = own
        mixed[self._after_id] = self._after
        module.__dict__["_forward_hooks"] = mixed
        module._forward_hooks_always_called[self._after_id] = True
        self._aside = module
        self._hooks._global_forward_pre_hooks.pop(self._before_id, None)
        self._hooks._global_forward_hooks.pop(self._after_id, None)

    def _come_back(self) -> None:
        module, self._aside = self._aside, None
        if module is None:
            return
        mixed = module.__dict__.get("_forward_hooks")
        if isinstance(mixed, _WithEnd):
            added = [item for item in mixed.items() if item[0] != self._after_id]
            mixed.before.update(item for item in added if item[0] not in mixed.before)
            module.__dict__["_forward_hooks"] = mixed.before
        module._forward_hooks_always_called.pop(self._after_id, None)
        self._hooks._global_forward_pre_hooks[self._before_id] = self._before
        self._hooks._global_forward_hooks[self._after_id] = self._after


def _others_may_call() -> bool:
    """Whether another thread that lives may be the program's: not a library's helper in the background."""
    current = threading.get_ident()
    return any(
        thread.ident != current and not (thread.daemon and _is_helper(thread))
        for thread in threading.enumerate()
    )


def _is_helper(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None) or type(thread).run
    code = getattr(target, "__code__", None)
    return code is not None and is_library(code.co_filename)


def _unwind(inside: "list[Any]", module: Any) -> bool:
    """Unwind to a module whose inner calls were left without their hooks; whether it was there at all."""
    for depth in range(len(inside) - 1, -1, -1):
        if inside[depth] is module:
            del inside[depth:]
            return True
    return False
