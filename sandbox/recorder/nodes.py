"""Which thread made a node of the autograd graph: torch knows, and does not tell Python.

Sequence numbers are counted per thread, so without the thread a number says nothing. The thread's id stands in the C++
object, in one of two places (`torch/csrc/autograd/function.h`; torch 2.13 counts its references inside the object).
The place is tried out before it is believed, and the sequence number beside it is compared at every look.
"""

import _thread
import ctypes
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

_POINTER_OFFSET = object.__basicsize__
"""Where a Python wrapper holds the pointer to its node: behind the object's head."""
_LAYOUTS = ("<16xQ16xQ", "<24xQ16xQ")
"""The node's words from its start: what comes before the sequence number, and between it and the thread's id."""
TRIAL_SECONDS = 10.0


class Nodes:
    """Reads thread ids. `works` is False where this torch lays its nodes out in another way.

    Args:
        torch: The imported torch.
        unknown: Called once if so.
    """

    def __init__(self, torch: ModuleType, unknown: Callable[[], None]) -> None:
        self._torch, self._unknown = torch, unknown
        self._of_python = torch._C._FunctionBase
        self._layout: struct.Struct | None = None
        self._tried = False

    @property
    def works(self) -> bool:
        """Whether the layout is known; tried out on the first question."""
        if not self._tried:
            self._tried = True
            self._layout = self._try()
            if self._layout is None:
                self._unknown()
        return self._layout is not None

    def thread_of(self, node: Any, number: int) -> "int | None":
        """The id of the thread that made a node with this sequence number; None where that is not known."""
        if not self.works or isinstance(node, self._of_python):
            return None
        return self._read(self._layout, node, number)

    def this_thread(self) -> "int | None":
        """The id of the calling thread; None where that is not known."""
        if not self.works:
            return None
        node = self._make()
        return self.thread_of(node, node._sequence_nr())

    def _make(self) -> Any:
        """A node made by this thread, of a tensor on the host."""
        torch = self._torch
        with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():
            return torch.ones(1, device="cpu", requires_grad=True).view(1).grad_fn

    def _read(self, layout: "struct.Struct | None", node: Any, number: int) -> "int | None":
        if layout is None:
            return None
        place = address_of(node)
        found, thread = layout.unpack(ctypes.string_at(place, layout.size))
        return thread if found == number else None

    def _try(self) -> "struct.Struct | None":
        """The layout under which two nodes of this thread agree, and one of another thread does not."""
        others: list[Any] = []
        done = _thread.allocate_lock()
        done.acquire()

        def make() -> None:
            try:
                others.append(self._make())
            finally:
                done.release()

        _thread.start_new_thread(make, ())
        done.acquire(timeout=TRIAL_SECONDS)
        mine = [self._make(), self._make()]
        for text in _LAYOUTS:
            layout = struct.Struct(text)
            ids = [self._read(layout, node, node._sequence_nr()) for node in (*mine, *others)]
            if len(ids) == 3 and None not in ids and ids[0] == ids[1] != ids[2] and all(ids):
                return layout
        return None


def address_of(node: Any) -> int:
    """The address of a wrapper's C++ node (not of a node written in Python)."""
    return ctypes.c_uint64.from_address(id(node) + _POINTER_OFFSET).value
