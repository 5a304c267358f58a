"""Operators whose result size depends on values: nonzero, masks, unique.

Where the values were not computed, or go back to assumed ones, the largest possible size is taken (every element
counts), and counted in `upper_bound_shapes`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .dispatch import Dispatcher
from .handlers import handles
from .normalisation import sort_scratch_bytes
from .schema import Call
from .tensors import contiguous_stride

_MASKS = (torch.bool, torch.uint8)


@handles("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive")
def _data_dependent(dispatcher: Dispatcher, call: Call) -> Any:
    if call.operator.outputs:
        return NotImplemented
    storages = [
        dispatcher.tensors.storage_of(tensor) for tensor in call.tensors() if tensor.is_cuda
    ]
    if all(storage.known and not storage.assumed for storage in storages):
        return dispatcher.adopt_all(dispatcher.compute(call), assumed=False)
    dispatcher.report.upper_bound_shapes += 1
    source = call.args[0]
    if call.operator.name == "nonzero":
        return _unknown(dispatcher, (source.numel(), source.dim()), torch.int64)
    if call.operator.name == "masked_select":
        return _unknown(dispatcher, (source.numel(),), source.dtype)
    return _unique(dispatcher, source)


def _unique(dispatcher: Dispatcher, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    count = source.numel()
    results = (
        _unknown(dispatcher, (count,), source.dtype),
        _unknown(dispatcher, tuple(source.shape), torch.int64),
        _unknown(dispatcher, (count,), torch.int64),
    )
    size = source.element_size()
    scratch = sort_scratch_bytes(count, size + 8)
    dispatcher.device.temporary([size * count, 8 * count, 8 * count, scratch])
    return results


def _unknown(dispatcher: Dispatcher, size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return dispatcher.tensors.unknown(size, contiguous_stride(size), dtype)


@handles("index", "index_put_", "_index_put_impl_", "_unsafe_index")
def _index(dispatcher: Dispatcher, call: Call) -> Any:
    """Masks become indices, and host indices move to the device, as the real kernels do it."""
    indices: list[Tensor | None] = []
    changed = False
    for index in call.args[1]:
        if isinstance(index, Tensor) and index.dtype in _MASKS:
            indices += _positions(dispatcher, index)
            changed = True
        elif isinstance(index, Tensor) and not index.is_cuda:
            indices.append(dispatcher.tensors.adopt(index.clone()))
            changed = True
        else:
            indices.append(index)
    if not changed:
        return NotImplemented
    args = (call.args[0], indices, *call.args[2:])
    return dispatcher.run(call.operator.overload, args, call.kwargs)


def _positions(dispatcher: Dispatcher, mask: Tensor) -> list[Tensor]:
    """One index per dimension of the mask, columns of one tensor as on the device."""
    storage = dispatcher.tensors.storage_of(mask) if mask.is_cuda else None
    if storage is None or (storage.known and not storage.assumed):
        positions = dispatcher.tensors.adopt(dispatcher.host(mask).nonzero())
    else:
        dispatcher.report.upper_bound_shapes += 1
        positions = _unknown(dispatcher, (mask.numel(), mask.dim()), torch.int64)
    return [positions.select(1, dim) for dim in range(mask.dim())]
