"""Names of modules and parameters, read from the modules' own dictionaries: no code of the program's is run."""

import weakref
from collections.abc import Iterator
from typing import Any

MODULES_KEPT = 200_000
REBUILDS = 50
"""How often the paths of one root are read again because a module inside it was not known."""
PURGE_AT = 64
UNNAMED_KEPT = 10_000


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


class _Root:
    """An outermost module: its name, the paths inside it by the modules' ids, and whether it has parameters."""

    __slots__ = ("has_parameters", "name", "paths", "rebuilt", "reference")

    def __init__(self, root: Any, name: str) -> None:
        self.reference, self.name, self.rebuilt = weakref.ref(root), name, 0
        self.read(root)

    def read(self, root: Any) -> None:
        inside = list(tree(root, self.name))
        self.paths = {id(module): (weakref.ref(module), path) for path, module in inside}
        self.has_parameters = any(children(module, "_parameters") for _, module in inside)


class Modules:
    """The outermost modules seen so far, and paths inside them; those that are gone are forgotten now and then."""

    def __init__(self) -> None:
        self._roots: dict[int, _Root] = {}
        self._purge_at = PURGE_AT
        self._inside: dict[int, set[int]] = {}
        """By a module's id, the ids of the roots that it is a part of."""
        self._parameters: dict[int, tuple[weakref.ref[Any], str, str]] = {}
        """By a parameter's id, the module that holds it, the key there, and its name."""
        self._unnamed: set[int] = set()
        self._may_read = True

    def see(self, root: Any, name: str) -> None:
        """Take note of an outermost module under the name that its parameters are written with."""
        known = self._roots.get(id(root))
        if known is not None and known.reference() is root and known.name == name:
            return
        if len(self._roots) >= self._purge_at:
            self._purge()
        made = self._roots[id(root)] = _Root(root, name)
        self._add(id(root), made)
        if made.has_parameters:
            self._name_parameters(made)

    def _add(self, place: int, root: _Root) -> None:
        for inner in root.paths:
            self._inside.setdefault(inner, set()).add(place)

    def _purge(self) -> None:
        """Forget what is gone; the next time is when there are twice as many as are left."""
        alive = {place: root for place, root in self._roots.items() if root.reference() is not None}
        self._roots, self._inside = alive, {}
        for place, root in alive.items():
            self._add(place, root)
        self._parameters = {
            place: entry for place, entry in self._parameters.items() if entry[0]() is not None
        }
        self._purge_at = max(PURGE_AT, 2 * len(alive))

    def roots(self) -> "list[tuple[str, Any]]":
        """Outermost modules that are still there, with their names."""
        alive = [(root.name, root.reference()) for root in list(self._roots.values())]
        return [(name, root) for name, root in alive if root is not None]

    def path(self, root: Any, module: Any) -> "str | None":
        """Where a module is inside a root; None if it is not."""
        known = self._roots.get(id(root))
        if known is None or known.reference() is not root:
            return None
        found = known.paths.get(id(module))
        if found is None or found[0]() is not module:
            known.rebuilt += 1
            if known.rebuilt > REBUILDS:
                return None
            known.read(root)
            self._add(id(root), known)
            self._unnamed.clear()
            found = known.paths.get(id(module))
        return found[1] if found is not None else None

    def only_path(self, module: Any) -> "str | None":
        """Where a module is, if it is a part of exactly one root."""
        paths = []
        for place in self._inside.get(id(module), ()):
            root = self._roots.get(place)
            found = root.paths.get(id(module)) if root is not None and root.reference() else None
            if found is not None and found[0]() is module:
                paths.append(found[1])
        return paths[0] if len(paths) == 1 else None

    def begin_pass(self) -> None:
        """Names are asked for next: what has changed meanwhile may be read, once."""
        self._may_read = True

    def parameter_name(self, parameter: Any) -> "str | None":
        """A parameter's name, as it is now; the first one of those that are shared."""
        found = self._parameter(parameter)
        if found is None and id(parameter) not in self._unnamed:
            if self._may_read:
                self._may_read = False
                for root in list(self._roots.values()):
                    if root.has_parameters:
                        self._name_parameters(root)
                found = self._parameter(parameter)
            if found is None:
                self._remember_unnamed(parameter)
        return found

    def _remember_unnamed(self, parameter: Any) -> None:
        if len(self._unnamed) >= UNNAMED_KEPT:
            self._unnamed.clear()
        self._unnamed.add(id(parameter))

    def _parameter(self, parameter: Any) -> "str | None":
        found = self._parameters.get(id(parameter))
        if found is None:
            return None
        module, key, name = found
        holder = module()
        held = holder.__dict__.get("_parameters") if holder is not None else None
        if isinstance(held, dict) and dict.get(held, key) is parameter:
            return name
        return None

    def _name_parameters(self, known: _Root) -> None:
        self._unnamed.clear()
        root = known.reference()
        for path, module in tree(root, known.name) if root is not None else ():
            for key, parameter in children(module, "_parameters"):
                if self._parameter(parameter) is None:
                    entry = weakref.ref(module), key, f"{path}.{key}"
                    self._parameters[id(parameter)] = entry
