"""Tensors that only the autograd graph keeps, and strays: tensors that no walk from the program's variables reaches.

Saved tensors are read as torch stored them. What the program packed by hooks is not unpacked: that would run the
program's code (or compute a checkpointed part again).
"""

import gc
from types import ModuleType
from typing import Any

from .nodes import address_of
from .objects import children, instance_dict
from .roots import NOWHERE
from .walk import Walk, holder

RAW = "_raw_saved_"
STRAYS_NAMED = 64


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
        for name, value in list(dict.items(kept)):
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


def name_strays(walk: Walk) -> None:
    """Name tensors that were not reached, by what refers to them."""
    strays: dict[int, Any] = {}
    for value in gc.get_objects():
        if walk.late():
            return
        if walk.is_tensor(value):
            place = walk.storage(value)
            if place is not None and place[:2] not in walk.found:
                strays[id(value)] = value
    largest = sorted(strays.values(), key=lambda value: -(walk.storage(value) or (0, 0, 0))[2])
    named = {id(value): value for value in largest[:STRAYS_NAMED]}
    if named:
        for referrer in gc.get_referrers(*named.values()):
            if referrer is not strays and referrer is not named and referrer is not largest:
                _name_held(walk, referrer, named)
    for value in strays.values():
        walk.add(value, "variable", "<unnamed>", None)


def _name_held(walk: Walk, referrer: Any, named: "dict[int, Any]") -> None:
    kind = walk.kinds.of(referrer)
    if kind.is_atom:
        return
    name = f"<{type(referrer).__name__}>"
    owner = _owner(referrer, walk) if type(referrer) is dict else None
    for held, words, how in children(referrer, kind):
        if id(held) in named:
            if owner is not None:
                words, how = f".{words[2:-2]}", "attribute"
            shown = (owner or name) + words
            walk.add(held, "variable", shown, holder(how, shown, NOWHERE))


def _owner(space: "dict[Any, Any]", walk: Walk) -> "str | None":
    """The class of the object whose attributes a dictionary holds."""
    for referrer in gc.get_referrers(space):
        kind = walk.kinds.of(referrer)
        if not kind.is_atom and kind.read is None and instance_dict(referrer, kind) is space:
            return f"<{type(referrer).__name__}>"
    return None
