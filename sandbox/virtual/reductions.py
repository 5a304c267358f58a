"""How much memory a CUDA reduction takes besides its result. No torch here.

A reduction that is split over thread blocks stages partial results in global memory. `ReduceConfig`, `setReduceConfig`
and `get_output_vec_size` of `ATen/native/cuda/Reduce.cuh` decide, from shape and strides, whether and how far; the
order of dimensions is `TensorIterator`'s. The result equals all 353 reductions measured on an H200
(`tests/sandbox/virtual/test_reductions.py` keeps a selection).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

MAX_THREADS = 512
WARP = 32
MIN_VALUES_PER_THREAD = 16
MAX_VALUES_PER_THREAD = 256
SEMAPHORE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """What the split depends on."""

    multiprocessors: int
    threads_per_multiprocessor: int


@dataclass(slots=True, kw_only=True)
class _Dimension:
    size: int
    stride: int
    output_stride: int


def staging_bytes(
    shape: Sequence[int],
    strides: Sequence[int],
    reduced: Collection[int],
    processor: Processor,
    *,
    accumulator_bytes: int,
    values_at_once: int = 4,
) -> tuple[int, int] | None:
    """Bytes of the staging buffer and of its semaphores, or None where the reduction is not split.

    Args:
        shape: the input's shape.
        strides: the input's strides, in elements.
        reduced: the dimensions that are reduced.
        processor: the card's.
        accumulator_bytes: size of one partial result (`arg_t`).
        values_at_once: `vt0` of the kernel.
    """
    over, kept = _dimensions(shape, strides, reduced)
    dimensions = over + kept
    if not dimensions or 0 in shape:
        return None
    outputs = _product(kept)
    inputs = _product(dimensions) // outputs
    contiguous_reduction = not kept or (bool(over) and over[0].stride < kept[0].stride)
    if contiguous_reduction:
        width, height, fastest = inputs, outputs, dimensions[0].stride
    else:
        width, height, fastest = outputs, inputs, kept[0].stride
    outputs_at_once = 1
    if fastest == 1:
        if contiguous_reduction and width >= 128 and len(over) == 1:
            width //= values_at_once
        elif not contiguous_reduction:
            outputs_at_once = _outputs_at_once(over, kept)
            width //= outputs_at_once
    block_width, block_height = _block(width, height, MAX_THREADS // outputs_at_once)
    return _global_memory(
        processor,
        inputs=inputs,
        outputs=outputs,
        outputs_at_once=outputs_at_once,
        block=(block_width, block_height),
        split_over_lanes=contiguous_reduction,
        accumulator_bytes=accumulator_bytes,
    )


def _dimensions(
    shape: Sequence[int], strides: Sequence[int], reduced: Collection[int]
) -> tuple[list[_Dimension], list[_Dimension]]:
    """Reduced and kept dimensions as `TensorIterator` orders and joins them, fastest first."""
    output_strides = [0] * len(shape)
    step = 1
    for dim in reversed(range(len(shape))):
        if dim not in reduced:
            output_strides[dim] = step
            step *= shape[dim]
    dimensions = [
        _Dimension(size=shape[dim], stride=strides[dim], output_stride=output_strides[dim])
        for dim in range(len(shape))
        if shape[dim] != 1
    ]
    over = [dimension for dimension in dimensions if dimension.output_stride == 0]
    kept = [dimension for dimension in dimensions if dimension.output_stride != 0]
    over.sort(key=lambda dimension: (dimension.stride, dimension.size))
    kept.sort(key=lambda dimension: dimension.output_stride)
    return _joined(over), _joined(kept)


def _joined(dimensions: list[_Dimension]) -> list[_Dimension]:
    joined: list[_Dimension] = []
    for dimension in dimensions:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.size * last.stride == dimension.stride
            and last.size * last.output_stride == dimension.output_stride
        ):
            last.size *= dimension.size
        else:
            joined.append(dimension)
    return joined


def _outputs_at_once(over: list[_Dimension], kept: list[_Dimension]) -> int:
    count = 4
    divisors = [kept[0].size, *(dimension.stride for dimension in over + kept[1:])]
    for divisor in divisors:
        while divisor % count:
            count //= 2
    return count


def _block(width: int, height: int, max_threads: int) -> tuple[int, int]:
    wide = min(_last_power_of_two(width), max_threads)
    high = min(_last_power_of_two(height), max_threads)
    block_width = min(wide, WARP)
    block_height = min(high, max_threads // block_width)
    return min(wide, max_threads // block_height), block_height


def _global_memory(
    processor: Processor,
    *,
    inputs: int,
    outputs: int,
    outputs_at_once: int,
    block: tuple[int, int],
    split_over_lanes: bool,
    accumulator_bytes: int,
) -> tuple[int, int] | None:
    block_width, block_height = block
    input_step = block_width if split_over_lanes else 1
    output_step = 1 if split_over_lanes else block_width
    if _ceil(inputs, input_step) < min(block_height * 16, MAX_VALUES_PER_THREAD):
        return None
    values_per_thread = _ceil(inputs, input_step * block_height)
    grid = _ceil(outputs // outputs_at_once, output_step)
    blocks = processor.threads_per_multiprocessor // (block_width * block_height)
    target_grid = processor.multiprocessors * blocks
    if values_per_thread < MAX_VALUES_PER_THREAD or grid > target_grid:
        return None
    blocks_per_output = max(
        min(_ceil(target_grid, grid), _ceil(values_per_thread, MIN_VALUES_PER_THREAD)),
        _ceil(values_per_thread, MAX_VALUES_PER_THREAD),
    )
    if blocks_per_output <= 1:
        return None
    staging = accumulator_bytes * outputs * blocks_per_output
    if not split_over_lanes:
        staging *= block_width * outputs_at_once
    return staging, SEMAPHORE_BYTES * grid


def _product(dimensions: list[_Dimension]) -> int:
    product = 1
    for dimension in dimensions:
        product *= dimension.size
    return product


def _last_power_of_two(number: int) -> int:
    return 1 << (number.bit_length() - 1) if number > 0 else 1


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
