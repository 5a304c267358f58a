"""`torch.nn.DataParallel`'s C functions for the one device there is (`torch/csrc/cuda/comm.cpp`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .device import VirtualDevice

NCCL_VERSION = 2 * 10000 + 28 * 100 + 9
"""What `torch.cuda.nccl.version` shows: major, minor and patch as `ncclGetVersion` packs them."""


def parallel_functions(device: VirtualDevice) -> dict[str, Callable[..., Any]]:
    """Replacements in `torch._C`, by name."""
    return {
        "_scatter": functools.partial(_scatter, device),
        "_gather": _gather,
        "_gather_out": _gather_out,
        "_broadcast": lambda tensor, devices: [tensor.to("cuda") for _ in devices],
        "_broadcast_coalesced": lambda tensors, devices, buffer_size: [
            list(tensors) for _ in devices
        ],
        "_nccl_version": lambda: NCCL_VERSION,
        "_nccl_version_suffix": lambda: b"",
    }


def _scatter(
    device: VirtualDevice,
    tensor: Tensor,
    devices: Sequence[int] | None,
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Any = None,
) -> tuple[Tensor, ...]:
    """Chunks of a tensor, which stay where they are if that is the device; copies come from the stream's pool."""
    if chunk_sizes is not None:
        chunks = tensor.split_with_sizes(list(chunk_sizes), dim)
    else:
        chunks = tensor.chunk(len(devices or (0,)), dim)
    before = device.stream
    copies = []
    for at, chunk in enumerate(chunks):
        if streams and streams[at] is not None:
            device.stream = streams[at].stream_id
        copies.append(chunk.to("cuda", non_blocking=True))
        device.stream = before
    return tuple(copies)


def _gather(tensors: Sequence[Tensor], dim: int, destination: int | None = None) -> Tensor:
    """All tensors behind one another, in new memory; a destination of -1 is the host."""
    result = torch.cat(list(tensors), dim)
    return result.cpu() if destination == -1 else result


def _gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    return torch.cat(list(tensors), dim, out=out)
