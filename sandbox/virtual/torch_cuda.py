"""Puts the answers where torch's Python modules look for them."""

from __future__ import annotations

import types
from typing import Any

import torch

from . import streams
from .cuda_functions import c_functions
from .device import VirtualDevice
from .dispatch import Dispatcher
from .generators import Generator
from .hooks import CUDNN_VERSION
from .parallel import parallel_functions
from .properties import CudaRuntime
from .rnn import CUDNN_MODES

CUDA_VERSION = "13.0"
GRAPH_NAMES = ("_cuda_CUDAAllocator_AllocatorState", "_set_cached_tensors_enabled")
"""What `torch._inductor.cudagraph_trees` imports; `torch.compiler.reset` needs no more than the import."""


def install(dispatcher: Dispatcher) -> None:
    """Replaces the functions, and what Python modules of torch took from `torch._C` at import."""
    functions = {**c_functions(dispatcher), **parallel_functions(dispatcher.device)}
    for name, function in functions.items():
        setattr(torch._C, name, function)
    torch._C._has_cuda = True
    cuda = torch.cuda
    cuda._cudart = CudaRuntime(dispatcher.device)
    cuda._is_in_bad_fork = functions["_cuda_isInBadFork"]
    cuda._exchange_device = functions["_cuda_exchangeDevice"]
    cuda._maybe_exchange_device = functions["_cuda_maybeExchangeDevice"]
    cuda._cached_device_count = 1
    streams.install(cuda)
    _install_monitoring(dispatcher.device)
    _install_refusals()
    _install_cudnn()
    torch.Generator = Generator
    if torch.version.cuda is None:
        torch.version.cuda = CUDA_VERSION


def _install_monitoring(device: VirtualDevice) -> None:
    """What NVML would tell, and NVTX ranges, which nobody reads."""
    cuda = torch.cuda
    for name in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"):
        setattr(cuda, name, lambda device=None: 0)

    def memory_used(index: Any = None) -> int:
        free_bytes, total_bytes = device.memory_info()
        return total_bytes - free_bytes

    cuda.device_memory_used = memory_used
    cuda.nvtx._nvtx = types.SimpleNamespace(
        rangePushA=lambda message: 0,
        rangePop=lambda: 0,
        rangeStartA=lambda message: 0,
        rangeEnd=lambda handle: None,
        markA=lambda message: None,
    )


def _install_refusals() -> None:
    """Private pools are not modelled; a program that asks for one is told so."""
    cuda = torch.cuda
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = _refused("CUDA graphs")
    cuda.MemPool = cuda.memory.MemPool = _refused("memory pools")
    for place in (cuda.graphs, cuda):
        place.is_current_stream_capturing = lambda: False
    cuda.graphs._cuda_isCurrentStreamCapturing = lambda: False
    for name in GRAPH_NAMES:
        if not hasattr(torch._C, name):
            setattr(torch._C, name, _refused("CUDA graphs"))


def _refused(what: str) -> type:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"the virtual GPU does not model {what}")

    return type("Refused", (), {"__init__": refuse})


def _install_cudnn() -> None:
    # The module's own functions look these up in the module that its wrapper hides.
    hidden = torch.backends.cudnn.is_acceptable.__globals__
    module = type(torch.backends.cudnn)
    for name, answer in (("is_available", True), ("version", CUDNN_VERSION), ("_init", True)):
        hidden[name] = lambda answer=answer: answer
        setattr(module, name, staticmethod(hidden[name]))
    layers = torch.backends.cudnn.rnn.get_cudnn_mode.__globals__
    if layers["_cudnn"] is None:
        layers["_cudnn"] = types.SimpleNamespace(RNNMode=types.SimpleNamespace(**CUDNN_MODES))
