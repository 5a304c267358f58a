"""Which kernel `scaled_dot_product_attention` takes, as torch's C++ would choose on the card.

torch's chooser (`sdp_utils.cpp`) asks the CUDA driver, so the operator is given a kernel of ours that chooses and then
calls the chosen operator. Checked on an H200: half precision goes to cuDNN with and without mask or dropout, single
precision to the memory-efficient kernel, single precision with grouped queries to the plain formula.
"""

from __future__ import annotations

import enum
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .cards import Card

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
MAX_HEAD = 256
MASK_ALIGNMENT = 8
"""The memory-efficient kernel reads masks whose rows start at multiples of this (`preprocess_mask`)."""


class Backend(enum.IntEnum):
    """`at::SDPBackend`."""

    MATH = 0
    FLASH = 1
    EFFICIENT = 2
    CUDNN = 3


_DEFAULT_ORDER = (Backend.FLASH, Backend.EFFICIENT, Backend.MATH, Backend.CUDNN)
_HOPPER_ORDER = (Backend.CUDNN, Backend.FLASH, Backend.EFFICIENT, Backend.MATH)


class Attention:
    """The operator's kernel for one card."""

    def __init__(self, card: Card) -> None:
        self._capability = card.capability
        # `check_prefer_cudnn_attention`: Hopper and data-centre Blackwell, with a recent cuDNN
        self._prefers_cudnn = card.capability in ((9, 0), (10, 0))

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        """`torch.ops.aten.scaled_dot_product_attention`."""
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            mask = torch.zeros_like(attn_mask, dtype=query.dtype)
            attn_mask = mask.masked_fill_(attn_mask.logical_not(), float("-inf"))
        backend = self.choose(query, key, value, attn_mask, is_causal=is_causal, gqa=enable_gqa)
        trains = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        if backend is Backend.CUDNN:
            return _aten._scaled_dot_product_cudnn_attention(
                query, key, value, attn_mask, trains, dropout_p, is_causal, False, scale=scale
            )[0]
        if backend is Backend.FLASH:
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if backend is Backend.EFFICIENT:
            mask = _expanded(attn_mask, query, key) if attn_mask is not None else None
            return _aten._scaled_dot_product_efficient_attention(
                query, key, value, mask, trains, dropout_p, is_causal, scale=scale
            )[0]
        return _aten._scaled_dot_product_attention_math(
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )[0]

    def choose(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        is_causal: bool,
        gqa: bool,
    ) -> Backend:
        """The first kernel in torch's order that can take these tensors and is not switched off."""
        able = {
            Backend.CUDNN: self._cudnn(query, key, value),
            Backend.FLASH: self._flash(query, key, value, mask, is_causal=is_causal),
            Backend.EFFICIENT: self._efficient(query, key, value, gqa=gqa),
            Backend.MATH: True,
        }
        cuda = torch.backends.cuda
        on = {
            Backend.CUDNN: cuda.cudnn_sdp_enabled(),
            Backend.FLASH: cuda.flash_sdp_enabled(),
            Backend.EFFICIENT: cuda.mem_efficient_sdp_enabled(),
            Backend.MATH: cuda.math_sdp_enabled(),
        }
        for backend in self._order():
            if on[backend] and able[backend]:
                return backend
        raise RuntimeError("No available kernel. Aborting execution.")

    def _order(self) -> tuple[Backend, ...]:
        asked = tuple(
            Backend(number) for number in torch._C._get_sdp_priority_order() if number < 4
        )
        if asked != _DEFAULT_ORDER or not self._prefers_cudnn:
            return asked
        return _HOPPER_ORDER

    def _cudnn(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        head = query.shape[-1]
        return (
            self._capability >= (8, 0)
            and _is_dense_half(query, value)
            and head % 8 == 0
            and key.shape[-2] > 1
        )

    def _flash(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, is_causal: bool
    ) -> bool:
        square = query.shape[-2] == key.shape[-2]
        return (
            self._capability >= (8, 0)
            and _is_dense_half(query, value)
            and mask is None
            and (square or not is_causal)
        )

    def _efficient(self, query: Tensor, key: Tensor, value: Tensor, *, gqa: bool) -> bool:
        if query.dim() != 4 or query.dtype not in (torch.float32, *_HALF):
            return False
        if query.dtype is torch.bfloat16 and self._capability < (8, 0):
            return False
        alignment = 8 if query.dtype in _HALF and self._capability >= (7, 5) else 4
        aligned = query.shape[-1] % alignment == 0 and value.shape[-1] % alignment == 0
        return aligned and not (gqa and query.shape[1] != key.shape[1])


def _is_dense_half(query: Tensor, value: Tensor) -> bool:
    head = query.shape[-1]
    return (
        query.dim() == 4 and query.dtype in _HALF and head <= MAX_HEAD and head == value.shape[-1]
    )


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """The flash kernel reads heads of a multiple of 8, so others are padded first."""
    head = query.shape[-1]
    padding = -head % 8
    if padding:
        scale = head**-0.5 if scale is None else scale
        query, key, value = (F.pad(tensor, (0, padding)) for tensor in (query, key, value))
    result = _aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, False, scale=scale
    )[0]
    return result[..., :head] if padding else result


def _expanded(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    columns = mask.shape[-1]
    padding = -columns % MASK_ALIGNMENT
    if padding:
        mask = F.pad(mask, (0, padding))[..., :columns]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
