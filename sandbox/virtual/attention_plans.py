"""Plans of the fused attention kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from .cards import Card
from .plans import Plan, Planner
from .schema import Call

CUDNN_SCRATCH_BYTES = 256
EFFICIENT_BLOCK = 128
EFFICIENT_WIDE_HEAD = 128
"""Wider heads are worked on in blocks of half the length."""
FLASH_BLOCK = 128


def _plan_efficient_backward(call: Call, card: Card) -> Plan | None:
    """`_efficient_attention_backward`: delta = sum(grad * out), then a workspace for the query's gradient.

    The workspace is one single-precision accumulator per head, padded to the kernel's block, and 32 bytes of counters
    per block; equal to what an H200 took for heads of 32 to 256.
    """
    gradient, query, key = call.args[0], call.args[1], call.args[2]
    batch, heads, length, width = query.shape
    delta = 4 * batch * heads * length
    padded_length = _up(length, EFFICIENT_BLOCK)
    padded_width = max(_up(width, 64 if width <= 64 else EFFICIENT_WIDE_HEAD), 1)
    block = EFFICIENT_BLOCK if width <= EFFICIENT_WIDE_HEAD else EFFICIENT_BLOCK // 2
    per_head = padded_length * padded_width * 4 + padded_length // block * 32
    if query.dtype is not torch.float32:
        # the gradients of key and value are accumulated in single precision too
        per_head += 2 * _up(key.shape[-2], EFFICIENT_BLOCK) * padded_width * 4
    return Plan(
        late=(
            (gradient.numel() * gradient.element_size(), delta, delta),
            (delta, batch * heads * per_head),
        )
    )


def _plan_flash_backward(call: Call, card: Card) -> Plan | None:
    """`mha_bwd` (flash_api.cpp), read in the source only: query accumulator and softmax sums, padded."""
    query, key = call.args[1], call.args[2]
    batch, heads, length, width = query.shape
    padded_length, padded_width = _up(length, FLASH_BLOCK), _up(width, 32)
    sizes = [
        4 * batch * heads * padded_length,
        4 * batch * heads * padded_length * padded_width,
    ]
    sizes += _expanded_gradients(query, key)
    return Plan(late=(tuple(sizes),))


def _plan_cudnn_forward(call: Call, card: Card) -> Plan | None:
    return Plan(late=((CUDNN_SCRATCH_BYTES,),))


def _plan_cudnn_backward(call: Call, card: Card) -> Plan | None:
    """Query accumulator and softmax sums in single precision; equal to what an H200 took in every shape tried."""
    query, key = call.args[1], call.args[2]
    batch, heads, length, _ = query.shape
    accumulators = 4 * query.numel() + 4 * batch * heads * length
    return Plan(
        late=((accumulators + CUDNN_SCRATCH_BYTES + sum(_expanded_gradients(query, key)),),)
    )


def _expanded_gradients(query: Tensor, key: Tensor) -> list[int]:
    """Grouped queries: gradients of key and value per query head, before they are summed."""
    heads, key_heads = query.shape[1], key.shape[1]
    if heads == key_heads:
        return []
    return [key.numel() // key_heads * heads * key.element_size()] * 2


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


PLANNERS: dict[str, Planner] = {
    "_scaled_dot_product_efficient_attention_backward": _plan_efficient_backward,
    "_scaled_dot_product_flash_attention_backward": _plan_flash_backward,
    "_scaled_dot_product_cudnn_attention": _plan_cudnn_forward,
    "_scaled_dot_product_cudnn_attention_backward": _plan_cudnn_backward,
}
