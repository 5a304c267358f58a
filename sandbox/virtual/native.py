"""Pieces of memory and machine code that outlive the interpreter, through ctypes; x86-64 Linux with glibc.

Nothing made here is ever unmapped: torch's own destructors may still call it after Python is gone.
"""

from __future__ import annotations

import ctypes
import struct

PAGE_BYTES = 4096
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x22
_SYMBOL_ENTRY = 1  # RTLD_DL_SYMENT


class NativeError(Exception):
    """The operating system refuses what the virtual GPU needs; the message is one sentence."""


class _SymbolInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _ElfSymbol(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_ubyte),
        ("other", ctypes.c_ubyte),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def allocate(size_bytes: int) -> int:
    """Zeroed memory for data; returns its address.

    Raises:
        NativeError: the system gives none.
    """
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    rounded = -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
    address = _libc.mmap(None, rounded, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise NativeError(f"the system gives no {rounded} bytes of memory")
    return int(address)


def executable(code: bytes) -> int:
    """Memory that holds `code` and may be run; returns its address.

    Raises:
        NativeError: the system forbids it (some hardened systems do).
    """
    address = allocate(len(code))
    ctypes.memmove(address, code, len(code))
    rounded = -(-len(code) // PAGE_BYTES) * PAGE_BYTES
    _libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if _libc.mprotect(address, rounded, _READ | _EXECUTE) != 0:
        raise NativeError("this system does not let a program make memory executable")
    return address


def returning(value: int) -> bytes:
    """Machine code of a function that ignores its arguments and returns a 64-bit integer or pointer."""
    return b"\x48\xb8" + struct.pack("<Q", value) + b"\xc3"  # mov rax, value; ret


RETURN_NOTHING = b"\xc3"
RETURN_ZERO_DOUBLE = b"\x0f\x57\xc0\xc3"  # xorps xmm0, xmm0; ret


def symbol_size(address: int) -> int | None:
    """Bytes of the exported symbol at exactly `address`, from the library's symbol table; None if there is none."""
    dladdr1 = getattr(_libc, "dladdr1", None)
    if dladdr1 is None:
        return None
    dladdr1.argtypes = [
        ctypes.c_void_p,
        ctypes.POINTER(_SymbolInfo),
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_int,
    ]
    info, entry = _SymbolInfo(), ctypes.c_void_p()
    found = dladdr1(address, ctypes.byref(info), ctypes.byref(entry), _SYMBOL_ENTRY)
    if not found or entry.value is None or info.address != address:
        return None
    return int(_ElfSymbol.from_address(entry.value).size)
