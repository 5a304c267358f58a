"""Strided nested tensors: several tensors of different lengths over one buffer, with a dispatch key of their own.

torch's C++ for them works on the buffer through operators, which arrive at the CUDA key; so the kernels registered for
the CPU serve here too. Only those are ours that write device memory themselves.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .dispatch import Dispatcher
from .handlers import handles
from .plans import Plan
from .schema import Call, read, with_tensors_for_numbers

_aten = torch.ops.aten
_NESTED_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.NestedTensorCPU)
_ATEN = "aten::"

_FUSED_TYPES = frozenset({torch.float32, torch.float16})
"""Padding of other types is left out by a mask (`nested_from_padded_cuda`)."""
INDEX_BYTES = 8

KERNELS: dict[str, Callable[..., Any]] = {}
"""Kernels of ours for the nested CUDA key, by operator name without namespace."""


def nested_kernel(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a kernel of the nested CUDA key; it is called as `kernel(dispatcher, *args, **kwargs)`."""

    def register(kernel: Callable[..., Any]) -> Callable[..., Any]:
        KERNELS[name] = kernel
        return kernel

    return register


def register_nested(dispatcher: Dispatcher) -> Any:
    """Gives every operator of nested tensors a kernel; the registrations hold as long as what is returned lives."""
    library = torch._C._dispatch_library("IMPL", "aten", "NestedTensorCUDA")
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
        for full_name in torch._C._dispatch_get_all_op_names():
            if not full_name.startswith(_ATEN) or not has_kernel(full_name, "NestedTensorCPU"):
                continue
            name = full_name[len(_ATEN) :]
            base, _, overload = name.partition(".")
            operator = getattr(getattr(_aten, base), overload or "default")
            own = KERNELS.get(name)
            kernel = functools.partial(own, dispatcher) if own else _with_cpu_kernel(operator)
            library.impl(name, "NestedTensorCUDA", kernel)
    return library


def _with_cpu_kernel(overload: Any) -> Callable[..., Any]:
    places = read(overload).tensor_places

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args = with_tensors_for_numbers(places, args)
        return overload.redispatch(_NESTED_CPU, *args, **kwargs)

    return kernel


def from_buffer(buffer: Tensor, sizes: Tensor) -> Tensor:
    """A nested tensor whose members lie one behind the other in a flat `buffer`; `sizes` is one row per member."""
    strides = torch.ones_like(sizes)
    for dim in range(sizes.shape[1] - 2, -1, -1):
        strides[:, dim] = strides[:, dim + 1] * sizes[:, dim + 1]
    counts = sizes.prod(1)
    return _aten._nested_view_from_buffer(buffer, sizes, strides, counts.cumsum(0) - counts)


def sizes_of(nested: Tensor) -> Tensor:
    """Sizes of the members on the host, one row per member."""
    return _aten._nested_tensor_size(nested)


def rows_of(nested: Tensor, width: int) -> Tensor:
    """The buffer as a matrix with `width` columns."""
    return _aten.values(nested).view(-1, width)


@handles("_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned")
def _from_mask(dispatcher: Dispatcher, call: Call) -> Any:
    return dispatcher.redispatch_to_cpu(call)


@handles("_nested_from_padded")
def _from_padded(dispatcher: Dispatcher, call: Call) -> Tensor:
    """`nested_from_padded_cuda`: one buffer without the padding."""
    padded, sizes = call.args[0], call.args[1].to(torch.int64)
    sizes = dispatcher.host(sizes).contiguous()
    count = int(sizes.prod(1).sum())
    plan = _selection(padded, count) if padded.dtype not in _FUSED_TYPES else Plan()
    held = dispatcher.kernels.begin(plan)
    buffer = dispatcher.tensors.unknown((count,), (1,), padded.dtype)
    dispatcher.kernels.end(plan, held)
    storage = dispatcher.tensors.storage_of(padded)
    into = dispatcher.tensors.storage_of(buffer)
    if storage.known and storage.data is not None and into.data is not None:
        whole = call.operator.overload(dispatcher.host(padded), sizes, *call.args[2:])
        dispatcher.host(buffer).copy_(whole.values())
        into.assumed = storage.assumed
    return from_buffer(buffer, sizes)


def _selection(padded: Tensor, count: int) -> Plan:
    """`nested_from_padded_generic`: a mask for each member and one for all, then the indices of what is kept."""
    masks = (padded[0].numel(),) * len(padded)
    return Plan(held=(*masks, padded.numel(), INDEX_BYTES * padded.dim() * count))


@handles("_padded_dense_to_jagged_forward", "_jagged_to_padded_dense_forward")
def _jagged_conversion(dispatcher: Dispatcher, call: Call) -> Any:
    """Jagged tensors keep their lengths apart, so shapes are known without values."""
    source = call.args[0]
    if dispatcher.tensors.storage_of(source).known:
        return NotImplemented
    offsets = call.args[1][0]
    if call.operator.name == "_jagged_to_padded_dense_forward":
        shape = [len(offsets) - 1, *call.get("max_lengths"), *source.shape[1:]]
    else:
        total = call.get("total_L")
        shape = [
            int(offsets[-1]) if total is None else total,
            *source.shape[1 + len(call.args[1]) :],
        ]
    return torch.empty(shape, dtype=source.dtype, device=source.device)


@nested_kernel("to_padded_tensor")
def _to_padded(
    dispatcher: Dispatcher, nested: Tensor, padding: float, output_size: list[int] | None = None
) -> Tensor:
    """`NestedTensor_to_padded_tensor_cuda`: one new tensor."""
    sizes = sizes_of(nested)
    shape = [len(sizes), *sizes.max(0).values.tolist()] if output_size is None else output_size
    buffer = _aten.values(nested)
    storage = dispatcher.tensors.storage_of(buffer)
    if storage.known and storage.data is not None:
        on_host = from_buffer(dispatcher.host(buffer), sizes)
        padded = on_host.to_padded_tensor(padding, output_size)
        return dispatcher.tensors.adopt(padded, assumed=storage.assumed)
    return torch.empty(shape, dtype=nested.dtype, device=nested.device)


@nested_kernel("native_layer_norm")
def _layer_norm(
    dispatcher: Dispatcher,
    nested: Tensor,
    shape: list[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Any:
    """The rows are normalised as those of one matrix."""
    rows = _aten.values(nested).view(-1, *shape)
    normal, mean, deviation = _aten.native_layer_norm(rows, shape, weight, bias, eps)
    return from_buffer(normal.view(-1), sizes_of(nested)), mean, deviation
