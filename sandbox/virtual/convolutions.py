"""An estimate of cuDNN's convolution workspaces.

cuDNN picks a kernel per shape at run time. In traces of an H200 (torch 2.11, cuDNN 9.19, 64 shapes) nearly every dense
convolution of contiguous (NCHW) tensors went through channels-last kernels: its workspace is a channels-last copy of
what it reads and writes, and for the weight's gradient partial sums besides. Channels-last tensors need none of the
copies. Depthwise kernels take nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .cards import Card
from .plans import Plan
from .schema import Call

TILE = 64
SCRATCH_BYTES = 147
SMALL_OUTPUT = 1 << 20
"""First layers (few channels) with smaller results run without tensor cores, in place."""
POINTWISE_GRADIENT_BYTES = 2 << 20
"""Workspace of the weight's gradient of a 1x1 convolution."""
HALF_ALIGNMENT = 8
"""Channels in half precision are padded to a multiple of this."""


def plan_forward(call: Call, card: Card) -> Plan | None:
    """Workspace of `aten::convolution`."""
    source, weight = call.args[0], call.args[1]
    if _is_depthwise(call) or (_is_pointwise(call, weight) and not call.get("transposed")):
        return None
    if _few_channels(source) and _output_numel(call, source, weight) < SMALL_OUTPUT:
        return None
    if _is_single_tap(weight) and source.shape[1] <= TILE:
        return None
    nbytes = _copies(call, source, weight)
    return Plan(late=((nbytes,),)) if nbytes else None


def plan_backward(call: Call, card: Card) -> Plan | None:
    """Workspaces of `aten::convolution_backward`: one kernel after the other."""
    source, weight = call.args[1], call.args[2]
    if _is_depthwise(call):
        return None
    wants_source, wants_weight = call.get("output_mask")[:2]
    if _is_pointwise(call, weight):
        return Plan(late=((POINTWISE_GRADIENT_BYTES,),)) if wants_weight else None
    copies = _copies(call, source, weight)
    late: list[tuple[int, ...]] = []
    if wants_source and copies:
        late.append((copies,))
    if wants_weight:
        nbytes = copies + _partial_sums(weight, card)
        if nbytes:
            late.append((nbytes,))
    return Plan(late=tuple(late)) if late else None


def _is_depthwise(call: Call) -> bool:
    return bool(call.get("groups") > 1)


def _is_pointwise(call: Call, weight: Tensor) -> bool:
    """A 1x1 convolution with stride 1: a plain product."""
    return _is_single_tap(weight) and all(step == 1 for step in call.get("stride"))


def _is_single_tap(weight: Tensor) -> bool:
    return all(size == 1 for size in weight.shape[2:])


def _few_channels(source: Tensor) -> bool:
    return bool(source.shape[1] < HALF_ALIGNMENT)


def _copies(call: Call, source: Tensor, weight: Tensor) -> int:
    size: int = source.element_size()
    half = source.dtype in (torch.float16, torch.bfloat16)
    padding = _padding(source.shape[1]) if half else 1.0
    channels_last = source.dim() == 4 and source.is_contiguous(memory_format=torch.channels_last)
    source_bytes = int(source.numel() * size * padding)
    # the taps of a single-tap kernel lie the same in both layouts
    weight_bytes = 0 if _is_single_tap(weight) else int(weight.numel() * size * padding)
    if source.dim() == 4 and channels_last and source.shape[1] > 1:
        # aligned channels are read in place
        return source_bytes + weight_bytes if _few_channels(source) else 0
    output_bytes = _output_numel(call, source, weight) * size
    return source_bytes + weight_bytes + output_bytes + SCRATCH_BYTES


def _padding(channels: int) -> float:
    return -(-channels // HALF_ALIGNMENT) * HALF_ALIGNMENT / channels


def _output_numel(call: Call, source: Tensor, weight: Tensor) -> int:
    if call.operator.name == "convolution_backward":
        return int(call.args[0].numel())
    transposed = call.get("transposed")
    numel = source.shape[0] * (weight.shape[1] if transposed else weight.shape[0])
    sizes = zip(
        source.shape[2:],
        weight.shape[2:],
        call.get("stride"),
        call.get("padding"),
        call.get("dilation"),
        call.get("output_padding"),
        strict=False,
    )
    for length, kernel, step, pad, spread, extra in sizes:
        if transposed:
            numel *= (length - 1) * step - 2 * pad + spread * (kernel - 1) + extra + 1
        else:
            numel *= (length + 2 * pad - spread * (kernel - 1) - 1) // step + 1
    return int(numel)


def _partial_sums(weight: Tensor, card: Card) -> int:
    """Partial weight gradients in single precision, one per split that fills the processor."""
    rows, columns = weight.shape[0], weight.numel() // max(weight.shape[0], 1)
    tiles = -(-rows // TILE) * -(-columns // TILE)
    splits = round(card.multiprocessors / tiles) if tiles else 0
    return 4 * weight.numel() * splits if splits > 1 else 0
