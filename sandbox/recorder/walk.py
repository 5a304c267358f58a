"""One walk over the program's objects: the name and the holder of every storage on the device."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from .labels import clean
from .modules import Modules, children, tree
from .objects import Child, Kind, Kinds, instance_dict, pairs
from .objects import children as held_by
from .roots import EXCEPTION, GLOBAL, Place, Roots

DEPTH = 12
NAME_LIMIT = 200
CHECK_EVERY = 32
_PARTS = ("_parameters", "_buffers", "_modules")
CATEGORIES = ("parameter", "gradient", "optimizer_state", "buffer", "variable", "saved")
"""What a storage is, most telling first: one that is several things is the first of them."""


class Walk:
    """Collects storages. The caller turns torch's function overrides off meanwhile.

    Args:
        torch: The imported torch.
        modules: The outermost modules seen so far.
        seconds: When to give up; `cut` says that it was.
    """

    def __init__(self, torch: ModuleType, modules: Modules, seconds: float) -> None:
        self._tensor, self._module = id(torch.Tensor), id(torch.nn.Module)
        self._optimizer = id(torch.optim.Optimizer)
        self._base = torch._C.TensorBase
        self._modules = modules
        self._until = time.monotonic() + seconds
        self._steps = 0
        # Asking a copy-on-write storage for its address makes the copy.
        self._is_cow = getattr(torch._C, "_is_cow_tensor", _no)
        self._dispatching: dict[int, bool] = {}
        self.kinds = Kinds()
        self.cut = False
        self.found: dict[tuple[int, int], dict[str, Any]] = {}
        self.with_graph: list[tuple[Any, str, Place]] = []
        self._parameters: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        self._seen: set[int] = set()
        self._waiting: deque[tuple[Any, str, str, Place, int]] = deque()

    def late(self) -> bool:
        """Whether the time is up."""
        self._steps += 1
        if self._steps % CHECK_EVERY == 0 and time.monotonic() > self._until:
            self.cut = True
        return self.cut

    def known(self, optimizers: "list[Any]") -> None:
        """Name what outermost modules and optimizers hold."""
        for name, root in self._modules.roots():
            if not self.late():
                self.name_module(root, name)
        for optimizer in optimizers:
            if not self.late():
                self.name_optimizer(optimizer)

    def name_module(self, root: Any, root_name: str) -> None:
        """Parameters, their gradients, and buffers of a module and of those inside it."""
        for path, module in tree(root, root_name):
            self._paths.setdefault(id(module), path)
            if self.late():
                return
            for key, parameter in children(module, "_parameters"):
                name = self._parameters.setdefault(id(parameter), f"{path}.{key}")
                self.add(parameter, "parameter", name, None)
                gradient = self._gradient(parameter)
                if gradient is not None:
                    self.add(gradient, "gradient", name, None)
            for key, buffer in children(module, "_buffers"):
                self.add(buffer, "buffer", f"{path}.{key}", None)

    def name_optimizer(self, optimizer: Any) -> None:
        """State tensors, by the parameter that they belong to."""
        name = type(optimizer).__name__
        held = instance_dict(optimizer, self.kinds.of(optimizer)) or {}
        state = held.get("state")
        for parameter, values in list(dict.items(state)) if isinstance(state, dict) else ():
            if self.late():
                return
            owner = self._parameters.get(id(parameter), "an unnamed parameter")
            for key, value in pairs(values) if isinstance(values, dict) else ():
                if self.is_tensor(value):
                    self.add(value, "optimizer_state", f"{name}.{key} of {owner}", None)

    def is_tensor(self, value: Any) -> bool:
        """Whether an object is a tensor; its class is asked, not the object."""
        return self._tensor in self.kinds.of(value).bases

    def add(
        self, tensor: Any, category: str, name: str, holder: "dict[str, Any] | None"
    ) -> "dict[str, Any] | None":
        """Note a tensor's storage, unless it is on the host or known as something more telling."""
        place = self.storage(tensor)
        if place is None:
            return None
        device, address, size_bytes = place
        known = self.found.get((device, address))
        if known is not None and CATEGORIES.index(known["category"]) <= CATEGORIES.index(category):
            return None
        entry = {
            "device": device,
            "address": address,
            "size_bytes": size_bytes,
            "category": category,
            "name": clean(name)[:NAME_LIMIT],
            "holder": holder,
        }
        self.found[device, address] = entry
        return entry

    def storage(self, tensor: Any) -> "tuple[int, int, int] | None":
        """Device, address and size of a tensor's storage; None off the device, and for tensors without any."""
        base = self._base
        if self._runs_program(tensor):
            return None
        try:
            if not base.is_cuda.__get__(tensor) or self._is_cow(tensor):
                return None
            storage = base.untyped_storage(tensor)
            address, size_bytes = storage.data_ptr(), storage.nbytes()
            return (base.get_device(tensor), address, size_bytes) if address else None
        except (RuntimeError, NotImplementedError, ValueError):
            return None

    def _runs_program(self, tensor: Any) -> bool:
        """Whether a tensor's class has a `__torch_dispatch__` of its own, which torch may ask even for the device."""
        kind = self.kinds.of(tensor)
        known = self._dispatching.get(id(kind))
        if known is None:
            for base in type.__dict__["__mro__"].__get__(kind.kind):
                if "__torch_dispatch__" in type.__dict__["__dict__"].__get__(base):
                    known = id(base) not in (self._tensor, id(self._base))
                    break
            self._dispatching[id(kind)] = known = bool(known)
        return known

    def _gradient(self, tensor: Any) -> Any:
        base = self._base
        if self._runs_program(tensor):
            return None
        return base.grad.__get__(tensor) if base.is_leaf.__get__(tensor) else None

    def follow(self, roots: Roots) -> None:
        """Go through everything that can be reached from the program's variables, nearest first."""
        for value, name, place in roots.all():
            if self.late():
                return
            self._wait(value, name, GLOBAL if place.kind == GLOBAL else "variable", place, 0)
        while self._waiting and not self.late():
            value, name, how, place, depth = self._waiting.popleft()
            self._visit(value, name, how, place, depth, roots)

    def _wait(self, value: Any, name: str, how: str, place: Place, depth: int) -> None:
        if self.kinds.of(value).is_atom or id(value) in self._seen or depth > DEPTH:
            return
        self._seen.add(id(value))
        self._waiting.append((value, name, how, place, depth))

    def _visit(
        self, value: Any, name: str, how: str, place: Place, depth: int, roots: Roots
    ) -> None:
        kind = self.kinds.of(value)
        if self._tensor in kind.bases:
            self._visit_tensor(value, name, how, place)
        elif self._module in kind.bases:
            name = self._visit_module(value)
        elif self._optimizer in kind.bases:
            self.name_optimizer(value)
        elif id(BaseException) in kind.bases:
            for inner, inner_name, inner_place in roots.of_exception(value):
                if self.late():
                    return
                self._wait(inner, inner_name, "variable", inner_place, depth + 1)
        else:
            self._go_on(held_by(value, kind), name, place, depth)
            return
        self._go_on(self._of_torch(value, kind), name, place, depth)

    def _go_on(self, held: "Iterable[Child]", name: str, place: Place, depth: int) -> None:
        for inner, words, how in held:
            if self.late():
                return
            self._wait(inner, (name + words)[: 2 * NAME_LIMIT], how, place, depth + 1)

    def _of_torch(self, value: Any, kind: Kind) -> "Iterator[Child]":
        """What a tensor, module, optimizer or exception holds beside what it is named for."""
        if self._module not in kind.bases:
            yield from held_by(value, kind)
            return
        for name, inner in children(value, "_modules"):
            yield inner, f".{name}", "attribute"
        for inner, words, how in held_by(value, kind):
            if words[1:] not in _PARTS:
                yield inner, words, how

    def _visit_tensor(self, tensor: Any, name: str, how: str, place: Place) -> None:
        if self._runs_program(tensor):
            return
        self.add(tensor, "variable", name, holder(how, name, place))
        gradient = self._gradient(tensor)
        if gradient is not None:
            self.add(gradient, "gradient", name, holder("attribute", f"{name}.grad", place))
        node = self._node(tensor)
        if node is not None:
            self.with_graph.append((node, name, place))

    def _node(self, tensor: Any) -> Any:
        """A tensor's node; a view that was changed in place would get a new one by being asked."""
        base = self._base
        try:
            if base._is_view(tensor) and base._version.__get__(tensor):
                return None
            return base.grad_fn.__get__(tensor)
        except RuntimeError:
            return None

    def _visit_module(self, module: Any) -> str:
        """The module's path; one of no outermost module may not have been called yet, and is a root itself."""
        if id(module) not in self._paths:
            self.name_module(module, type(module).__name__)
        return self._paths[id(module)]


def _no(_tensor: Any) -> bool:
    return False


def holder(how: str, name: str, place: Place) -> "dict[str, Any]":
    """Who holds a storage, as it is written."""
    return {
        "kind": place.kind if place.kind == EXCEPTION else how,
        "name": clean(name)[:NAME_LIMIT],
        "file": place.file,
        "line": place.line,
        "function": place.function,
    }
