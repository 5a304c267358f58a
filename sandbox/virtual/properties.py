"""The card as `torch.cuda.get_device_properties` and `torch.cuda.cudart` show it."""

from __future__ import annotations

import types

from .device import VirtualDevice


class Properties(types.SimpleNamespace):
    """What `torch.cuda.get_device_properties` returns."""

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // (1 << 20)}MB, multi_processor_count={self.multi_processor_count})"
        )


class CudaRuntime:
    """Stands for the module `torch.cuda.cudart()`."""

    class cudaError:
        """Error codes; 0 is success."""

        success = 0

        def __new__(cls, code: int) -> int:  # type: ignore[misc]
            """Codes are plain integers here."""
            return code

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device

    def cudaMemGetInfo(self, device: int = 0) -> tuple[int, int]:
        """Free and total bytes of the device."""
        return self._device.memory_info()

    def cudaGetErrorString(self, code: int) -> str:
        """There are no errors."""
        return "no error"

    def cudaProfilerStart(self) -> int:
        """Nothing to profile."""
        return 0

    def cudaProfilerStop(self) -> int:
        """Nothing to profile."""
        return 0

    def cudaHostRegister(self, pointer: int, size: int, flags: int) -> int:
        """Host memory needs no registration."""
        return 0

    def cudaHostUnregister(self, pointer: int) -> int:
        """Host memory needs no registration."""
        return 0


def device_properties(device: VirtualDevice) -> Properties:
    """The card's properties, with an H200's where they do not matter."""
    card = device.card
    major, minor = card.capability
    return Properties(
        name=card.name,
        major=major,
        minor=minor,
        total_memory=card.total_memory_bytes,
        multi_processor_count=card.multiprocessors,
        max_threads_per_multi_processor=card.threads_per_multiprocessor,
        max_threads_per_block=1024,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        L2_cache_size=62914560,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName=card.name,
        uuid="00000000-0000-0000-0000-000000000000",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )
