"""The kernel that stands for every kernel of the CUDA dispatch key.

C++ composites above the key run as on a real device, so the operations that arrive here, and with them the
intermediate tensors, are those of eager mode. Each is answered in one of four ways: by a handler of its own
(`handlers.py` and its neighbours), as a view, as a change of existing tensors, or as new tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .coverage import TO_HOST
from .device import VirtualDevice
from .history import Context
from .kernels import Kernels
from .schema import Call, Operator, packed, read, with_tensors_for_numbers
from .shapes import Described, Shapes, on_host
from .stacks import Stacks
from .tensors import Tensors, contiguous_stride, extent
from .values import FakeValues

Handler = Callable[["Dispatcher", Call], Any]
"""Answers one operator; returns NotImplemented to let the general way go on."""

_CPU_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
BAD_FORK = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start "
    "method"
)


class Dispatcher:
    """Answers operators for one virtual device.

    Args:
        device: where memory is taken.
        tensors: makes the results.
        stacks: learns where autograd's nodes come from.
        generator: draws the device's random numbers, so that the program's host generator is left alone.
        handlers: by operator name, without namespace and overload.
        initialise: `torch.cuda._lazy_init`.
    """

    def __init__(
        self,
        device: VirtualDevice,
        tensors: Tensors,
        stacks: Stacks,
        generator: torch.Generator,
        handlers: dict[str, Handler],
        *,
        initialise: Callable[[], None],
    ) -> None:
        self.device = device
        self.tensors = tensors
        self.values: FakeValues = tensors.values
        self.report = device.report
        self.shapes = Shapes(device.report, tensors.values_of)
        self.kernels = Kernels(device)
        self.generator = generator
        self.initialised = False
        self.forked = False
        self._stacks = stacks
        self._handlers = handlers
        self._initialise = initialise
        self._operators: dict[Any, tuple[Operator, Handler | None]] = {}

    def __call__(self, overload: Any, *args: Any, **kwargs: Any) -> Any:
        """The boxed kernel: called by torch's dispatcher with the operator and its arguments."""
        if self.forked or not self.initialised:
            self._become_ready()
        self._count(overload, args)
        try:
            # The program's function modes (default device) must not see what happens in here.
            with torch._C.DisableTorchFunction():
                if self.device.history.wants_stack(Context.STATE):
                    self._stacks.note_forward()
                return self.run(overload, args, kwargs)
        except RuntimeError as error:
            # What torch would raise from C++ shows the program's frames, not ours.
            raise error.with_traceback(None) from None

    def _count(self, overload: Any, args: tuple[Any, ...]) -> None:
        name = overload._schema.name.partition("::")[2]
        if name in ("copy_", "_copy_from"):
            target = args[0] if name == "copy_" else args[1]
            name = "copy" if target.is_cuda else TO_HOST
        self.report.count(name, backward=self.tensors.current_node() is not None)

    def run(self, overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answers one operator, also for handlers that put another in its place."""
        known = self._operators.get(overload)
        if known is None:
            operator = read(overload)
            known = self._operators[overload] = (operator, self._handlers.get(operator.name))
        operator, handler = known
        if operator.number_places:
            args = with_tensors_for_numbers(operator.number_places, args)
        call = Call(operator, args, kwargs)
        if handler is not None:
            result = handler(self, call)
            if result is not NotImplemented:
                return result
        if operator.is_view:
            return self.redispatch_to_cpu(call)
        check_devices(call)
        plan = self.kernels.plan(call)
        if plan is None:
            result = self._change(call) if operator.written else self._create(call)
            self.kernels.libraries(call)
            return result
        held = self.kernels.begin(plan)
        try:
            result = self._change(call) if operator.written else self._create(call)
            self.kernels.libraries(call)
        except BaseException:
            self.kernels.give_back(held)
            raise
        self.kernels.end(plan, held)
        return result

    def redispatch_to_cpu(self, call: Call) -> Any:
        """Runs the CPU's kernel on the CUDA tensors themselves: for kernels that read no memory."""
        return call.operator.overload.redispatch(_CPU_KEY, *call.args, **call.kwargs)

    def compute(self, call: Call) -> Any:
        """The call's result computed on the host, random numbers drawn from the device's generator."""
        if not call.operator.draws or call.operator.takes_generator:
            return on_host(call, self.host, self.generator)
        # The operator can only draw from the host's default generator: lend it the device's state.
        mine, theirs = self.generator, torch.default_generator
        kept = theirs.get_state()
        theirs.set_state(mine.get_state())
        try:
            return on_host(call, self.host)
        finally:
            mine.set_state(theirs.get_state())
            theirs.set_state(kept)

    def host(self, tensor: Tensor) -> Tensor:
        """The tensor itself, or the host bytes of a CUDA tensor."""
        return self.tensors.host_alias(tensor) if tensor.is_cuda else tensor

    def adopt_all(self, result: Any, *, assumed: bool) -> Any:
        """Host results as CUDA tensors."""
        if isinstance(result, Tensor):
            return self.tensors.adopt(result, assumed=assumed)
        if isinstance(result, (list, tuple)):
            return type(result)([self.adopt_all(item, assumed=assumed) for item in result])
        return result

    def resize(
        self, tensor: Tensor, size: tuple[int, ...], stride: tuple[int, ...] | None = None
    ) -> Tensor:
        """`resize_`: in the storage it has where that is large enough, else in a new one."""
        stride = contiguous_stride(size) if stride is None else stride
        itemsize = tensor.element_size()
        offset = tensor.storage_offset()
        storage = tensor.untyped_storage()
        if extent(size, stride, itemsize) > storage.nbytes() - offset * itemsize:
            new = self.tensors.uninitialised(size, stride, tensor.dtype)
            storage, offset = new.untyped_storage(), 0
        set_storage = torch.ops.aten.set_.source_Storage_storage_offset
        set_storage.redispatch(_CPU_KEY, tensor, storage, offset, list(size), list(stride))
        return tensor

    def _become_ready(self) -> None:
        if self.forked:
            raise RuntimeError(BAD_FORK)
        self._initialise()
        self.initialised = True

    def _change(self, call: Call) -> Any:
        """In-place and `out=` operations."""
        operator = call.operator
        if operator.outputs:
            self._size_outputs(call)
        elif not operator.name.startswith(UNCHECKED):
            self.shapes.check(call)
        tensors = call.tensors()
        written = call.written_tensors()
        read_from = tensors
        if operator.overwrites:  # what they held does not matter
            read_from = [tensor for tensor in tensors if not any(tensor is out for out in written)]
        targets = [
            (tensor, self.tensors.storage_of(tensor)) for tensor in written if tensor.is_cuda
        ]
        inputs = [self.tensors.storage_of(tensor) for tensor in read_from if tensor.is_cuda]
        computed = (
            all(storage.known for storage in inputs)
            and all(storage.data is not None or not storage.nbytes for _, storage in targets)
            and self.values.computes_in_place(sum(tensor.numel() for tensor in tensors))
            and self._computed_in_place(call)
        )
        assumed = any(storage.assumed for storage in inputs)
        for tensor, storage in targets:
            whole = tensor.numel() * tensor.element_size() == storage.nbytes
            if not computed:
                self._forget(storage)
            elif operator.overwrites and whole:
                storage.known, storage.assumed = True, assumed
            else:
                storage.assumed = storage.assumed or assumed
        if all(name is not None for name in operator.results):
            return call.result_arguments()
        return self._mixed_results(call)

    def _forget(self, storage: Any) -> None:
        """The storage no longer holds what the program would have computed."""
        storage.known = storage.data is not None
        if storage.known and not storage.assumed:
            storage.assumed = True
            self.report.assumed_values += 1

    def _computed_in_place(self, call: Call) -> bool:
        try:
            self.compute(call)
        except (RuntimeError, NotImplementedError) as error:
            # The shapes are right (they were checked), so it is the host that cannot.
            self.report.unsupported(
                str(call.operator.overload), f"values assumed: {_first_line(error)}"
            )
            return False
        return True

    def _size_outputs(self, call: Call) -> None:
        for name, described in zip(call.operator.results, self.shapes.infer(call), strict=True):
            tensor = call.get(name) if name is not None else None
            if not isinstance(tensor, Tensor) or not isinstance(described, Described):
                continue
            if tuple(tensor.shape) != described.size:
                self.resize(tensor, described.size, described.stride)

    def _mixed_results(self, call: Call) -> Any:
        """Results of which some are arguments and some are new."""
        described = self.shapes.infer(call)
        results = []
        for name, item in zip(call.operator.results, described, strict=True):
            results.append(self._new(item) if name is None else call.get(name))
        return packed(results)

    def _create(self, call: Call) -> Any:
        """Operations that return new tensors."""
        described = self.shapes.infer(call)
        inputs = [self.tensors.storage_of(tensor) for tensor in call.tensors() if tensor.is_cuda]
        if all(storage.known for storage in inputs):
            small = self.values.computes(sum(storage.nbytes for storage in inputs))
            if small and all(self._keeps(item) for item in described):
                computed = self._computed(call, any(storage.assumed for storage in inputs))
                if computed is not NotImplemented:
                    return computed
        results: list[Any] = [None] * len(described)
        for place in CREATION_ORDER.get(call.operator.name, range(len(described))):
            results[place] = self._new(described[place])
        return packed(results)

    def _computed(self, call: Call, assumed: bool) -> Any:
        try:
            result = self.compute(call)
        except Exception as error:  # out of range indices, types that the host lacks
            self.report.unsupported(
                str(call.operator.overload), f"values assumed: {_first_line(error)}"
            )
            return NotImplemented
        return self.adopt_all(result, assumed=assumed)

    def _keeps(self, described: Any) -> bool:
        if isinstance(described, Described):
            nbytes = extent(described.size, described.stride, described.dtype.itemsize)
            return self.values.keeps(nbytes, described.dtype)
        return not isinstance(described, list) or all(self._keeps(item) for item in described)

    def _new(self, described: Any) -> Any:
        if isinstance(described, Described):
            return self.tensors.unknown(*described)
        if isinstance(described, list):
            return [self._new(item) for item in described]
        return described


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def check_devices(call: Call) -> None:
    """Raises torch's error for a host tensor among CUDA tensors; scalars are allowed."""
    on_device = on_host = False
    for tensor in call.tensors():
        if tensor.is_cuda:
            on_device = True
        elif tensor.dim() and tensor.device.type == "cpu":
            on_host = True
    if on_device and on_host and call.operator.name not in MIXED_DEVICES:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        )


CREATION_ORDER = {
    "_scaled_dot_product_cudnn_attention": (6, 7, 0, 1, 2, 3, 4, 5, 8),
    "native_dropout": (1, 0),
}
"""Results that the real kernel allocates in another order than it returns them (traces of an H200)."""
UNCHECKED = ("_foreach_", "_fused_", "_amp_")
"""Beginnings of in-place operators whose long lists are not worth a check of shapes."""
MIXED_DEVICES = frozenset({"_cudnn_rnn", "_cudnn_rnn_backward", "_pack_padded_sequence"})
"""Operators that take host tensors beside CUDA tensors."""
