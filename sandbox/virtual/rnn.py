"""Recurrent layers through cuDNN's fused operator.

torch's `lstm`, `gru` and `rnn_*` reach cuDNN through a function table that CPU-only builds lack, so they are given
kernels of ours, which call `_cudnn_rnn` as the real ones do. The size of cuDNN's reserve space is exact for every layer
tried on an H200; its workspace is estimated (up to 4 % off in gated layers, 12 % in plain ones of half precision, 53 %
in plain ones of single precision).
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .dispatch import Dispatcher
from .handlers import handles
from .schema import Call

_aten = torch.ops.aten
ALIGNMENT_BYTES = 256
WORKSPACE_BASE_BYTES = 16 << 20
DROPOUT_STATE_BYTES = 6_488_064
"""State of cuDNN's dropout on 132 multiprocessors; torch takes it once and keeps it for good."""

CUDNN_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_GATES = {0: 1, 1: 1, 2: 4, 3: 3}
_RESERVED = {0: 1, 1: 1, 2: 5, 3: 6}
"""Values of hidden size that each layer and step keeps for the backward pass."""


class _Layers(NamedTuple):
    """Weights and options of one call, whichever overload it came through."""

    source: Tensor
    hidden: list[Tensor]
    weights: list[Tensor]
    has_biases: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool
    batch_sizes: list[int]


def kernel(name: str) -> Any:
    """A kernel for `aten::<name>.input` and `.data`."""
    mode = CUDNN_MODES[name]

    def run(*args: Any) -> Any:
        call = _read(args)
        if torch.is_autocast_enabled("cuda"):
            call = _cast(call, torch.get_autocast_dtype("cuda"))
        # The operator's own autocast kernel asks cuDNN; the casts are done.
        with torch.autocast("cuda", enabled=False):
            results = _fused(call, mode)
        return results[:3] if mode == CUDNN_MODES["lstm"] else results[:2]

    return run


def _read(args: tuple[Any, ...]) -> _Layers:
    packed = isinstance(args[3], (list, tuple))
    if packed:
        source, sizes, hidden, weights, biases, layers, dropout, train, bidirectional = args
        batch_sizes, batch_first = sizes.tolist(), False
    else:
        source, hidden, weights, biases, layers, dropout, train, bidirectional, batch_first = args
        batch_sizes = []
    return _Layers(
        source=source,
        hidden=list(hidden) if isinstance(hidden, (list, tuple)) else [hidden],
        weights=list(weights),
        has_biases=biases,
        layers=layers,
        dropout=dropout,
        train=train,
        bidirectional=bidirectional,
        batch_first=batch_first,
        batch_sizes=batch_sizes,
    )


def _cast(call: _Layers, dtype: torch.dtype) -> _Layers:
    return call._replace(
        source=call.source.to(dtype),
        hidden=[state.to(dtype) for state in call.hidden],
        weights=[weight.to(dtype) for weight in call.weights],
    )


def _fused(call: _Layers, mode: int) -> Any:
    hidden = call.hidden[0]
    cell = call.hidden[1] if len(call.hidden) > 1 else None
    size = cell.shape[-1] if cell is not None else call.weights[1].shape[1]
    projected = hidden.shape[-1] if hidden.shape[-1] != size else 0
    dropout_state = _dropout_state() if call.train and call.dropout else None
    return _aten._cudnn_rnn(
        call.source,
        call.weights,
        len(call.weights) // (call.layers * (2 if call.bidirectional else 1)),
        _flat_buffer(call.weights),
        hidden,
        cell,
        mode,
        size,
        projected,
        call.layers,
        call.batch_first,
        call.dropout,
        call.train,
        call.bidirectional,
        call.batch_sizes,
        dropout_state,
    )


@functools.cache
def _dropout_state() -> Tensor:
    return torch.empty(DROPOUT_STATE_BYTES, dtype=torch.uint8, device="cuda")


def _flat_buffer(weights: list[Tensor]) -> Tensor | None:
    """The buffer that holds all weights, where `flatten_parameters` has laid them together."""
    storage = weights[0].untyped_storage()
    if any(weight.untyped_storage().data_ptr() != storage.data_ptr() for weight in weights):
        return None
    count = storage.nbytes() // weights[0].element_size()
    return weights[0].detach().as_strided((count,), (1,), 0)


