"""Twelve programs of other kinds, measured on an H200 after their peaks had been predicted.

Those first predictions were off by 0.7 % in the median and 3.9 % at most. They led to one correction: the dropout
state of cuDNN stays allocated. Reserved bytes are not compared: they follow every workspace that is estimated.
"""

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

MEASURED = {
    "vision_transformer": 2_065_602_560,
    "unet_half_precision": 752_813_056,
    "resnet_channels_last": 920_564_736,
    "lstm_language_model": 799_607_296,
    "translation_transformer": 1_309_533_696,
    "recommender": 857_089_024,
    "adversarial": 205_511_680,
    "llama_in_bfloat16": 1_708_969_472,
    "llama_recomputed": 1_424_373_248,
    "mixture_of_experts": 848_742_912,
    "contrastive": 540_396_032,
    "meta_learning": 250_896_384,
}
"""`max_memory_allocated` on an NVIDIA H200 with torch 2.11.0+cu130, all in one process."""


@pytest.mark.torch
@pytest.mark.slow
def test_peaks(run_virtual: Callable[..., Any]) -> None:
    done = run_virtual("virtual_unseen.py")
    assert done.code == 0, done.stderr[-3000:]
    predicted = done.peaks

    assert predicted.keys() == MEASURED.keys()
    off = {name: abs(predicted[name] / size - 1) for name, size in MEASURED.items()}
    assert max(off.values()) < 0.045, off
    assert median(off.values()) < 0.002, off
