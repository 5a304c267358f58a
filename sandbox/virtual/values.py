"""Which tensors of the virtual device have values.

This is the seam between the modes. In `fake` mode, the only one so far, large tensors are only shapes; small ones and
integers have bytes on the host, because programs steer by them (indices, masks, loss scales, stop conditions). A mode
that computes everything would be another class with these methods.
"""

from __future__ import annotations

from typing import Any

import torch

SMALL_BYTES = 32 << 10
SMALL_INTEGER_BYTES = 2 << 20
MAX_COMPUTED_ELEMENTS = 1 << 18
"""In-place operations on more elements than this are not computed, known or not."""
MAX_COMPUTED_INPUT_BYTES = 4 << 20
"""Other operations with more input than this are not computed."""


class FakeValues:
    """Values of `fake` mode."""

    def keeps(self, nbytes: int, dtype: torch.dtype) -> bool:
        """Whether a tensor of that size has bytes on the host."""
        if nbytes <= SMALL_BYTES:
            return True
        inexact = dtype.is_floating_point or dtype.is_complex
        return nbytes <= SMALL_INTEGER_BYTES and not inexact

    def assumed_bytes(self, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
        """Bytes of a tensor whose values nobody computed: 1.0, 0 or False, as a flat uint8 tensor.

        1.0 rather than 0.0, since losses and norms are divided by and taken logarithms of.
        """
        if dtype.is_floating_point and nbytes % dtype.itemsize == 0:
            return torch.ones(nbytes // dtype.itemsize).to(dtype).view(torch.uint8)
        return torch.zeros(nbytes, dtype=torch.uint8)

    def fill_assumed(self, tensor: torch.Tensor) -> None:
        """Fills a host tensor that receives values nobody computed."""
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor.fill_(1)
        else:
            tensor.zero_()

    def assumed_scalar(self, dtype: torch.dtype) -> Any:
        """What `.item()` gives for an element nobody computed."""
        if dtype is torch.bool:
            return False
        return 1.0 if dtype.is_floating_point else 0

    def computes_in_place(self, elements: int) -> bool:
        """Whether an in-place operation over that many elements is worth computing."""
        return elements < MAX_COMPUTED_ELEMENTS

    def computes(self, input_bytes: int) -> bool:
        """Whether an operation reading that many bytes is worth computing."""
        return input_bytes <= MAX_COMPUTED_INPUT_BYTES
