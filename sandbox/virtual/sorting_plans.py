"""Plans of sorting, drawing and scattering; fitted to traces where CUB decides."""

from __future__ import annotations

from torch import Tensor

from .cards import Card
from .normalisation import sort_scratch_bytes
from .plans import Plan, Planner
from .schema import Call

SMALL_SORT = 4096
"""Slices up to this length are sorted inside a block (`should_use_small_sort`)."""
TOPK_VALUES_PER_BLOCK = 1280
TOPK_BLOCK_BYTES = 512
TOPK_SLICE_BYTES = 1024


def _plan_sort(call: Call, card: Card) -> Plan | None:
    source: Tensor = call.args[0]
    if source.dim() == 0 or source.numel() == 0:
        return None
    dim = call.get("dim")
    length = source.shape[-1 if dim is None else dim]
    if length <= SMALL_SORT:
        return Plan(late=((8 * source.numel() // length,),))
    count = source.numel()
    return Plan(late=((8 * count, sort_scratch_bytes(count, source.element_size() + 8)),))


def _plan_median(call: Call, card: Card) -> Plan | None:
    source: Tensor = call.args[0]
    if call.get("dim") is not None or source.numel() == 0:
        return None
    count, size = source.numel(), source.element_size()
    return Plan(late=((count * size, 8 * count, 8 * count, sort_scratch_bytes(count, size + 8)),))


def _plan_topk(call: Call, card: Card) -> Plan | None:
    source: Tensor = call.args[0]
    if source.dim() == 0 or source.numel() == 0:
        return None
    length = source.shape[call.get("dim")]
    slices = source.numel() // length
    blocks = slices * -(-length // TOPK_VALUES_PER_BLOCK)
    return Plan(
        late=(
            (
                slices * source.element_size(),
                8 * slices,
                8 * slices,
                blocks * TOPK_BLOCK_BYTES,
                slices * TOPK_SLICE_BYTES,
                4 * blocks,
                4 * blocks,
            ),
        )
    )


def _plan_randperm(call: Call, card: Card) -> Plan | None:
    count = call.get("n")
    if not count:
        return None
    return Plan(late=((8, 8 * count, 8 * count, 8 * count, sort_scratch_bytes(count, 16)),))


def _plan_multinomial(call: Call, card: Card) -> Plan | None:
    weights: Tensor = call.args[0]
    nbytes = weights.numel() * weights.element_size()
    return Plan(late=((nbytes,) * (3 if call.get("replacement") else 1),))


def _plan_accumulating_put(call: Call, card: Card) -> Plan | None:
    """`index_put_with_sort_kernel`: indices are flattened and sorted so that equal ones meet."""
    indices = [index for index in call.args[1] if isinstance(index, Tensor)]
    if not call.get("accumulate") or not indices:
        return None
    count = max(index.numel() for index in indices)
    if count == 0:
        return None
    return Plan(late=((8 * count,) * 5 + (sort_scratch_bytes(count, 16),),))


def _plan_fft_to_real(call: Call, card: Card) -> Plan | None:
    source: Tensor = call.args[0]  # cuFFT overwrites its input, so it gets a copy
    return Plan(late=((source.numel() * source.element_size(),),))


PLANNERS: dict[str, Planner] = {
    "sort": _plan_sort,
    "median": _plan_median,
    "topk": _plan_topk,
    "randperm": _plan_randperm,
    "multinomial": _plan_multinomial,
    "_index_put_impl_": _plan_accumulating_put,
    "index_put_": _plan_accumulating_put,
    "_fft_c2r": _plan_fft_to_real,
}
