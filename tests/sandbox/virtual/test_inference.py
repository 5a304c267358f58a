"""Inference on torch's fused paths, measured on an H200 after the peaks had been predicted.

Of those first predictions twelve were exact, and one was off by -27 %: how padding is left out of bfloat16.
"""

from collections.abc import Callable
from typing import Any

import pytest

MEASURED = {
    "encoder_dense": 206_649_344,
    "encoder_padded": 151_050_240,
    "encoder_causal": 307_574_784,
    "encoder_norm_first_gelu": 223_426_560,
    "encoder_in_bfloat16": 207_200_256,
    "encoder_of_bfloat16_padded": 128_688_640,
    "attention_alone": 140_517_376,
    "attention_with_weights": 207_626_240,
    "attention_with_padding": 240_181_248,
    "attention_across": 163_061_760,
    "odd_heads": 48_425_472,
    "nested_values": 184_793_088,
    "data_parallel": 519_359_488,
}
"""`max_memory_allocated` on an NVIDIA H200 with torch 2.11.0+cu130, all in one process."""
OF_NEWER_TORCH = {"attention_across": 134_225_920}
"""torch 2.13 projects without a copy there; predicted only."""


@pytest.mark.torch
@pytest.mark.slow
def test_peaks(run_virtual: Callable[..., Any]) -> None:
    done = run_virtual("virtual_inference.py")
    assert done.code == 0, done.stderr[-3000:]
    predicted = done.peaks

    assert predicted.keys() == MEASURED.keys()
    for name, size in MEASURED.items():
        close = predicted[name] == pytest.approx(size, rel=0.001)
        assert close or predicted[name] == OF_NEWER_TORCH.get(name), (name, predicted[name] / size)
