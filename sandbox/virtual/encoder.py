"""Transformer inference: the operators that `nn.TransformerEncoderLayer` and `nn.MultiheadAttention` call in `eval`.

Follows `transformer_encoder_layer_forward` (transformer.cpp) and `native_multi_head_attention_cuda` (attention.cu), on
padded and on nested tensors; peaks equal those of an H200 (`tests/sandbox/virtual/test_inference.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import Attention, Backend
from .dispatch import Dispatcher
from .handlers import handles
from .nested import from_buffer, nested_kernel, rows_of, sizes_of
from .schema import Call

_aten = torch.ops.aten
HEAD_ALIGNMENT = 8
"""Heads of other widths, masks and wanted weights take the plain formula (attention.cu)."""
LENGTH_ALIGNMENT = 8
"""The plain formula pads the sequences of a nested tensor to a multiple of this."""


class _Attended(NamedTuple):
    """Projections of one attention layer."""

    width: int
    heads: int
    qkv_weight: Tensor
    qkv_bias: Tensor
    out_weight: Tensor
    out_bias: Tensor


@handles("_native_multi_head_attention")
def _dense_attention(dispatcher: Dispatcher, call: Call) -> Any:
    return _attention(dispatcher, *call.args, **call.kwargs)


@nested_kernel("_native_multi_head_attention")
def _nested_attention(dispatcher: Dispatcher, *args: Any, **kwargs: Any) -> Any:
    return _attention(dispatcher, *args, **kwargs)


@handles("_transformer_encoder_layer_fwd")
def _dense_layer(dispatcher: Dispatcher, call: Call) -> Any:
    return _encoder_layer(dispatcher, *call.args, **call.kwargs)


@nested_kernel("_transformer_encoder_layer_fwd")
def _nested_layer(dispatcher: Dispatcher, *args: Any, **kwargs: Any) -> Any:
    return _encoder_layer(dispatcher, *args, **kwargs)


def _encoder_layer(
    dispatcher: Dispatcher,
    src: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    layer = _Attended(width, heads, qkv_weight, qkv_bias, out_weight, out_bias)

    def first_norm(x: Tensor) -> Tensor:
        return _normalised(x, width, norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return _normalised(x, width, norm_weight_2, norm_bias_2, eps)

    def feed_forward(x: Tensor) -> Tensor:
        rows = _rows(x, width)
        rows = _aten._addmm_activation(ffn_bias_1, rows, ffn_weight_1.t(), use_gelu=use_gelu)
        rows = torch.addmm(ffn_bias_2, rows, ffn_weight_2.t())
        return _shaped(rows, x)

    x = first_norm(src) if norm_first else src
    x, _ = _attend(dispatcher, (x, x, x), layer, mask, mask_type, weights=False, average=True)
    _rows(x, width).add_(_rows(src, width))
    if not norm_first:
        x = first_norm(x)
    before = x
    if norm_first:
        x = second_norm(x)
    x = feed_forward(x)
    _rows(x, width).add_(_rows(before, width))
    return x if norm_first else second_norm(x)


def _attention(
    dispatcher: Dispatcher,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    layer = _Attended(width, heads, qkv_weight, qkv_bias, out_weight, out_bias)
    return _attend(
        dispatcher,
        (query, key, value),
        layer,
        mask,
        mask_type,
        weights=need_weights,
        average=average_attn_weights,
    )


def _attend(
    dispatcher: Dispatcher,
    inputs: tuple[Tensor, Tensor, Tensor],
    layer: _Attended,
    mask: Tensor | None,
    mask_type: int | None,
    *,
    weights: bool,
    average: bool,
) -> tuple[Tensor, Tensor | None]:
    """`native_multi_head_attention_cuda`: the result, and the weights if wanted."""
    query = inputs[0]
    if mask is not None and query.is_nested:
        raise RuntimeError("NestedTensor with mask is not supported yet")
    alike = query is inputs[1] and query is inputs[2]
    if alike and not weights and mask is None and _has_fused_kernel(dispatcher, query, layer):
        return _fused(dispatcher, query, layer), None
    scores, value, room = _scores(dispatcher, inputs, layer)
    scores = _softmax(dispatcher, scores, mask, mask_type, query)
    torch.bmm(scores.flatten(0, 1), value.flatten(0, 1), out=room.flatten(0, 1))
    if not weights:
        scores = None
    result = _projected(dispatcher, room, layer, query)
    if scores is not None and average:
        scores = scores.sum(1)
        scores /= layer.heads
    return result, scores


def _has_fused_kernel(dispatcher: Dispatcher, query: Tensor, layer: _Attended) -> bool:
    head = layer.width // layer.heads
    if head % HEAD_ALIGNMENT:
        return False
    batch, length = len(query) if not query.is_nested else query.size(0), 0
    if query.is_nested:
        lengths = sizes_of(query)[:, 0]
        if int(lengths.min()) <= 1:
            return False
        length = int(lengths.max())
    else:
        length = query.shape[1]
    like = torch.empty(batch, layer.heads, length, head, dtype=query.dtype, device="meta")
    chosen = Attention(dispatcher.device.card).choose(
        like, like, like, None, is_causal=False, gqa=False
    )
    return chosen is not Backend.MATH


def _fused(dispatcher: Dispatcher, query: Tensor, layer: _Attended) -> Tensor:
    qkv = F.linear(_rows(query, layer.width), layer.qkv_weight, layer.qkv_bias)
    head = layer.width // layer.heads
    if query.is_nested:
        attended = _attended_rows(dispatcher, qkv, layer)
    else:
        parts = [
            part.view(len(query), -1, layer.heads, head).transpose(1, 2)
            for part in qkv.chunk(3, -1)
        ]
        attention = _aten.scaled_dot_product_attention(*parts)
        attended = attention.transpose(1, 2).reshape(-1, layer.width)
    return _shaped(F.linear(attended, layer.out_weight, layer.out_bias), query)


def _attended_rows(dispatcher: Dispatcher, qkv: Tensor, layer: _Attended) -> Tensor:
    """`_efficient_attention_forward` or `_flash_attention_forward` on rows of several sequences."""
    new = dispatcher.tensors.unknown
    result = new((len(qkv), layer.width), (layer.width, 1), qkv.dtype)
    if qkv.dtype is not torch.float32:  # the flash kernel writes its sums in any case
        new((layer.heads, len(qkv)), (len(qkv), 1), torch.float32)
    return result


def _scores(
    dispatcher: Dispatcher, inputs: tuple[Tensor, Tensor, Tensor], layer: _Attended
) -> tuple[Tensor, Tensor, Tensor]:
    """Products of queries and keys, the values, and the queries' memory, which is free to use."""
    query, key, value = inputs
    head = layer.width // layer.heads
    qkv = _product(query, layer.qkv_weight, layer.width)
    if not (query is key and key is value):
        parts = [
            _product(x, weight, layer.width)
            for x, weight in zip(inputs, layer.qkv_weight.chunk(3), strict=True)
        ]
        qkv = torch.cat(parts, -1)
    if query.is_nested:
        longest = int(sizes_of(query)[:, 0].max())
        shape = (3, query.size(0), layer.heads, longest + -longest % LENGTH_ALIGNMENT, head)
        stride = torch.empty(shape, device="meta").stride()
        laid = dispatcher.tensors.unknown(shape, stride, query.dtype)
    else:
        laid = torch.empty(
            3, len(query), layer.heads, query.shape[1], head, dtype=qkv.dtype, device=qkv.device
        )
        laid.copy_(qkv.view(len(query), -1, 3, layer.heads, head).permute(2, 0, 3, 1, 4))
        laid.add_(layer.qkv_bias.view(3, 1, layer.heads, 1, head))
        laid[0].mul_(head**-0.5)
    del qkv
    rows = laid.flatten(1, 2)
    scores = torch.bmm(rows[0], rows[1].transpose(1, 2))
    return scores.unflatten(0, laid.shape[1:3]), laid[2], laid[0]


