"""Outermost module calls: where they are made, in which mode, with how many rows, and whether a gradient came back."""

import contextlib
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

from .config import Config
from .lines import Lines
from .outermost import OutermostCalls
from .parameters import Parameters
from .progress import Progress
from .stacks import user_frame

OUTPUTS_WATCHED = 8
PHASES_KEPT = 1000


class _Site:
    """Counts for one calling line; see `CallSite` in the records."""

    __slots__ = (
        "calls",
        "eval_calls",
        "file",
        "function",
        "grad_calls",
        "line",
        "module",
        "reached_calls",
        "reached_rows",
        "rows",
    )

    def __init__(self, file: str, line: int, function: str, module: str) -> None:
        self.file, self.line, self.function, self.module = file, line, function, module
        self.calls = self.grad_calls = self.eval_calls = self.rows = 0
        self.reached_calls = self.reached_rows = 0

    def as_dict(self) -> "dict[str, Any]":
        return {name: getattr(self, name) for name in self.__slots__}


class _Call:
    """One outermost call under way: the gradient of its output marks it as training."""

    __slots__ = ("reached", "rows", "samples", "site")

    def __init__(self, site: _Site, rows: int, samples: int) -> None:
        self.site, self.rows, self.samples, self.reached = site, rows, samples, False


class Calls:
    """Counts outermost module calls by the line that makes them."""

    def __init__(
        self,
        torch: ModuleType,
        config: Config,
        lines: Lines,
        progress: Progress,
        parameters: Parameters,
        on_call: Callable[[Any, bool], None],
        on_left: Callable[[], None],
    ) -> None:
        self._torch, self._config, self._lines = torch, config, lines
        self._progress, self._parameters, self._on_call = progress, parameters, on_call
        self._outermost = OutermostCalls(
            torch, begin=self._begin, end=self._watch, left=on_left, guarded=lines.guarded
        )
        self._sites: dict[tuple[Any, int, str, bool], _Site] = {}
        self._phases: list[dict[str, Any]] = []
        self._rows_trained = 0

    def install(self) -> None:
        """Register with torch.nn for all modules."""
        self._outermost.install()

    def _begin(self, module: Any, args: Any, caller: FrameType) -> "_Call | None":
        native = self._torch._C
        if native._current_graph_task_id() != -1:
            return None  # recomputation inside a backward pass is no call of the program's
        if native._get_tracing_state() is not None:
            return None  # whatever is done while torch.jit traces would become part of the graph
        grad, train = self._torch.is_grad_enabled(), bool(module.training)
        # A global pre-hook is not given keyword arguments; they stand in the frame that calls it.
        inputs = list(_tensors((args, caller.f_locals.get("kwargs")), self._torch.Tensor, limit=1))
        first = inputs[0] if inputs else None
        rows = 0
        if first is not None:
            rows = int(first.size(0)) if first.dim() else 1
        trained = self._parameters.see(module)
        site = self._site(module, train, caller)
        site.calls += 1
        site.grad_calls += grad
        site.eval_calls += not train
        site.rows += rows
        self._note_phase(train, grad, rows)
        self._progress.calls += 1
        self._on_call(module, train and grad)
        # Rows count as samples where they enter from outside: not the output of another trained module.
        is_sample = trained and (first is None or first.grad_fn is None)
        return _Call(site, rows, rows if is_sample else 0)

    def _site(self, module: Any, train: bool, caller: FrameType) -> _Site:
        """The counts for this line, module class and mode: one line may train and evaluate in turn."""
        frame = user_frame(caller)
        name = type(module).__name__
        if frame is None:
            return self._sites.setdefault((None, 0, name, train), _Site("?", 0, "?", name))
        key = (frame.f_code, frame.f_lineno, name, train)
        site = self._sites.get(key)
        if site is None:
            file = self._config.original(frame.f_code.co_filename)
            site = self._sites[key] = _Site(file, frame.f_lineno, frame.f_code.co_name, name)
        return site

    def _note_phase(self, train: bool, grad: bool, rows: int) -> None:
        last = self._phases[-1] if self._phases else None
        if last is None or (last["train"], last["grad"]) != (train, grad):
            if len(self._phases) >= PHASES_KEPT:
                return
            last = {
                "train": train,
                "grad": grad,
                "first_update": self._progress.updates,
                "calls": 0,
                "rows": 0,
            }
            self._phases.append(last)
        last["calls"] += 1
        last["rows"] += rows

    def _watch(self, output: Any, call: _Call) -> None:
        for tensor in _tensors(output, self._torch.Tensor, limit=OUTPUTS_WATCHED):
            if tensor.requires_grad and tensor.grad_fn is not None:
                hook = self._torch.utils.hooks.unserializable_hook(
                    lambda _grad: self._reached(call)
                )
                tensor.register_hook(hook)
            elif tensor.requires_grad:
                # A module that hands out its own parameter: a hook would stay on it for good, so it counts as trained.
                self._reached(call)

    def _reached(self, call: _Call) -> None:
        if not call.reached:
            call.reached = True
            call.site.reached_calls += 1
            call.site.reached_rows += call.rows
            self._rows_trained += call.samples

    def take_samples(self) -> "int | None":
        """Rows whose gradient came back since the last call; None if no outermost module was seen at all."""
        self._outermost.recover()
        rows, self._rows_trained = self._rows_trained, 0
        return rows if self._sites else None

    def write(self) -> None:
        """Write call sites and phases as they stand."""
        sites = [site.as_dict() for site in self._sites.values()]
        self._lines.write("calls", sites=sites, phases=self._phases)


def _tensors(value: Any, tensor_type: type, limit: int) -> Iterator[Any]:
    """The first tensors inside nested tuples, lists, dictionaries and plain objects' fields, at most `limit`."""
    found = 0
    waiting = [(value, 0)]
    while waiting and found < limit:
        item, depth = waiting.pop(0)
        if isinstance(item, tensor_type):
            found += 1
            yield item
        elif depth < 4 and isinstance(item, (tuple, list)):
            waiting.extend((part, depth + 1) for part in item)
        elif depth < 4 and isinstance(item, dict):
            waiting.extend((part, depth + 1) for part in dict.values(item))
        elif depth < 4:
            # By the type: the program's own `__getattr__` is not to be called.
            for name in getattr(type(item), "__dataclass_fields__", ()):
                with contextlib.suppress(AttributeError):
                    waiting.append((object.__getattribute__(item, name), depth + 1))
