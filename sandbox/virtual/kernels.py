"""What CUDA kernels take from the allocator besides their results: temporaries and library workspaces.

The dispatcher does not see these. Sizes follow torch's sources (`aten/src/ATen/native/cuda`); each was compared with
allocator traces of an H200 under torch 2.11, taken operator by operator. Sizes inside cuDNN and CUB are fitted to those
traces. Buffers below a few kilobytes are left out where they change nothing.
"""

from __future__ import annotations

import threading

from .attention_plans import PLANNERS as ATTENTION
from .blocks import Block
from .cards import Card
from .convolutions import plan_backward, plan_forward
from .device import VirtualDevice
from .normalisation import PLANNERS as NORMALISATION
from .plans import Plan, Planner
from .reduction_plans import PLANNERS as REDUCTIONS
from .schema import Call
from .sorting_plans import PLANNERS as SORTING

PRODUCTS = frozenset(
    {
        "_addmm_activation",
        "_grouped_mm",
        "_int_mm",
        "_scaled_mm",
        "addbmm",
        "addmm",
        "addmv",
        "baddbmm",
        "bmm",
        "dot",
        "mm",
        "mv",
        "vdot",
    }
)
"""Operators that use cuBLAS."""
BIASED_PRODUCTS = frozenset({"addmm", "_addmm_activation"})
CONVOLUTIONS = frozenset({"convolution", "convolution_backward"})

BLAS_LIBRARY_BYTES = 165_675_008
"""Device memory outside the allocator that the first cuBLAS handle takes. Measured on an H200."""
BLAS_HANDLE_BYTES = 67_108_864
"""The same for each further handle."""
CUDNN_LIBRARY_BYTES = 16_777_216
"""The same for the first convolution."""

_PLANNERS: dict[str, Planner] = {
    "convolution": plan_forward,
    "convolution_backward": plan_backward,
    **REDUCTIONS,
    **NORMALISATION,
    **ATTENTION,
    **SORTING,
}


def plan_of(call: Call, card: Card) -> Plan | None:
    """The temporaries that one call takes on a card."""
    planner = _PLANNERS.get(call.operator.name)
    return planner(call, card) if planner is not None else None


class Kernels:
    """Takes temporaries and workspaces on one device."""

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device
        self._blas_handles: set[tuple[int, int]] = set()
        self._lt_handles: set[tuple[int, int]] = set()
        self._workspaces: list[Block] = []
        self._convolved = False

    def plan(self, call: Call) -> Plan | None:
        """The temporaries of this call."""
        return plan_of(call, self._device.card)

    def begin(self, plan: Plan) -> list[Block]:
        """Takes what comes before the results; the blocks are for `end`."""
        held = [self._device.malloc(size) for size in plan.held]
        for group in plan.early:
            self._device.temporary(group)
        return held

    def end(self, plan: Plan, held: list[Block]) -> None:
        """Takes what comes after the results, and gives everything back."""
        try:
            for group in plan.late:
                self._device.temporary(group)
        finally:
            self.give_back(held)

    def give_back(self, held: list[Block]) -> None:
        """Gives back what `begin` took."""
        while held:
            self._device.free(held.pop())

    def libraries(self, call: Call) -> None:
        """Takes the workspaces that a library keeps for good, at its first use on this thread and stream."""
        name = call.operator.name
        if name in PRODUCTS:
            self._blas_handle()
            if name in BIASED_PRODUCTS and _has_fused_bias(call):
                self._lt_handle()
        elif name in CONVOLUTIONS and not self._convolved:
            self._convolved = True
            self._device.allocator.used_elsewhere_bytes += CUDNN_LIBRARY_BYTES
            self._device.report.not_modelled(
                "cuDNN chooses convolution kernels when the program runs; their workspaces are estimated, from traces "
                "of an H200."
            )

    def clear_workspaces(self) -> None:
        """`torch._C._cuda_clearCublasWorkspaces`."""
        self.give_back(self._workspaces)
        self._blas_handles.clear()
        self._lt_handles.clear()

    def _blas_handle(self) -> None:
        # The engine's device thread has a handle of its own, as every other thread.
        key = (threading.get_ident(), self._device.stream)
        if key in self._blas_handles:
            return
        first = not self._blas_handles
        self._blas_handles.add(key)
        self._device.allocator.used_elsewhere_bytes += (
            BLAS_LIBRARY_BYTES if first else BLAS_HANDLE_BYTES
        )
        self._workspaces.append(self._device.malloc(self._device.card.blas_workspace_bytes))

    def _lt_handle(self) -> None:
        key = (threading.get_ident(), self._device.stream)
        if key not in self._lt_handles:
            self._lt_handles.add(key)
            self._workspaces.append(self._device.malloc(self._device.card.lt_workspace_bytes))


def _has_fused_bias(call: Call) -> bool:
    """`isInputCompliesAddmmCudaLt` (Blas.cpp): the bias is a row, and neither matrix is a vector."""
    bias, matrix = call.args[0], call.get("mat2")
    if bias.dim() != 1 or not bias.is_contiguous() or matrix is None:
        return False
    rows, columns = matrix.shape
    return bool(bias.shape[0] == columns and rows > 1 and columns > 1 and call.get("beta") == 1)
