"""Sums of gradients that the autograd engine makes where paths meet.

On a real device the engine adds in place if nobody else holds the first gradient (`can_accumulate_inplace`,
input_buffer.cpp). Here every gradient that was an argument of our kernels has a Python wrapper, which holds it as
well, so the engine asks for a new tensor. The use counts tell the two cases apart: the decision is taken again, wrapper
apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .dispatch import Dispatcher
from .handlers import handles
from .schema import Call

HOLDERS_WHEN_UNSHARED = 3
"""The engine's buffer, the call's stack, and the wrapper."""
STORAGE_HOLDERS_WHEN_UNSHARED = 2
"""The tensor, and the storage's wrapper."""


@handles("add")
def _accumulate(dispatcher: Dispatcher, call: Call) -> Any:
    node = dispatcher.tensors.current_node()
    if node is None or call.operator.outputs or len(call.args) < 2 or call.get("alpha") != 1:
        return NotImplemented
    first, second = call.args[0], call.args[1]
    if not isinstance(second, Tensor) or not first.is_cuda or not second.is_cuda:
        return NotImplemented
    made_by = dispatcher.tensors.storage_of(first).node
    if made_by == node._sequence_nr() or not _may_be_overwritten(first, second):
        return NotImplemented
    return dispatcher.run(torch.ops.aten.add_.Tensor, (first, second), {})


def _may_be_overwritten(first: Tensor, second: Tensor) -> bool:
    """Whether `first` is a dense gradient that only the engine holds."""
    alike = first.shape == second.shape and first.dtype is second.dtype
    return (
        alike
        and first._use_count() <= HOLDERS_WHEN_UNSHARED
        and _storage_holders(first) <= STORAGE_HOLDERS_WHEN_UNSHARED
        and torch.ops.aten.is_non_overlapping_and_dense(first)
    )


def _storage_holders(tensor: Tensor) -> int:
    return int(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))
