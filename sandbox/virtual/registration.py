"""Gives torch's dispatcher our kernels for the CUDA key."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from .attention import Attention
from .dispatch import Dispatcher
from .rnn import CUDNN_MODES, kernel

_ATEN = "aten::"
CPU_ONLY = frozenset(
    {
        "_add_relu",
        "_add_relu_",
        "_empty_affine_quantized",
        "_empty_per_channel_affine_quantized",
        "_functional_assert_async",
        "_histogramdd_bin_edges",
        "_histogramdd_from_bin_cts",
        "_histogramdd_from_bin_tensors",
        "_make_dep_token",
        "_spdiags",
        "_stack",
        "from_file",
        "histogram",
        "narrow_copy",
        "native_channel_shuffle",
        "pixel_shuffle",
        "pixel_unshuffle",
        "slow_conv3d_forward",
        "to_mkldnn",
    }
)
"""Operators with a kernel of their own on the CPU but none for CUDA, where they are composites (torch 2.11)."""
CUDA_ONLY = frozenset(
    {
        "_chunk_cat",
        "_conv_depthwise2d",
        "_fused_dropout",
        "_fused_rms_norm",
        "_fused_rms_norm_backward",
        "_masked_scale",
        "_pin_memory",
        "_thnn_fused_gru_cell",
        "_thnn_fused_gru_cell_backward",
        "_thnn_fused_lstm_cell",
        "_thnn_fused_lstm_cell_backward_impl",
        "_use_cudnn_ctc_loss",
        "_use_miopen_ctc_loss",
        "conv_depthwise3d",
        "convolution",
        "convolution_backward",
        "copy_",
        "cudnn_batch_norm",
        "cudnn_batch_norm_backward",
        "embedding_dense_backward",
        "is_pinned",
        "mish_backward",
        "record_stream",
        "silu_backward",
        "split_with_sizes_copy",
    }
)
"""Operators with a kernel for CUDA that a composite would hide in a CPU-only build."""
_FOREACH = "_foreach_"
_OVERRIDE_WARNING = "(?s).*Overriding a previously registered kernel.*"


def register(dispatcher: Dispatcher) -> list[Any]:
    """Registers the fallback and every operator; the registrations hold as long as what is returned lives.

    torch's own `Library` objects are not used: they take their kernels away when the interpreter begins to exit,
    before the program's objects are gone.
    """
    everything = torch._C._dispatch_library("IMPL", "_", "")
    everything.fallback("CUDA", dispatcher, False)
    operators = torch._C._dispatch_library("IMPL", "aten", "CUDA")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_OVERRIDE_WARNING)
        for name in _covered():
            base, _, overload = name.partition(".")
            try:
                operator = getattr(getattr(torch.ops.aten, base), overload or "default")
            except AttributeError:
                continue  # not callable from Python, so it never arrives here
            operators.impl(name, "CUDA", functools.partial(dispatcher, operator))
        composites = _register_composites(dispatcher)
    return [everything, operators, composites]


def _covered() -> Iterator[str]:
    """Names that need a kernel for the CUDA key, because a composite or a real kernel would win."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    for full_name in torch._C._dispatch_get_all_op_names():
        if not full_name.startswith(_ATEN):
            continue
        name = full_name[len(_ATEN) :]
        base = name.partition(".")[0]
        on_cpu = has_kernel(full_name, "CPU") and not _only_on_cpu(base)
        added = base in CUDA_ONLY or base.startswith(_FOREACH)
        if on_cpu or added or has_kernel(full_name, "CUDA"):
            yield name


def _only_on_cpu(base: str) -> bool:
    return (
        base in CPU_ONLY
        or "mkldnn" in base
        or base.startswith("quantized")
        or base.endswith("_for_cpu")
    )


def _register_composites(dispatcher: Dispatcher) -> Any:
    """Composites that reach CUDA through function tables which only CUDA builds have."""
    library = torch._C._dispatch_library("IMPL", "aten", "")
    attention = Attention(dispatcher.device.card)
    kernels = {"scaled_dot_product_attention": attention}
    for name in CUDNN_MODES:
        kernels[f"{name}.input"] = kernels[f"{name}.data"] = kernel(name)
    for name, function in kernels.items():
        for key in ("AutogradCUDA", "CUDA"):
            library.impl(name, key, function)
    return library
