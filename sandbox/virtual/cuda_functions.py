"""The C functions behind `torch.cuda`, answered for the virtual device.

torch's own Python layer stays: it initialises lazily, checks arguments and formats statistics as on a real device. Only
what it calls in `torch._C` is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import streams
from .device import VirtualDevice
from .dispatch import Dispatcher
from .properties import device_properties
from .stats import Stat

COMPILED_VERSION = 13000
SETTINGS_IGNORED = (
    "Allocator settings (PYTORCH_CUDA_ALLOC_CONF) are ignored: the default ones are modelled."
)


def c_functions(dispatcher: Dispatcher) -> dict[str, Callable[..., Any]]:
    """Replacements in `torch._C`, by name."""
    return {
        **_device_functions(dispatcher),
        **_stream_functions(dispatcher.device),
        **_memory_functions(dispatcher),
        **_accelerator_functions(dispatcher),
    }


def _device_functions(dispatcher: Dispatcher) -> dict[str, Callable[..., Any]]:
    major, minor = dispatcher.device.capability
    architectures = sorted({"sm_75", "sm_80", "sm_86", "sm_90", f"sm_{major}{minor}"})
    return {
        "_cuda_init": lambda: _initialise(dispatcher),
        "_cuda_isInBadFork": lambda: dispatcher.forked,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": _set_device,
        "_cuda_exchangeDevice": lambda index: 0,
        "_cuda_maybeExchangeDevice": lambda index: 0,
        "_cuda_hasPrimaryContext": lambda index: dispatcher.initialised,
        "_cuda_canDeviceAccessPeer": lambda index, peer: False,
        "_cuda_synchronize": lambda: None,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_sleep": lambda cycles: None,
        "_cuda_getCompiledVersion": lambda: COMPILED_VERSION,
        "_cuda_getArchFlags": lambda: " ".join(architectures),
        "_cuda_get_sync_debug_mode": lambda: 0,
        "_cuda_set_sync_debug_mode": lambda mode: None,
        "_cuda_getCurrentBlasHandle": lambda: 0,
        "_cuda_clearCublasWorkspaces": dispatcher.kernels.clear_workspaces,
        "_cuda_get_conv_benchmark_empty_cache": lambda: True,
        "_cuda_get_cudnn_benchmark_limit": lambda: 10,
        "_cuda_set_cudnn_benchmark_limit": lambda limit: None,
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_tunableop_tuning_is_enabled": lambda: False,
        "_cuda_record_untuned_is_enabled": lambda: False,
        "_cuda_tunableop_enable": lambda enabled: None,
        "_cuda_tunableop_tuning_enable": lambda enabled: None,
    }


def _set_device(index: int) -> None:
    if index > 0:
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")


def _stream_functions(device: VirtualDevice) -> dict[str, Callable[..., Any]]:
    kind = streams.CUDA_DEVICE_TYPE
    return {
        "_cuda_getCurrentStream": lambda index: (device.stream, 0, kind),
        "_cuda_getDefaultStream": lambda index: (streams.DEFAULT_STREAM, 0, kind),
        "_cuda_getCurrentRawStream": lambda index: device.stream,
        "_cuda_getStreamFromExternal": lambda pointer, index: (pointer, 0, kind),
        "_cuda_setStream": lambda stream_id, device_index, device_type: streams.set_stream(
            device, stream_id
        ),
        "_cuda_isCurrentStreamCapturing": lambda: False,
    }


def _memory_functions(dispatcher: Dispatcher) -> dict[str, Callable[..., Any]]:
    device = dispatcher.device
    raw_blocks: dict[int, Any] = {}

    def raw_alloc(size: int, stream: int) -> int:
        block = device.malloc(size)
        raw_blocks[block.address] = block
        return block.address

    def set_metadata(text: str) -> None:
        device.history.metadata = text

    return {
        "_cuda_emptyCache": device.empty_cache,
        "_cuda_memoryStats": lambda index: device.memory_stats(),
        "_cuda_resetPeakMemoryStats": lambda index: _settled(device).reset_peaks(),
        "_cuda_resetAccumulatedMemoryStats": lambda index: _settled(device).reset_accumulated(),
        "_cuda_hostMemoryStats": _host_memory_stats,
        "_cuda_resetPeakHostMemoryStats": lambda: None,
        "_cuda_resetAccumulatedHostMemoryStats": lambda: None,
        "_cuda_setMemoryFraction": lambda fraction, index: device.set_fraction(fraction),
        "_cuda_getMemoryFraction": lambda index: device.fraction,
        "_cuda_memorySnapshot": lambda mempool=None, *rest: device.snapshot(),
        "_cuda_record_memory_history": _history_switch(device),
        "_cuda_record_memory_history_legacy": _legacy_history_switch(device),
        "_cuda_isHistoryEnabled": lambda: device.history.enabled,
        "_cuda_setMemoryMetadata": set_metadata,
        "_cuda_getMemoryMetadata": lambda: device.history.metadata,
        "_cuda_attach_out_of_memory_observer": device.attach_out_of_memory_observer,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaHostAllocator": lambda: 0,
        "_cuda_cudaCachingAllocator_raw_alloc": raw_alloc,
        "_cuda_cudaCachingAllocator_raw_delete": lambda pointer: device.free(
            raw_blocks.pop(pointer)
        ),
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_cudaCachingAllocator_enable": lambda enabled: None,
    }


def _accelerator_functions(dispatcher: Dispatcher) -> dict[str, Callable[..., Any]]:
    device = dispatcher.device
    return {
        "_accelerator_isAllocatorInitialized": lambda: dispatcher.initialised,
        "_accelerator_emptyCache": device.empty_cache,
        "_accelerator_getDeviceStats": lambda index: device.memory_stats(),
        "_accelerator_resetPeakStats": lambda index: _settled(device).reset_peaks(),
        "_accelerator_resetAccumulatedStats": lambda index: _settled(device).reset_accumulated(),
        "_accelerator_getMemoryInfo": lambda index: device.memory_info(),
        "_accelerator_getDeviceIndex": lambda: 0,
        "_accelerator_setDeviceIndex": lambda index: None,
        "_accelerator_exchangeDevice": lambda index: 0,
        "_accelerator_maybeExchangeDevice": lambda index: 0,
        "_accelerator_synchronizeDevice": lambda index: None,
        "_accelerator_getStream": lambda index: streams.Stream(stream_id=device.stream),
        "_accelerator_setAllocatorSettings": lambda settings: device.report.not_modelled(
            SETTINGS_IGNORED
        ),
        "_accelerator_setStream": lambda stream: streams.set_stream(device, stream.stream_id),
    }


def _initialise(dispatcher: Dispatcher) -> None:
    """`torch._C._cuda_init`: what C++ defines when CUDA comes up."""
    cuda = torch.cuda
    properties = device_properties(dispatcher.device)
    cuda.default_generators = (dispatcher.generator,)
    cuda._get_device_properties = lambda index: properties
    dispatcher.initialised = True


def _settled(device: VirtualDevice) -> Any:
    """The counters, after every free so far has arrived."""
    device.collect_frees()
    return device.allocator.stats


def _history_switch(device: VirtualDevice) -> Callable[..., None]:
    def switch(
        enabled: str | None,
        context: str | None,
        stacks: str,
        max_entries: int,
        clear_history: bool = False,
        compile_context: bool = False,
        global_record_annotations: bool = False,
        skip_actions: Any = (),
    ) -> None:
        if stacks not in ("python", "all"):
            raise RuntimeError("expected stacks to be 'python', or 'all'")
        device.collect_frees()
        device.history.configure(
            enabled, context, max_entries, clear=clear_history, skipped_actions=skip_actions
        )

    return switch


def _legacy_history_switch(device: VirtualDevice) -> Callable[..., None]:
    def switch(
        enabled: bool,
        record_context: bool,
        max_entries: int,
        trace_alloc_record_context: bool,
        *rest: Any,
    ) -> None:
        context = None
        if record_context:
            context = "all" if trace_alloc_record_context else "state"
        device.collect_frees()
        device.history.configure("all" if enabled else None, context, max_entries)

    return switch


def _host_memory_stats() -> dict[str, Any]:
    zero = Stat().as_dict()
    names = ("allocations", "segments", "active_requests", "allocated_bytes", "reserved_bytes")
    times = ("host_alloc_time", "host_free_time")
    return {
        "num_host_alloc": 0,
        "num_host_free": 0,
        **{name: dict(zero) for name in names},
        **{name: {"total": 0, "max": 0, "min": 0, "count": 0, "avg": 0} for name in times},
    }
