"""Shapes of an operator's results, from torch's `meta` kernels, remembered per operator and argument shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .coverage import Coverage
from .schema import Call, map_tensors

_META = torch.device("meta")
_CPU = torch.device("cpu")
MAX_REMEMBERED = 50_000
MAX_ZEROS_BYTES = 256 << 20
"""Where a meta kernel is missing, inputs up to this size are replaced by host tensors: their values, or zeros."""


SHAPED_BY_FLOATS = ("arange", "range", "upsample", "_upsample")
"""Beginnings of the names of operators whose shapes depend on a float."""


class Described(NamedTuple):
    """One result tensor, without its memory."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Shapes:
    """Runs meta kernels.

    `infer` returns one item per result: a `Described`, a list of them, None, or the plain value that the operator
    returned. What a meta kernel raises (wrong shapes, wrong types) goes to the program, as on a real device.

    Args:
        report: learns where a meta kernel is missing.
        values_of: a host tensor with a CUDA tensor's values, or None where they are not known.
    """

    def __init__(self, report: Coverage, values_of: Callable[[Tensor], Tensor | None]) -> None:
        self._report = report
        self._values_of = values_of
        self._remembered: dict[Any, list[Any]] = {}

    def infer(self, call: Call) -> list[Any]:
        """Shapes of the call's results."""
        key = self._key(call)
        if key is not None and key in self._remembered:
            return self._remembered[key]
        try:
            result = call.operator.overload(
                *map_tensors(call.args, _as_meta), **_moved(call.kwargs, _META, _as_meta)
            )
        except NotImplementedError:
            result = self._on_values(call)
            if any(not _is_inexact(tensor) for tensor in call.tensors()):
                key = None  # offsets and lengths may decide about shapes
        described = _describe(result, len(call.operator.results))
        if key is not None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = described
        return described

    def check(self, call: Call) -> None:
        """Raises what the operator raises for these shapes; silent where there is no meta kernel."""
        key = self._key(call)
        if key is not None and key in self._remembered:
            return
        try:
            call.operator.overload(
                *map_tensors(call.args, _as_meta), **_moved(call.kwargs, _META, _as_meta)
            )
        except NotImplementedError:
            self._report.unsupported(
                str(call.operator.overload), "its shapes were not checked: no meta kernel"
            )
        if key is not None:
            self._remembered[key] = []

    @staticmethod
    def _key(call: Call) -> Any:
        key_of = _key_of if not call.operator.name.startswith(SHAPED_BY_FLOATS) else _exact_key_of
        try:
            key = (
                call.operator.overload,
                tuple([key_of(value) for value in call.args]),
                tuple([(name, key_of(value)) for name, value in call.kwargs.items()]),
            )
            hash(key)
        except TypeError:
            return None
        return key

    def _on_values(self, call: Call) -> Any:
        overload = call.operator.overload
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in call.tensors())
        if nbytes > MAX_ZEROS_BYTES:
            raise NotImplementedError(
                f"the virtual GPU knows no shapes for {overload}: torch has no meta kernel for it"
            )
        self._report.unsupported(
            str(overload),
            "no meta kernel; shapes are those for the values that are known, or zeros",
        )
        # what the program holds must not be changed
        to_host = _as_zeros if call.operator.written else self._known_or_zeros
        return overload(*map_tensors(call.args, to_host), **_moved(call.kwargs, _CPU, to_host))

    def _known_or_zeros(self, tensor: Tensor) -> Tensor:
        values = self._values_of(tensor) if tensor.is_cuda else tensor
        return _as_zeros(tensor) if values is None else values


def on_host(call: Call, to_host: Any, generator: Any = None) -> Any:
    """Computes the call on the host.

    Args:
        call: the call.
        to_host: makes a host tensor of a CUDA one.
        generator: used where the operator takes one and the program gave none.
    """
    kwargs = _moved(call.kwargs, _CPU, to_host)
    if generator is not None and call.operator.takes_generator and call.get("generator") is None:
        position = call.operator.positions.index("generator")
        if position >= len(call.args):
            kwargs["generator"] = generator
    return call.operator.overload(*map_tensors(call.args, to_host), **kwargs)


def _moved(kwargs: dict[str, Any], device: torch.device, change: Any) -> dict[str, Any]:
    if not kwargs:
        return {}
    moved = {name: map_tensors(value, change) for name, value in kwargs.items()}
    if moved.get("device") is not None:
        moved["device"] = device
    if device is _META and "generator" in moved:
        moved["generator"] = None
    if moved.get("pin_memory"):
        moved["pin_memory"] = False
    return moved


def _as_meta(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)


def _as_zeros(tensor: Tensor) -> Tensor:
    zeros = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_CPU)
    return zeros.zero_()


def _is_inexact(tensor: Tensor) -> bool:
    return bool(tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def _key_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return tuple([_key_of(item) for item in value])
    if isinstance(value, float):
        return float  # otherwise every learning rate would be remembered
    if isinstance(value, int):
        return (type(value), value)  # True is not 1
    return value


def _exact_key_of(value: Any) -> Any:
    return value if isinstance(value, float) else _key_of(value)


def _describe(result: Any, count: int) -> list[Any]:
    if count == 0:
        return []
    if count == 1:
        return [_described(result)]
    return [_described(item) for item in result]


def _described(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Described(tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return [_described(item) for item in value]
    return value