def _softmax(
    dispatcher: Dispatcher,
    scores: Tensor,
    mask: Tensor | None,
    mask_type: int | None,
    query: Tensor,
) -> Tensor:
    if query.is_nested:
        return torch.empty_like(scores)
    if mask is None:
        return _aten._softmax.out(scores, -1, False, out=scores)
    if mask.dtype is not torch.bool:
        mask = mask.to(torch.bool)
    return _aten._masked_softmax(scores, mask, scores.dim() - 1, mask_type)


@handles("_masked_softmax")
def _masked_softmax(dispatcher: Dispatcher, call: Call) -> Any:
    scores: Tensor = call.args[0]
    if dispatcher.tensors.storage_of(scores).known:
        return NotImplemented
    return torch.empty_like(scores)


def _projected(dispatcher: Dispatcher, context: Tensor, layer: _Attended, query: Tensor) -> Tensor:
    """`transform0213_gemm_nt_bias`: the heads side by side, then the last product."""
    if query.is_nested:
        count = int(sizes_of(query)[:, 0].sum())
        rows = dispatcher.tensors.unknown((count, layer.width), (layer.width, 1), query.dtype)
    else:
        rows = context.transpose(1, 2).contiguous().view(-1, layer.width)
    return _shaped(torch.addmm(layer.out_bias, rows, layer.out_weight.t()), query)


def _product(x: Tensor, weight: Tensor, width: int) -> Tensor:
    return torch.mm(_rows(x, width), weight.t())


def _normalised(x: Tensor, width: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return _shaped(F.layer_norm(_rows(x, width), (width,), weight, bias, eps), x)


def _rows(x: Tensor, width: int) -> Tensor:
    return rows_of(x, width) if x.is_nested else x.reshape(-1, width)


def _shaped(rows: Tensor, like: Tensor) -> Tensor:
    if like.is_nested:
        return from_buffer(rows.reshape(-1), sizes_of(like))
    return rows.view(*like.shape[:-1], rows.shape[-1])
