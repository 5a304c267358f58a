"""The loss of an update: the sum of the backward roots since the one before, loss scaling undone."""

import functools
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from .launch import without_leading
from .lines import Lines

SLOTS_AT_ONCE = 64


class Pending:
    """A backward root's value, on its way to the host; `read` only after the device has passed it."""

    __slots__ = ("_slot", "_value")

    def __init__(self, value: "float | None" = None, slot: Any = None) -> None:
        self._value, self._slot = value, slot

    def read(self) -> "float | None":
        """The value as a Python float; None where it was not computed."""
        if self._slot is not None:
            self._value, self._slot = float(self._slot), None
        return self._value


class Losses:
    """Reads backward roots without stalling the device and without allocating on it.

    A root on the device is copied asynchronously into pinned host memory of its own type (a conversion would need a
    temporary on the device).
    """

    def __init__(self, torch: ModuleType, lines: Lines, *, computed: bool) -> None:
        self._torch, self._lines, self._computed = torch, lines, computed
        self._roots: list[Pending] = []
        self._slots: dict[Any, list[Any]] = {}
        self._scaled = False
        self._unscaled: dict[int, tuple[weakref.ref[Any], Pending]] = {}

    def install(self) -> None:
        """Wrap `torch.autograd.backward`, which `Tensor.backward` calls too, and `GradScaler.scale`."""
        autograd = self._torch.autograd
        real_backward = autograd.backward
        see = self._lines.guarded(self._see_roots)

        @functools.wraps(real_backward)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensors, Iterator):
                tensors = tuple(tensors)
            see(tensors)
            try:
                return real_backward(tensors, *args, **kwargs)
            except BaseException as error:
                error.__traceback__ = without_leading(error.__traceback__, 1)
                raise

        autograd.backward = backward
        self._wrap_scaler(self._torch.amp.GradScaler)

    def _wrap_scaler(self, scaler: Any) -> None:
        real_scale = scaler.scale
        link = self._lines.guarded(self._link)

        @functools.wraps(real_scale)
        def scale(this: Any, outputs: Any) -> Any:
            scaled = real_scale(this, outputs)
            link(outputs, scaled)
            return scaled

        scaler.scale = scale

    def _link(self, outputs: Any, scaled: Any) -> None:
        """Keep the unscaled value for when the scaled one becomes a root: its tensor may be gone by then."""
        if scaled is outputs:
            return
        self._scaled = True
        if isinstance(scaled, self._torch.Tensor):
            place = id(scaled)
            forget = weakref.ref(scaled, lambda _: self._unscaled.pop(place, None))
            self._unscaled[place] = (forget, self._keep(outputs))
        elif isinstance(outputs, (list, tuple)):
            for one, other in zip(outputs, scaled, strict=True):
                self._link(one, other)

    def _see_roots(self, tensors: Any) -> None:
        if self._torch._C._current_graph_task_id() != -1:
            return  # a backward pass inside another one, as of reentrant checkpointing
        roots = [tensors] if isinstance(tensors, self._torch.Tensor) else list(tensors)
        for root in roots:
            reference, unscaled = self._unscaled.pop(id(root), (None, None))
            if unscaled is not None and reference is not None and reference() is root:
                self._roots.append(unscaled)
            elif self._scaled:
                # Scaled, then changed again: its scale is not known any more.
                self._roots.append(Pending())
            else:
                self._roots.append(self._keep(root))

    def _keep(self, root: Any) -> Pending:
        if not self._computed or not isinstance(root, self._torch.Tensor) or root.numel() != 1:
            return Pending()
        value = root.detach()
        if value.device.type != "cuda":
            return Pending(value=float(value))
        if self._torch.cuda.is_current_stream_capturing():
            return Pending()
        slot = self._slot(value.dtype)
        slot.copy_(value.reshape(()), non_blocking=True)
        return Pending(slot=slot)

    def _slot(self, dtype: Any) -> Any:
        free = self._slots.setdefault(dtype, [])
        if not free:
            block = self._torch.empty(SLOTS_AT_ONCE, dtype=dtype, device="cpu", pin_memory=True)
            free.extend(block.unbind())
        return free.pop()

    def take(self) -> "list[Pending]":
        """The roots since the last call."""
        roots, self._roots = self._roots, []
        return roots


def total(roots: "list[Pending]") -> "float | None":
    """Their sum; None if there is none, or one was not computed."""
    values = [root.read() for root in roots]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
