"""`torch.UntypedStorage` on the virtual device: creation, `resize_` and pinning, which C++ has no allocator for."""

from __future__ import annotations

from typing import Any

import torch

from .dispatch import Dispatcher


def install(dispatcher: Dispatcher) -> None:
    """Replaces the methods of `UntypedStorage` that allocate, and pinning."""
    _install_creation()
    _install_resizing(dispatcher)
    _install_pinning()


def _install_creation() -> None:
    native_new = torch._C.StorageBase.__new__

    def new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            given = {} if device is None else {"device": device}
            return native_new(cls, *args, **given, **kwargs)
        size = args[0] if args and isinstance(args[0], int) else 0
        return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()

    torch.UntypedStorage.__new__ = new


def _install_resizing(dispatcher: Dispatcher) -> None:
    """Programs free a tensor's memory with `storage.resize_(0)` and take it again later."""
    kind = torch.UntypedStorage
    native_resize, native_nbytes = kind.resize_, kind.nbytes

    def resize(self: Any, size: int) -> Any:
        if not self.is_cuda:
            return native_resize(self, size)
        dispatcher.tensors.resize_storage(self.data_ptr(), size)
        self._virtual_nbytes = size
        return self

    def nbytes(self: Any) -> int:
        resized: int | None = getattr(self, "_virtual_nbytes", None)
        return native_nbytes(self) if resized is None else resized

    kind.resize_ = resize
    kind.nbytes = kind.size = nbytes


def _install_pinning() -> None:
    """Pinned memory is ordinary memory that remembers having been pinned."""
    native_pin = torch.Tensor.pin_memory

    def pin_memory(self: Any, device: Any = None) -> Any:
        if is_pinned(self):
            return self
        pinned = native_pin(self)
        pinned.untyped_storage()._virtually_pinned = True
        return pinned

    def is_pinned(self: Any, device: Any = None) -> bool:
        return getattr(self.untyped_storage(), "_virtually_pinned", False)

    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = is_pinned
