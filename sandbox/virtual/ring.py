"""The ring in which freed tensors are noted, without Python.

A DLPack deleter may run on any thread, without the interpreter's lock, or while a Python error is being raised (a
Python deleter loses that error). So it is a few bytes of machine code that put the pointer in a ring; `drain` reads
them, in order, before the next event.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable

from . import native

CAPACITY = 1 << 20
_WORD_BYTES = 8


class FreeRing:
    """Notes of freed managed tensors.

    Args:
        on_free: called with each noted pointer, in order.
        on_overflow: called when more were freed at once than the ring holds.
    """

    def __init__(self, on_free: Callable[[int], None], on_overflow: Callable[[], None]) -> None:
        self._on_free = on_free
        self._on_overflow = on_overflow
        counter = native.allocate(_WORD_BYTES)
        ring = native.allocate(CAPACITY * _WORD_BYTES)
        self._counter = ctypes.c_uint64.from_address(counter)
        self._ring = (ctypes.c_uint64 * CAPACITY).from_address(ring)
        self._head = 0
        self._lock = threading.RLock()
        self.deleter_address = native.executable(_deleter(counter, ring))

    def drain(self) -> None:
        """Hands every noted pointer on. Cheap when there is none."""
        if self._head == self._counter.value:
            return
        with self._lock:
            if self._counter.value - self._head > CAPACITY:
                self._head = self._counter.value - CAPACITY
                self._on_overflow()
            while self._head < self._counter.value:
                place = self._head % CAPACITY
                pointer = self._ring[place]
                if pointer == 0:
                    continue  # another thread is between its two instructions
                self._ring[place] = 0
                self._head += 1
                self._on_free(pointer)

    def renew_lock(self) -> None:
        """After a fork: the lock may have been held by a thread that does not exist here."""
        self._lock = threading.RLock()


def _deleter(counter: int, ring: int) -> bytes:
    """`void deleter(DLManagedTensor *self)`: ring[counter++ % CAPACITY] = self."""
    return b"".join(
        (
            b"\x49\xb8" + struct.pack("<Q", counter),  # mov r8, counter
            b"\xb8\x01\x00\x00\x00",  # mov eax, 1
            b"\xf0\x49\x0f\xc1\x00",  # lock xadd [r8], rax
            b"\x25" + struct.pack("<I", CAPACITY - 1),  # and eax, CAPACITY - 1
            b"\x49\xb9" + struct.pack("<Q", ring),  # mov r9, ring
            b"\x49\x89\x3c\xc1",  # mov [r9 + rax*8], rdi
            b"\xc3",  # ret
        )
    )
