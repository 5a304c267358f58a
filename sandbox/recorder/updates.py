"""Optimizer updates: their number, time, losses and samples."""

import functools
import importlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from .launch import StopAfterUpdates
from .lines import Lines
from .losses import Losses, Pending, total
from .progress import Progress


@dataclass
class _Waiting:
    """An update whose numbers the device may not have reached yet."""

    index: int
    roots: "list[Pending]"
    samples: "int | None"
    gradients: int
    began: "_Mark"
    ended: "_Mark"


class _Mark:
    """A point in time: an event on the device's stream, or the host's clock without one."""

    __slots__ = ("_event", "_host")

    def __init__(self, event: Any) -> None:
        self._host = time.perf_counter()
        self._event = event

    def passed(self) -> bool:
        return self._event is None or self._event.query()

    def seconds_since(self, other: "_Mark") -> float:
        if self._event is None or other._event is None:
            return self._host - other._host
        return float(other._event.elapsed_time(self._event)) / 1e3


class Updates:
    """Counts the k-th step of a parameter as update k, whichever optimizer takes it."""

    def __init__(
        self,
        torch: ModuleType,
        lines: Lines,
        progress: Progress,
        losses: Losses,
        *,
        take_samples: Callable[[], "int | None"],
        after_update: Callable[[], None],
        limit: "int | None",
        stop_at_once: Callable[[], None],
        device_events: bool,
    ) -> None:
        self._torch, self._lines, self._progress, self._losses = torch, lines, progress, losses
        self._take_samples, self._after_update = take_samples, after_update
        self._limit, self._device_events = limit, device_events
        self._stop_at_once = stop_at_once
        self._gradients = 0
        self._steps = torch.utils.weak.WeakIdKeyDictionary()
        self._waiting: deque[_Waiting] = deque()
        self._last: _Mark | None = None

    def install(self) -> None:
        """Hook every optimizer's step. The hook may end the program, so only its parts are guarded."""
        # `torch.optim` deletes its attribute of this name, so it has to be found by import.
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(self._on_step)
        self._keep_swaps_possible()

    def _keep_swaps_possible(self) -> None:
        """`swap_tensors` refuses what has a weak reference, and our counts hold one to each first parameter."""
        real_swap = self._torch.utils.swap_tensors

        @functools.wraps(real_swap)
        def swap_tensors(t1: Any, t2: Any) -> Any:
            counts = [(tensor, self._steps.pop(tensor, None)) for tensor in (t1, t2)]
            try:
                return real_swap(t1, t2)
            finally:
                self._steps.update((t, count) for t, count in counts if count is not None)

        self._torch.utils.swap_tensors = swap_tensors

    def _on_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not self._lines.owned:
            return
        if self._limit is not None and self._progress.updates >= self._limit:
            self._stop_at_once()  # the program caught our exception (`except:`) and went on
        self._gradients += self._lines.guarded(count_gradients)(optimizer) or 0
        if not self._lines.guarded(self._is_new_update)(optimizer):
            return
        self._progress.updates += 1
        self._lines.guarded(self._complete)()
        self._lines.guarded(self._after_update)()
        if self._limit is not None and self._progress.updates >= self._limit:
            raise StopAfterUpdates

    def _is_new_update(self, optimizer: Any) -> bool:
        """Whether this step takes the optimizer's first parameter further than any parameter has come."""
        parameter = next((p for group in optimizer.param_groups for p in group["params"]), None)
        if parameter is None:
            return False
        count = self._steps.get(parameter, 0) + 1
        self._steps[parameter] = count
        return bool(count > self._progress.updates)

    def _complete(self) -> None:
        mark = self._mark()
        began = self._last if self._last is not None else mark
        self._waiting.append(
            _Waiting(
                index=self._progress.updates,
                roots=self._losses.take(),
                samples=self._take_samples(),
                gradients=self._gradients,
                began=began,
                ended=mark,
            )
        )
        self._last, self._gradients = mark, 0
        self._write_passed()

    def _mark(self) -> _Mark:
        cuda = self._torch.cuda
        if (
            not self._device_events
            or not cuda.is_initialized()
            or cuda.is_current_stream_capturing()
        ):
            return _Mark(None)
        event = cuda.Event(enable_timing=True)
        event.record()
        return _Mark(event)

    def _write_passed(self) -> None:
        while self._waiting and self._waiting[0].ended.passed():
            update = self._waiting.popleft()
            first = update.began is update.ended
            self._lines.write(
                "update",
                index=update.index,
                loss=total(update.roots),
                samples=update.samples,
                gradients=update.gradients,
                seconds=None if first else update.ended.seconds_since(update.began),
            )

    def finish(self) -> None:
        """Wait for the device and write what is still on its way."""
        if self._device_events and self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()
        self._write_passed()


def count_gradients(optimizer: Any) -> int:
    """How many of an optimizer's parameters have a gradient."""
    return sum(p.grad is not None for group in optimizer.param_groups for p in group["params"])
