"""Calls us when the program has imported a module, and not before."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


def after_import(name: str, callback: Callback) -> None:
    """Call `callback(module)` once, when module `name` has been executed; now, if it already has."""
    if name in sys.modules:
        callback(sys.modules[name])
        return
    sys.meta_path.insert(0, _Finder(name, callback))


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find the module and wraps the loader that they give."""

    def __init__(self, name: str, callback: Callback) -> None:
        self._name, self._callback = name, callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Whoever only looks (`importlib.util.find_spec`, as we do next) gets the loader that is really there.
        if fullname != self._name or sys._getframe(2).f_globals.get("__name__") == "importlib.util":
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._executed)
        return spec

    def _executed(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._callback(module)


class _Loader(importlib.abc.Loader):
    """The real loader, with a call at the end; afterwards the module shows no trace of it."""

    def __init__(self, real: Any, callback: Callback) -> None:
        self._real, self._callback = real, callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._real.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        self._real.exec_module(module)
        self._callback(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