@handles("_cudnn_rnn_flatten_weight")
def _flatten_weight(dispatcher: Dispatcher, call: Call) -> Tensor:
    """Moves the weights into one buffer, of which they become views."""
    weights = call.args[0]
    buffer = dispatcher.tensors.unknown(
        (sum(weight.numel() for weight in weights),), (1,), weights[0].dtype
    )
    _move_into(dispatcher, buffer, weights)
    return buffer


def _move_into(dispatcher: Dispatcher, buffer: Tensor, weights: list[Tensor]) -> None:
    offset = 0
    for weight in weights:
        place = buffer.as_strided(weight.shape, weight.stride(), offset)
        place.copy_(weight)
        weight.set_(buffer.untyped_storage(), offset, weight.shape, weight.stride())
        offset += weight.numel()


@handles("_cudnn_rnn")
def _forward(dispatcher: Dispatcher, call: Call) -> Any:
    source, weights, buffer = call.args[0], call.args[1], call.args[3]
    hidden, cell = call.args[4], call.args[5]
    mode, size, projected, layers = call.args[6:10]
    batch_first, dropout, train, bidirectional = call.args[10:14]
    directions = 2 if bidirectional else 1
    new = dispatcher.tensors.unknown
    width = (projected or size) * directions
    output_shape = (*source.shape[:-1], width)
    output = _output(dispatcher, output_shape, source.dtype, batch_first and not call.args[14])
    last_hidden = new(tuple(hidden.shape), hidden.stride(), source.dtype)
    last_cell = (
        new(tuple(cell.shape), cell.stride(), source.dtype)
        if cell is not None
        else new((0,), (1,), source.dtype)
    )
    if buffer is None:
        buffer = new((sum(weight.numel() for weight in weights),), (1,), source.dtype)
    item = source.element_size()
    unit = source.numel() // source.shape[-1] * size * item
    reserve_bytes = 0
    if train:
        kept = _RESERVED[mode] * layers * directions + (layers - 1) * directions
        masks = (layers - 1) * unit // item * directions // 4 if dropout else 0
        reserve_bytes = unit * kept + masks + ALIGNMENT_BYTES
    reserve = new((reserve_bytes,), (1,), torch.uint8)
    workspace = _workspace_bytes(weights, unit, mode, directions)
    transposed = source.numel() * item if batch_first and not call.args[14] else 0
    dispatcher.device.temporary([transposed, workspace])
    _report(dispatcher)
    return output, last_hidden, last_cell, reserve, buffer


def _output(
    dispatcher: Dispatcher, shape: tuple[int, ...], dtype: torch.dtype, transposed: bool
) -> Tensor:
    """Batch-first results are views of sequence-first memory."""
    if not transposed:
        strides = _row_major(shape)
        return dispatcher.tensors.unknown(shape, strides, dtype)
    batch, _, width = shape
    return dispatcher.tensors.unknown(shape, (width, batch * width, 1), dtype)


def _workspace_bytes(weights: list[Tensor], unit_bytes: int, mode: int, directions: int) -> int:
    weight_bytes: int = sum(weight.numel() * weight.element_size() for weight in weights)
    return (WORKSPACE_BASE_BYTES + _GATES[mode] * unit_bytes) * directions + 2 * weight_bytes


@handles("_cudnn_rnn_backward")
def _backward(dispatcher: Dispatcher, call: Call) -> Any:
    source, weights = call.args[0], call.args[1]
    hidden, cell, mode, size = call.args[4], call.args[5], call.args[10], call.args[11]
    batch_first, bidirectional = call.args[14], call.args[17]
    new = dispatcher.tensors.unknown

    def like(tensor: Tensor | None) -> Tensor | None:
        if tensor is None:
            return None
        return new(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    gradients = like(source), like(hidden), like(cell)
    unit = source.numel() // source.shape[-1] * size * source.element_size()
    workspace = _workspace_bytes(weights, unit, mode, 2 if bidirectional else 1)
    transposed = source.numel() * source.element_size() if batch_first else 0
    dispatcher.device.temporary([transposed, workspace])
    buffer = new((sum(weight.numel() for weight in weights),), (1,), weights[0].dtype)
    dispatcher.device.temporary([transposed, workspace])
    offsets = [0]
    for weight in weights:
        offsets.append(offsets[-1] + weight.numel())
    parts = [
        buffer.as_strided(weight.shape, _row_major(tuple(weight.shape)), offset)
        for weight, offset in zip(weights, offsets[:-1], strict=True)
    ]
    return (*gradients, parts)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _report(dispatcher: Dispatcher) -> None:
    dispatcher.report.not_modelled(
        "cuDNN's workspace for recurrent layers is estimated, from traces of an H200."
    )
