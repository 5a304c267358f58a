"""Plans of normalisation layers, softmax, embedding and losses."""

from __future__ import annotations

import torch
from torch import Tensor

from .cards import Card
from .plans import Plan, Planner
from .schema import Call

ACCUMULATE_BYTES = 4  # these kernels work in single precision
SIMPLE_EMBEDDING_INDICES = 3072
"""Up to so many indices the embedding's gradient needs no sorting (Embedding.cu)."""
EMBEDDING_ROWS_PER_THREAD = 10  # NROWS_PER_THREAD
WARP = 32
SCAN_BYTES = 1279  # CUB's scan of a short sequence
SORT_TILE = 4096
SORT_TILE_BYTES = 1024
SORT_BASE_BYTES = 16_895
BATCH_NORM_THREADS = 512
BATCH_NORM_VALUES_PER_THREAD = 16
BATCH_NORM_MAX_ROWS = 128
BATCH_NORM_MIN_ROWS = 8


def sort_scratch_bytes(count: int, pair_bytes: int) -> int:
    """CUB's radix sort of `count` pairs: a second copy, and a remainder fitted to traces (within 1 %)."""
    return count * pair_bytes + SORT_TILE_BYTES * -(-count // SORT_TILE) + SORT_BASE_BYTES


def _plan_softmax_backward(call: Call, card: Card) -> Plan | None:
    output: Tensor = call.args[1]
    return Plan(late=((output.numel() * output.element_size(),),))


def _plan_group_norm(call: Call, card: Card) -> Plan | None:
    samples, channels = call.get("N"), call.get("C")
    scale = ACCUMULATE_BYTES * samples * channels
    return Plan(late=((scale, scale),))


def _plan_group_norm_backward(call: Call, card: Card) -> Plan | None:
    samples, channels, groups = call.get("N"), call.get("C"), call.get("group")
    per_channel = ACCUMULATE_BYTES * samples * channels
    per_group = ACCUMULATE_BYTES * samples * groups
    return Plan(late=((per_channel, per_channel, per_group, per_group, per_channel),))


def _batch_norm_staging(source: Tensor, buffers: int) -> tuple[int, int] | None:
    """Staging of the channels-last kernels (`flexible_launch_configs`, Normalization.cuh)."""
    channels = source.shape[1]
    channels_last = source.dim() == 4 and source.is_contiguous(memory_format=torch.channels_last)
    if not channels_last and not (source.is_contiguous() and source.stride(1) == 1):
        return None
    rows = source.numel() // channels if channels else 0
    if rows == 0:
        return None
    width = min(_last_power_of_two(channels), WARP)
    height = min(
        _last_power_of_two(-(-rows // BATCH_NORM_VALUES_PER_THREAD)), BATCH_NORM_THREADS // width
    )
    if width * height != BATCH_NORM_THREADS:
        width = min(_last_power_of_two(channels), BATCH_NORM_THREADS // height)
    grid_rows = min(-(-rows // (height * BATCH_NORM_VALUES_PER_THREAD)), BATCH_NORM_MAX_ROWS)
    if grid_rows < BATCH_NORM_MIN_ROWS:
        return None
    return buffers * channels * grid_rows * ACCUMULATE_BYTES, 4 * -(-channels // width)


def _plan_batch_norm(call: Call, card: Card) -> Plan | None:
    staging = _batch_norm_staging(call.args[0], 4) if call.get("training") else None
    return Plan(late=(staging,)) if staging is not None else None


def _plan_batch_norm_backward(call: Call, card: Card) -> Plan | None:
    source = call.args[1]
    sums = ACCUMULATE_BYTES * source.shape[1]
    staging = _batch_norm_staging(source, 2)
    return Plan(late=((sums, sums, *staging),)) if staging is not None else None


def _plan_embedding_backward(call: Call, card: Card) -> Plan | None:
    """`embedding_dense_backward_cuda`: sort the indices, then sum segments of equal ones."""
    gradient, indices, rows = call.args[0], call.args[1], call.get("num_weights")
    count = indices.numel()
    if count <= SIMPLE_EMBEDDING_INDICES and not call.get("scale_grad_by_freq"):
        return None
    index_bytes = 8 * count
    segments = min(count, rows) + count // EMBEDDING_ROWS_PER_THREAD
    columns = -(-gradient.shape[-1] // WARP) * WARP
    accumulate = 8 if gradient.dtype is torch.float64 else ACCUMULATE_BYTES
    copied = () if indices.is_contiguous() else (index_bytes,)
    return Plan(
        held=(*copied, index_bytes, index_bytes),
        early=((index_bytes, sort_scratch_bytes(count, 16)),),
        late=(
            (
                index_bytes,
                8,
                (index_bytes, SCAN_BYTES),
                index_bytes,
                index_bytes,
                (SCAN_BYTES,),
                8,
                8 * segments,
                accumulate * segments * columns,
            ),
        ),
    )


def _plan_elementwise_loss(call: Call, card: Card) -> Plan | None:
    """The loss of every element, before it is reduced (Loss.cpp)."""
    source: Tensor = call.args[0]
    nbytes = source.numel() * source.element_size() if call.get("reduction") else 0
    return Plan(held=(nbytes,)) if nbytes else None


def _last_power_of_two(number: int) -> int:
    return 1 << (number.bit_length() - 1) if number > 0 else 1


PLANNERS: dict[str, Planner] = {
    "_softmax_backward_data": _plan_softmax_backward,
    "native_group_norm": _plan_group_norm,
    "native_group_norm_backward": _plan_group_norm_backward,
    "native_batch_norm": _plan_batch_norm,
    "native_batch_norm_backward": _plan_batch_norm_backward,
    "embedding_dense_backward": _plan_embedding_backward,
    "huber_loss": _plan_elementwise_loss,
}
