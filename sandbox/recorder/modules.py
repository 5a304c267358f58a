"""Names of modules and parameters, read from the modules' own dictionaries: no code of the program's is run."""

import weakref
from collections.abc import Iterator
from typing import Any

MODULES_KEPT = 200_000
REBUILDS = 50
"""How often the paths of one root are read again because a module inside it was not known."""


def children(module: Any, part: str) -> "list[tuple[str, Any]]":
    """A module's `_parameters`, `_buffers` or `_modules`, without those that are None."""
    held = module.__dict__.get(part)
    if not isinstance(held, dict):
        return []
    return [(name, child) for name, child in dict.items(held) if child is not None]


def tree(root: Any, name: str) -> "Iterator[tuple[str, Any]]":
    """All modules of a root with their paths, shared ones once, as `named_modules` gives them."""
    seen: set[int] = set()
    waiting = [(name, root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) in seen or len(seen) > MODULES_KEPT:
            continue
        seen.add(id(module))
        yield path, module
        inner = children(module, "_modules")
        waiting.extend((f"{path}.{key}", child) for key, child in reversed(inner))


class Modules:
    """The outermost modules seen so far, and paths inside them."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._paths: dict[int, dict[int, tuple[weakref.ref[Any], str]]] = {}
        self._rebuilt: dict[int, int] = {}

    def see(self, root: Any, name: str) -> None:
        """Take note of an outermost module under the name that its parameters are written with."""
        known = self._names.get(id(root))
        if known is None or known[0]() is not root or known[1] != name:
            self._names[id(root)] = (weakref.ref(root), name)
            self._rebuilt[id(root)] = 0
            self._read(root, name)

    def _read(self, root: Any, name: str) -> None:
        self._paths[id(root)] = {
            id(module): (weakref.ref(module), path) for path, module in tree(root, name)
        }

    def roots(self) -> "list[tuple[str, Any]]":
        """Outermost modules that are still there, with their names."""
        alive = [(name, reference()) for reference, name in self._names.values()]
        return [(name, root) for name, root in alive if root is not None]

    def path(self, root: Any, module: Any) -> "str | None":
        """Where a module is inside a root; None if it is not."""
        paths = self._paths.get(id(root))
        if paths is None:
            return None
        found = paths.get(id(module))
        if found is None or found[0]() is not module:
            count = self._rebuilt[id(root)] = self._rebuilt.get(id(root), 0) + 1
            if count > REBUILDS:
                return None
            self._read(root, self._names[id(root)][1])
            found = self._paths[id(root)].get(id(module))
        return found[1] if found is not None else None

    def only_path(self, module: Any) -> "str | None":
        """Where a module is, if it is a part of exactly one root."""
        found = [paths[id(module)] for paths in self._paths.values() if id(module) in paths]
        if len(found) == 1 and found[0][0]() is module:
            return found[0][1]
        return None

    def parameter_names(self) -> "dict[int, str]":
        """Names of all parameters by id, as they are now; shared ones under their first name."""
        names: dict[int, str] = {}
        for name, root in self.roots():
            for path, module in tree(root, name):
                for key, parameter in children(module, "_parameters"):
                    names.setdefault(id(parameter), f"{path}.{key}")
        return names
