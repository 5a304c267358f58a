"""Operators with an answer of their own: creation, copies, values that leave the device, resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .dispatch import Dispatcher, Handler
from .schema import Call

_META = torch.device("meta")
_CPU = torch.device("cpu")

HANDLERS: dict[str, Handler] = {}
"""By operator name; other modules add theirs through `handles`."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Registers a handler for operators of these names."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def _check_index(call: Call) -> None:
    device = call.kwargs.get("device")
    if device is not None and torch.device(device).index not in (None, 0):
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")


@handles("empty")
def _empty(dispatcher: Dispatcher, call: Call) -> Tensor:
    _check_index(call)
    shape = torch.empty(
        call.args[0],
        dtype=call.kwargs.get("dtype") or torch.get_default_dtype(),
        device=_META,
        memory_format=call.kwargs.get("memory_format") or torch.contiguous_format,
    )
    return dispatcher.tensors.uninitialised(tuple(shape.shape), shape.stride(), shape.dtype)


@handles("empty_strided")
def _empty_strided(dispatcher: Dispatcher, call: Call) -> Tensor:
    _check_index(call)
    size, stride = call.args[0], call.args[1]
    dtype = call.kwargs.get("dtype") or torch.get_default_dtype()
    return dispatcher.tensors.uninitialised(tuple(size), tuple(stride), dtype)


@handles("_efficientzerotensor")
def _zeros_without_memory(dispatcher: Dispatcher, call: Call) -> Any:
    """The zeros that forward-mode differentiation writes for "no tangent": they have a device, but no memory.

    The CPU's kernel makes them for whatever device it is given.
    """
    call.kwargs["device"] = torch.device("cuda", 0)
    return dispatcher.redispatch_to_cpu(call)


@handles("set_")
def _shared_with_cpu(dispatcher: Dispatcher, call: Call) -> Any:
    """C++ that both keys share and that reads no memory."""
    return dispatcher.redispatch_to_cpu(call)


@handles("resize_")
def _resize(dispatcher: Dispatcher, call: Call) -> Tensor:
    return dispatcher.resize(call.args[0], tuple(call.args[1]))


@handles("copy_", "_copy_from")
def _copy(dispatcher: Dispatcher, call: Call) -> Tensor:
    target, source = call.args[:2] if call.operator.name == "copy_" else call.args[1::-1]
    if not target.is_cuda:
        _copy_to_host(dispatcher, target, source)
    elif not source.is_cuda:
        _copy_to_device(dispatcher, target, source)
    else:
        _copy_on_device(dispatcher, target, source)
    return target


def _copy_to_host(dispatcher: Dispatcher, target: Tensor, source: Tensor) -> None:
    # `copy_requires_temporaries` (Copy.cu): unless both sides lie alike, the device side is made contiguous first
    if not _lie_alike(target, source) and not source.is_contiguous():
        dispatcher.device.temporary([source.numel() * source.element_size()])
    storage = dispatcher.tensors.storage_of(source)
    if storage.known and (storage.data is not None or not storage.nbytes):
        target.copy_(dispatcher.host(source))
        return
    dispatcher.report.assumed_values += 1
    dispatcher.values.fill_assumed(target)


def _copy_to_device(dispatcher: Dispatcher, target: Tensor, source: Tensor) -> None:
    if not _lie_alike(target, source) and not target.is_contiguous():
        dispatcher.device.temporary([target.numel() * target.element_size()])
    storage = dispatcher.tensors.storage_of(target)
    if storage.data is None:
        return
    dispatcher.host(target).copy_(source)
    if target.numel() * target.element_size() == storage.nbytes:
        storage.known, storage.assumed = True, False


