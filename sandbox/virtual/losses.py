"""Losses whose scalar keeps the memory of the loss of every element.

Their kernels write each element's loss into a tensor of the full size, reduce it, and then resize that very tensor, or
one like it, to a scalar; its storage stays as large as it was (`Loss.cpp`, `Loss.cu`; traces of an H200).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .dispatch import Dispatcher, check_devices
from .handlers import handles
from .schema import Call, read
from .tensors import contiguous_stride

_aten = torch.ops.aten
_MEAN = 1


@handles("mse_loss", "smooth_l1_loss")
def _reduced_elsewhere(dispatcher: Dispatcher, call: Call) -> Any:
    """The result is made in full size, the losses in another tensor, which is reduced into it."""
    if call.operator.outputs or not call.get("reduction"):
        return NotImplemented
    _check(dispatcher, call)
    shape = torch.broadcast_shapes(call.args[0].shape, call.args[1].shape)
    if not shape.numel():
        return NotImplemented
    result = _of_full_size(dispatcher, call, shape)
    losses = _of_full_size(dispatcher, call, shape)
    _stage(dispatcher, call, losses)
    return _as_scalar(dispatcher, call, result)


@handles("binary_cross_entropy")
def _reduced_in_place(dispatcher: Dispatcher, call: Call) -> Any:
    """The losses are reduced to a scalar, for which their own tensor is then used."""
    if call.operator.outputs or not call.get("reduction") or not call.args[0].numel():
        return NotImplemented
    _check(dispatcher, call)
    losses = _of_full_size(dispatcher, call, call.args[0].shape)
    _stage(dispatcher, call, losses)
    return _as_scalar(dispatcher, call, losses)


def _check(dispatcher: Dispatcher, call: Call) -> None:
    check_devices(call)
    dispatcher.shapes.check(call)


def _of_full_size(dispatcher: Dispatcher, call: Call, shape: torch.Size) -> Tensor:
    dtype = torch.result_type(call.args[0], call.args[1])
    return dispatcher.tensors.uninitialised(tuple(shape), contiguous_stride(shape), dtype)


def _stage(dispatcher: Dispatcher, call: Call, losses: Tensor) -> None:
    """Takes what the reduction takes besides its result."""
    reduce = _aten.mean.default if call.get("reduction") == _MEAN else _aten.sum.default
    plan = dispatcher.kernels.plan(Call(read(reduce), (losses,), {}))
    if plan is not None:
        dispatcher.kernels.end(plan, dispatcher.kernels.begin(plan))


def _as_scalar(dispatcher: Dispatcher, call: Call, full: Tensor) -> Tensor:
    """Resizes to a scalar, and computes its value where the arguments' values are known."""
    result = dispatcher.resize(full, ())
    target = dispatcher.tensors.storage_of(result)
    inputs = [dispatcher.tensors.storage_of(tensor) for tensor in call.tensors() if tensor.is_cuda]
    known = target.data is not None and all(storage.known for storage in inputs)
    if known and dispatcher.values.computes(sum(storage.nbytes for storage in inputs)):
        dispatcher.host(result).copy_(dispatcher.compute(call))
        target.known, target.assumed = True, any(storage.assumed for storage in inputs)
    elif target.data is not None:
        target.known = target.assumed = True
        dispatcher.report.assumed_values += 1
    return result
