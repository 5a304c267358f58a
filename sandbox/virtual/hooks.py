"""Makes C++ believe that a CUDA device is there: a copy of the vtable behind `at::detail::getCUDAHooks()`.

torch asks this object whether CUDA and cuDNN exist, how many devices there are, and for the device's generator. The
slots are counted in the headers that ship with the installed torch (Itanium ABI: in order of declaration), and the
count is checked against the size of the real vtable in its symbol table: an unknown layout is refused, never guessed.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from . import native

_HEADERS = ("AcceleratorHooksInterface.h", "CUDAHooksInterface.h")
_VIRTUAL = re.compile(r"^ +virtual [^;{]*?(~?\w+)\(", re.MULTILINE)
_ROCM_ONLY = re.compile(r"^#ifdef USE_ROCM\n.*?^#endif", re.MULTILINE | re.DOTALL)
_VTABLE = "_ZTVN2at18CUDAHooksInterfaceE"
_GET_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_GET_CPU_ALLOCATOR = "_ZN3c1015GetCPUAllocatorEv"
_HEADER_WORDS = 2  # offset to top, type information
_WORD_BYTES = ctypes.sizeof(ctypes.c_void_p)

CUDNN_VERSION = 91900
"""cuDNN 9.19, which came with the torch that the H200's constants were measured with."""

_TRUE = (
    "isBuilt",
    "isAvailable",
    "hasPrimaryContext",
    "deviceCount",
    "hasCUDA",
    "getNumGPUs",
    "compiledWithCuDNN",
    "hasCuDNN",
    "supportsBFloat16RNNWithCuDNN",
    "supportsDilatedConvolutionWithCuDNN",
    "supportsDepthwiseConvolutionWithCuDNN",
    "supportsBFloat16ConvolutionWithCuDNNv8",
)
_ZERO = (
    "getCurrentDevice",
    "exchangeDevice",
    "maybeExchangeDevice",
    "isPinnedPtr",
    "current_device",
)
_NOTHING = ("init", "setCurrentDevice", "deviceSynchronize")
_VERSIONS = ("versionCuDNN", "versionRuntimeCuDNN")
REQUIRED_SLOTS = frozenset(
    {"hasCUDA", "deviceCount", "getNumGPUs", "compiledWithCuDNN", "getDefaultGenerator"}
)


def slot_names(include_folder: Path) -> list[str]:
    """Names of the virtual functions in order of their slots, read from torch's headers."""
    names: list[str] = []
    for header in _HEADERS:
        text = _ROCM_ONLY.sub("", (include_folder / "ATen" / "detail" / header).read_text())
        for match in _VIRTUAL.finditer(text):
            # A virtual destructor has two slots: the complete and the deleting one.
            names += ["~", "~"] if match.group(1).startswith("~") else [match.group(1)]
    return names


def layout_problem(torch_folder: Path) -> str | None:
    """Why the hooks cannot be patched in this torch, or None."""
    try:
        names = slot_names(torch_folder / "include")
    except OSError:
        return "torch's C++ headers are not installed"
    missing = sorted(REQUIRED_SLOTS - set(names))
    if missing:
        return f"torch's CUDA hooks have no {missing[0]}"
    library = _library(torch_folder, "libtorch_cpu.so")
    try:
        vtable = ctypes.addressof(ctypes.c_char.in_dll(library, _VTABLE))
        getattr(library, _GET_HOOKS)
    except (ValueError, AttributeError):
        return "torch does not export its CUDA hooks"
    if native.symbol_size(vtable) != (len(names) + _HEADER_WORDS) * _WORD_BYTES:
        return "the table of torch's CUDA hooks is not laid out as its headers say"
    return None


def install(torch_folder: Path, generator_address: int) -> None:
    """Replaces the hooks' vtable. `layout_problem` must have returned None.

    Args:
        torch_folder: where torch is installed.
        generator_address: address of an `at::Generator` that lives as long as the process.
    """
    names = slot_names(torch_folder / "include")
    words = len(names) + _HEADER_WORDS
    get_hooks = getattr(_library(torch_folder, "libtorch_cpu.so"), _GET_HOOKS)
    get_hooks.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(get_hooks())
    assert hooks.value is not None
    table = native.allocate(words * _WORD_BYTES)
    ctypes.memmove(table, hooks.value - _HEADER_WORDS * _WORD_BYTES, words * _WORD_BYTES)
    slots = (ctypes.c_void_p * len(names)).from_address(table + _HEADER_WORDS * _WORD_BYTES)
    for name, address in _replacements(torch_folder, generator_address).items():
        if name in names:
            slots[names.index(name)] = address
    hooks.value = ctypes.addressof(slots)


def _replacements(torch_folder: Path, generator_address: int) -> dict[str, int]:
    """Addresses of the functions that take the slots' places, by the slots' names."""
    allocator = getattr(_library(torch_folder, "libc10.so"), _GET_CPU_ALLOCATOR)
    allocator.restype = ctypes.c_void_p
    codes = {
        **dict.fromkeys(_TRUE, native.returning(1)),
        **dict.fromkeys(_ZERO, native.returning(0)),
        **dict.fromkeys(_NOTHING, native.RETURN_NOTHING),
        **dict.fromkeys(_VERSIONS, native.returning(CUDNN_VERSION)),
        "batchnormMinEpsilonCuDNN": native.RETURN_ZERO_DOUBLE,
        "getDefaultGenerator": native.returning(generator_address),
        # Pinned memory is ordinary memory here.
        "getPinnedMemoryAllocator": native.returning(allocator()),
    }
    places: dict[bytes, int] = {}
    program = b""
    for code in codes.values():
        if code not in places:
            places[code] = len(program)
            program += code.ljust(16, b"\x90")
    start = native.executable(program)
    return {name: start + places[code] for name, code in codes.items()}


def _library(torch_folder: Path, name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(torch_folder / "lib" / name))
