"""Plans of reductions; the sizes come from `reductions.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .cards import Card
from .plans import Plan, Planner
from .reductions import Processor, staging_bytes
from .schema import Call

MAX_INDEXED_BYTES = (1 << 31) - 1
"""Larger inputs are reduced in pieces (`TensorIterator::with_32bit_indexing`)."""
PAIR_BYTES = 16
"""A value and its 64-bit index."""
WELFORD_BYTES = {torch.float64: 32}
"""`WelfordData`: mean, squared distance, count as integer and as float; 16 bytes in single precision."""
NORM_CHUNK = 65_536
"""Elements per block of a multi-tensor norm (`kChunkSize`)."""


def _plan(name: str) -> Planner:
    def plan(call: Call, card: Card) -> Plan | None:
        source = call.args[0]
        if not isinstance(source, Tensor) or source.numel() == 0:
            return None
        dims = call.get("dim")
        accumulator = _accumulator_bytes(name, source, has_dims=dims is not None)
        held: tuple[int, ...] = ()
        if name in {"sum", "nansum", "prod", "cumsum"} and _is_cast(call, source):
            held, accumulator = (8 * source.numel(),), 8
        staging = _staging(
            source, dims, card, accumulator, values_at_once=2 if name in _MOMENTS else 4
        )
        if staging is None and not held:
            return None
        return Plan(held=held, late=(staging,) if staging is not None else ())

    return plan


def _is_cast(call: Call, source: Tensor) -> bool:
    """Integers are summed as 64-bit integers, from a copy."""
    return not (source.dtype.is_floating_point or source.dtype.is_complex) and (
        source.dtype is not (call.get("dtype") or torch.int64)
    )


def _accumulator_bytes(name: str, source: Tensor, *, has_dims: bool) -> int:
    size: int = source.element_size()
    if name in {"argmax", "argmin"} or (name in {"max", "min"} and has_dims):
        return PAIR_BYTES
    if name in _MOMENTS:
        return WELFORD_BYTES.get(source.dtype, 16)
    if name in {"amax", "amin", "max", "min", "any", "all"}:
        return size
    if name == "aminmax":
        return 2 * size
    if not (source.dtype.is_floating_point or source.dtype.is_complex):
        return 8
    return max(size, 4)  # half precision is accumulated in single


def _staging(
    source: Tensor, dims: Any, card: Card, accumulator_bytes: int, *, values_at_once: int
) -> tuple[int, int] | None:
    rank = source.dim()
    if dims is None or (isinstance(dims, Sequence) and not dims):
        reduced = set(range(rank))
    else:
        wanted = [dims] if isinstance(dims, int) else dims
        reduced = {dim % rank for dim in wanted} if rank else set()
    shape, strides = list(source.shape), source.stride()
    _halve_until_indexable(shape, strides, source.element_size())
    processor = Processor(
        multiprocessors=card.multiprocessors,
        threads_per_multiprocessor=card.threads_per_multiprocessor,
    )
    return staging_bytes(
        shape,
        strides,
        reduced,
        processor,
        accumulator_bytes=accumulator_bytes,
        values_at_once=values_at_once,
    )


def _halve_until_indexable(shape: list[int], strides: Sequence[int], itemsize: int) -> None:
    def reach(dim: int) -> int:
        return (shape[dim] - 1) * strides[dim] * itemsize

    while shape and sum(reach(dim) for dim in range(len(shape))) > MAX_INDEXED_BYTES:
        widest = max(range(len(shape)), key=reach)
        shape[widest] = -(-shape[widest] // 2)


def _plan_foreach_norm(call: Call, card: Card) -> Plan | None:
    tensors = call.args[0]
    if not tensors or not isinstance(tensors[0], Tensor):
        return None
    chunks = max(-(-tensor.numel() // NORM_CHUNK) for tensor in tensors)
    return Plan(held=(4 * len(tensors) * max(chunks, 1),))


_MOMENTS = frozenset({"var", "std", "var_mean", "std_mean"})
_NAMES = (
    "sum",
    "nansum",
    "prod",
    "mean",
    "norm",
    "linalg_vector_norm",
    "amax",
    "amin",
    "aminmax",
    "max",
    "min",
    "argmax",
    "argmin",
    "any",
    "all",
    *sorted(_MOMENTS),
)

PLANNERS: dict[str, Planner] = {name: _plan(name) for name in _NAMES}
PLANNERS["_foreach_norm"] = _plan_foreach_norm
