"""The virtual GPU: a CUDA device without hardware, inside the user's interpreter.

`install("h200")` makes torch see one CUDA device. Programs run unmodified; the caching allocator is modelled to the
byte, tensors above a few kilobytes have no values. `VirtualDevice.coverage()` says what was assumed or left out.

    cards, device, coverage        the card, the device made of it, its account of itself
    allocator, blocks, stats, history, snapshot    the caching allocator
    reductions, *_plans, normalisation, convolutions, kernels    what kernels allocate inside themselves
    native, hooks, guard, ring     native code and patches, through ctypes
    tensors, values, shapes, schema    CUDA tensors, and what is known of them
    dispatch, registration, handlers, indexing, gradients    the kernel of the CUDA key
    attention, rnn                 composites that would ask the driver
    torch_cuda, cuda_functions, properties, streams, generators, storages, distributed    torch's Python layer
    stacks                         allocation stacks, also of the backward pass
    support, installation, lifecycle    whether it can work here, putting it in place, leaving

Importing this package needs no torch; `install` does.
"""

from __future__ import annotations

from typing import Any

from .cards import CARDS, Card
from .device import VirtualDevice
from .support import Unsupported, unsupported_reason

__all__ = [
    "CARDS",
    "Card",
    "Unsupported",
    "VirtualDevice",
    "install",
    "is_known",
    "unsupported_reason",
]


def install(
    card: str, capacity_bytes: int | None = None, *, unlimited: bool = False
) -> VirtualDevice:
    """Makes `card` the interpreter's only CUDA device; once per process, before CUDA is used.

    Args:
        card: a key of `CARDS`.
        capacity_bytes: a cap on reserved bytes, as `torch.cuda.set_per_process_memory_fraction` sets one.
        unlimited: let memory never run out, to see a program to its end that does not fit; a cap is ignored.

    Raises:
        Unsupported: it cannot work here; the message is one sentence.
    """
    reason = unsupported_reason(card)
    if reason is not None:
        raise Unsupported(reason)
    from .installation import install_device

    return install_device(card, capacity_bytes, unlimited=unlimited)


def is_known(tensor: Any) -> bool:
    """Whether a tensor's values were computed; False where any of them goes back to an assumption.

    Tensors on the host count as known: what became of a value after it left the device is not followed.
    """
    from .installation import is_known as answer

    return answer(tensor)