def _copy_on_device(dispatcher: Dispatcher, target: Tensor, source: Tensor) -> None:
    into = dispatcher.tensors.storage_of(target)
    out_of = dispatcher.tensors.storage_of(source)
    if into.data is None:
        into.known = not into.nbytes
        return
    whole = target.numel() * target.element_size() == into.nbytes
    if out_of.known and (out_of.data is not None or not out_of.nbytes):
        dispatcher.host(target).copy_(dispatcher.host(source))
        into.assumed = out_of.assumed if whole else into.assumed or out_of.assumed
    else:
        into.assumed = True
        dispatcher.report.assumed_values += 1
    into.known = True


def _lie_alike(one: Tensor, other: Tensor) -> bool:
    if one.dtype is not other.dtype or one.shape != other.shape:
        return False
    return bool(one.stride() == other.stride() and one.numel() == _reach(one))


def _reach(tensor: Tensor) -> int:
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return sum((size - 1) * step for size, step in sizes) + 1 if tensor.numel() else 0


@handles("_local_scalar_dense")
def _item(dispatcher: Dispatcher, call: Call) -> Any:
    tensor = call.args[0]
    storage = dispatcher.tensors.storage_of(tensor)
    if storage.known and storage.data is not None:
        return dispatcher.host(tensor).item()
    dispatcher.report.assumed_values += 1
    return dispatcher.values.assumed_scalar(tensor.dtype)


@handles("mm", "addmm")
def _check_product(dispatcher: Dispatcher, call: Call) -> Any:
    """Raises the error that programs know; meta kernels word it in their own way."""
    left, right = (call.get(name) for name in _FACTORS[call.operator.name])
    if left.dim() == 2 == right.dim() and left.shape[1] != right.shape[0]:
        sizes = [f"{matrix.shape[0]}x{matrix.shape[1]}" for matrix in (left, right)]
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({sizes[0]} and {sizes[1]})")
    return NotImplemented


_FACTORS = {"mm": ("self", "mat2"), "addmm": ("mat1", "mat2")}


@handles("equal")
def _equal(dispatcher: Dispatcher, call: Call) -> bool:
    if all(dispatcher.tensors.storage_of(tensor).known for tensor in call.args):
        return bool(torch.equal(*[dispatcher.host(tensor) for tensor in call.args]))
    dispatcher.report.assumed_values += 1
    return False


@handles("_amp_foreach_non_finite_check_and_unscale_")
def _check_finite(dispatcher: Dispatcher, call: Call) -> Any:
    """Gradients that nobody computed count as finite: the scaler then steps, as in a healthy run."""
    tensors = call.args[0]
    if all(dispatcher.tensors.storage_of(tensor).known for tensor in tensors):
        return NotImplemented
    dispatcher.tensors.storage_of(call.args[1]).assumed = True
    dispatcher.report.assumed_values += 1
    return None


@handles("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss")
def _no(dispatcher: Dispatcher, call: Call) -> bool:
    return False


@handles("record_stream")
def _record_stream(dispatcher: Dispatcher, call: Call) -> None:
    block = dispatcher.tensors.storage_of(call.args[0]).block
    if block is not None:
        dispatcher.device.allocator.record_stream(block, call.args[1].stream_id)


@handles("is_pinned")
def _is_pinned(dispatcher: Dispatcher, call: Call) -> bool:
    return False


@handles("_assert_async")
def _assert_async(dispatcher: Dispatcher, call: Call) -> Any:
    """An assertion about values that nobody computed holds."""
    known = dispatcher.tensors.storage_of(call.args[0])
    return NotImplemented if known.known and not known.assumed else None


@handles("_scaled_dot_product_efficient_attention")
def _efficient_attention(dispatcher: Dispatcher, call: Call) -> Any:
    """The random state of this kernel stays on the host, unlike what its meta kernel says."""
    output, log_sum, seed, offset = dispatcher.shapes.infer(call)
    new = dispatcher.tensors.unknown
    return (
        new(*output),
        new(*log_sum),
        torch.empty(seed.size, dtype=seed.dtype, device=_CPU),
        torch.empty(offset.size, dtype=offset.dtype, device=_CPU),
    )
