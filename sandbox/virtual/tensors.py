"""CUDA tensors without a device: plain `torch.Tensor`s made through DLPack, with an invented address.

The DLPack deleter tells the exact moment of the free (`ring.py`). A tensor's `data_ptr()` is the address of its block
in the allocator, so that snapshots can be matched with tensors; its bytes, if it has any, are a flat host tensor.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .blocks import Block
from .device import VirtualDevice
from .ring import FreeRing
from .stacks import Node
from .values import FakeValues

_CPU = torch.device("cpu")
_DLPACK_CUDA = 2  # kDLCUDA
_STRUCT_BYTES = 64
_LAYOUTS = [struct.Struct(f"<QiiiBBHQQQQQ{2 * dims}q") for dims in range(65)]
_DLPACK_TYPES = {
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.int64: (0, 64),
    torch.int32: (0, 32),
    torch.int16: (0, 16),
    torch.int8: (0, 8),
    torch.uint8: (1, 8),
    torch.bool: (6, 8),
    torch.uint16: (1, 16),
    torch.uint32: (1, 32),
    torch.uint64: (1, 64),
    torch.complex32: (5, 32),
    torch.complex64: (5, 64),
    torch.complex128: (5, 128),
}
"""Code and bits; types that are not here (float8) travel as bytes and are viewed."""

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

Shape = Sequence[int]


class Storage:
    """What is known of one CUDA storage.

    Attributes:
        block: its block in the allocator; None for storages without bytes.
        pointer: its address.
        nbytes: its size.
        data: its values as a flat uint8 host tensor, or None.
        known: whether `data` may be computed with.
        assumed: whether `data` goes back to a value that nobody computed.
        node: number of the autograd node that was being evaluated when it was made, or None.
        managed: the DLPack structure, alive until the deleter was called.
    """

    __slots__ = ("assumed", "block", "data", "known", "managed", "nbytes", "node", "pointer")

    def __init__(self, block: Block | None, nbytes: int) -> None:
        self.block = block
        self.pointer = block.address if block is not None else 0
        self.nbytes = nbytes
        self.data: Tensor | None = None
        self.known = block is None
        self.assumed = False
        self.node: int | None = None
        self.managed: Any = None


NO_BYTES = Storage(None, 0)
"""Stands for every storage without bytes."""


class Tensors:
    """Makes tensors and knows the storage of each."""

    def __init__(
        self, device: VirtualDevice, values: FakeValues, current_node: Callable[[], Node | None]
    ) -> None:
        self.device = device
        self.values = values
        self.current_node = current_node
        self._by_pointer: dict[int, Storage] = {}
        self._managed: dict[int, Storage] = {}
        self.ring = FreeRing(self._freed, self._overflowed)
        device.collect_frees = self.ring.drain

    def storage_of(self, tensor: Tensor) -> Storage:
        """The storage of a CUDA tensor."""
        return self._by_pointer.get(tensor.untyped_storage().data_ptr(), NO_BYTES)

    def unknown(self, size: Shape, stride: Shape, dtype: torch.dtype) -> Tensor:
        """A result that was not computed; a small one gets assumed values."""
        storage, tensor = self._make(size, stride, dtype)
        if storage.nbytes and self.values.keeps(storage.nbytes, dtype):
            storage.data = self.values.assumed_bytes(storage.nbytes, dtype)
            storage.known = storage.assumed = True
            self.device.report.assumed_values += 1
        return tensor

    def uninitialised(self, size: Shape, stride: Shape, dtype: torch.dtype) -> Tensor:
        """What `torch.empty` gives: any values will do."""
        storage, tensor = self._make(size, stride, dtype)
        if storage.nbytes and self.values.keeps(storage.nbytes, dtype):
            storage.data = self.values.assumed_bytes(storage.nbytes, dtype)
            storage.known = True
        return tensor

    def adopt(self, computed: Tensor, *, assumed: bool = False) -> Tensor:
        """A CUDA tensor with the values of a host tensor, whose memory it takes over."""
        size, stride = tuple(computed.shape), computed.stride()
        host = computed.untyped_storage()
        nbytes = extent(size, stride, computed.dtype.itemsize)
        if nbytes and (computed.storage_offset() or host.nbytes() != nbytes):
            own = torch.empty_strided(size, stride, dtype=computed.dtype, device=_CPU)
            computed = own.copy_(computed)
            host = computed.untyped_storage()
        storage, tensor = self._make(size, stride, computed.dtype)
        if nbytes:
            storage.data = torch.empty(0, dtype=torch.uint8, device=_CPU).set_(host)
            storage.known, storage.assumed = True, assumed
        return tensor

    def resize_storage(self, pointer: int, nbytes: int) -> None:
        """`UntypedStorage.resize_`: the bytes are given back or taken anew; the address stays the storage's name."""
        storage = self._by_pointer.get(pointer)
        if storage is None or storage.nbytes == nbytes:
            return
        if storage.block is not None:
            self.device.free(storage.block)
            storage.block = None
        storage.data, storage.known = None, False
        storage.nbytes = nbytes
        if nbytes:
            storage.block = self.device.malloc(nbytes)

    def host_alias(self, tensor: Tensor) -> Tensor:
        """A host tensor over the bytes of a CUDA tensor that has them; something of that shape otherwise."""
        data = self.storage_of(tensor).data
        if tensor._is_zerotensor():
            return torch.zeros(tensor.shape, dtype=tensor.dtype, device=_CPU)
        if data is None:
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_CPU
            )
        itemsize = tensor.dtype.itemsize
        whole_bytes = data.numel() // itemsize * itemsize
        flat = data if whole_bytes == data.numel() else data[:whole_bytes]
        return flat.view(tensor.dtype).as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        )

    def values_of(self, tensor: Tensor) -> Tensor | None:
        """A host tensor over the bytes of a CUDA tensor whose values were computed, else None."""
        storage = self.storage_of(tensor)
        if not storage.known or storage.assumed or storage.data is None:
            return None
        return self.host_alias(tensor)

    def _make(self, size: Shape, stride: Shape, dtype: torch.dtype) -> tuple[Storage, Tensor]:
        nbytes = extent(size, stride, dtype.itemsize)
        block = self.device.malloc(nbytes) if nbytes else None
        storage = Storage(block, nbytes)
        node = self.current_node()
        if node is not None:
            storage.node = node._sequence_nr()
        code = _DLPACK_TYPES.get(dtype)
        dims = len(size)
        managed = storage.managed = ctypes.create_string_buffer(_STRUCT_BYTES + 16 * dims)
        address = ctypes.addressof(managed)
        _LAYOUTS[dims].pack_into(
            managed,
            0,
            storage.pointer,
            _DLPACK_CUDA,
            0,  # device index
            dims,
            *(code or (1, 8 * dtype.itemsize)),
            1,  # lanes
            address + _STRUCT_BYTES,
            address + _STRUCT_BYTES + 8 * dims,
            0,  # byte offset
            0,  # manager context
            self.ring.deleter_address,
            *size,
            *stride,
        )
        self._managed[address] = storage
        if nbytes:
            self._by_pointer[storage.pointer] = storage
        tensor = torch._C._from_dlpack(_new_capsule(address, b"dltensor", None))
        return storage, tensor if code else tensor.view(dtype)

    def _freed(self, address: int) -> None:
        storage = self._managed.pop(address, None)
        if storage is None:
            return
        if self._by_pointer.get(storage.pointer) is storage:
            del self._by_pointer[storage.pointer]
        if storage.block is not None:
            self.device.allocator.free(storage.block)
        storage.data = None

    def _overflowed(self) -> None:
        self.device.report.not_modelled(
            "More than a million tensors were freed between two operations; some frees were lost."
        )


def extent(size: Shape, stride: Shape, itemsize: int) -> int:
    """Bytes from the first element of a tensor to behind its last."""
    last = 0
    for length, step in zip(size, stride, strict=True):
        if length == 0:
            return 0
        last += (length - 1) * step
    return (last + 1) * itemsize


def contiguous_stride(size: Shape) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    stride: list[int] = []
    step = 1
    for length in reversed(size):
        stride.append(step)
        step *= max(length, 1)
    return tuple(reversed(stride))
