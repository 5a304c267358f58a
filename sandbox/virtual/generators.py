"""`torch.Generator(device="cuda")` without a device: a host generator that says it is a CUDA one."""

from __future__ import annotations

from typing import Any

import torch

_Native: Any = torch._C.Generator


class _AnyGenerator(type(_Native)):  # type: ignore[misc]
    """Every native generator counts as an instance of the stand-in."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Native)


class CudaGenerator(_Native):  # type: ignore[misc]
    """A host generator on the virtual device."""

    def __new__(cls) -> CudaGenerator:
        """A generator with torch's default seed."""
        made: CudaGenerator = _Native.__new__(cls, "cpu")
        return made

    @property
    def device(self) -> torch.device:
        """The virtual device."""
        return torch.device("cuda", 0)


class Generator(_Native, metaclass=_AnyGenerator):  # type: ignore[misc]
    """Stands for `torch.Generator`."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """A generator of that device."""
        if torch.device(device).type == "cuda":
            return CudaGenerator()
        return _Native.__new__(_Native, device)
