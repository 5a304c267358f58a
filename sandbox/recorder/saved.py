"""Tensors that only the autograd graph keeps.

Saved tensors are read as torch stored them. What the program packed by hooks is not unpacked: that would run the
program's code (or compute a checkpointed part again).
"""

from types import ModuleType
from typing import Any

from .nodes import address_of
from .objects import instance_dict, pairs
from .walk import Walk, holder

RAW = "_raw_saved_"


class Graphs:
    """Goes through the graphs of tensors that a walk has found."""

    def __init__(self, torch: ModuleType) -> None:
        self._of_python = torch._C._FunctionBase
        self.readable = hasattr(torch._C._autograd.SavedTensor, "data")
        self._getters: dict[int, list[tuple[str, Any]]] = {}

    def follow(self, walk: Walk, under_way: "set[int]") -> None:
        """Name what nodes have saved. Nodes of passes under way are left: other threads may be at work on them."""
        seen: dict[int, Any] = {}
        for root, name, place in walk.with_graph:
            if walk.late():
                return
            waiting = [root]
            while waiting and not walk.late():
                node = waiting.pop()
                if id(node) in seen:
                    continue
                seen[id(node)] = node
                of_python = isinstance(node, self._of_python)
                if of_python or address_of(node) not in under_way:
                    self._read(node, walk, holder("graph", f"{name}.grad_fn", place))
                waiting.extend(inner for inner, _ in node.next_functions if inner is not None)

    def _read(self, node: Any, walk: Walk, held_by: "dict[str, Any]") -> None:
        for name, getter in self._getters_of(node):
            try:
                saved = getter.__get__(node)
            except RuntimeError:  # it was released by a backward pass
                continue
            for one in saved if isinstance(saved, tuple) else (saved,):
                # What the program's hook packed, if there is one.
                tensor = getattr(one, "data", None)
                if walk.is_tensor(tensor):
                    walk.add(tensor, "saved", f"{node.name()}.{name}", held_by)
        kept = instance_dict(node, walk.kinds.of(node)) or {}
        for name, value in pairs(kept):
            if walk.is_tensor(value):
                walk.add(value, "saved", f"{node.name()}.{name}", held_by)

    def _getters_of(self, node: Any) -> "list[tuple[str, Any]]":
        kind = type(node)
        known = self._getters.get(id(kind))
        if known is None:
            known = [
                (name[len(RAW) :], getter)
                for base in kind.__mro__
                for name, getter in vars(base).items()
                if name.startswith(RAW)
            ]
            self._getters[id(kind)] = known
        return known
