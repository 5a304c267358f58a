"""A CUDA device guard that does nothing, in c10's registry of guards.

`torch._C._ensureCUDADeviceGuardSet()` (made for FakeTensorMode) installs one where the registered guard sees no device.
In a CPU-only build the registry's place is empty and the call does nothing: a bootstrap object comes first, every
virtual function of which returns 0, so that it "sees no device".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from . import native

REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA = 1  # c10::DeviceType::CUDA
_BOOTSTRAP_SLOTS = 64  # more than the interface has


def install(torch_folder: Path, ensure_guard_set: Callable[[], None]) -> bool:
    """Puts the guard in place; False if torch kept what was there."""
    library = ctypes.CDLL(str(torch_folder / "lib" / "libc10.so"))
    registry = (ctypes.c_void_p * (_CUDA + 1)).in_dll(library, REGISTRY)
    before = registry[_CUDA]
    if before is None:
        before = registry[_CUDA] = _bootstrap()
    ensure_guard_set()
    return bool(registry[_CUDA] != before)


def _bootstrap() -> int:
    returns_zero = native.executable(native.returning(0))
    words = _BOOTSTRAP_SLOTS + 1
    place = native.allocate(words * ctypes.sizeof(ctypes.c_void_p))
    memory = (ctypes.c_void_p * words).from_address(place)
    memory[0] = ctypes.addressof(memory) + ctypes.sizeof(ctypes.c_void_p)
    for slot in range(1, words):
        memory[slot] = returns_zero
    return place
