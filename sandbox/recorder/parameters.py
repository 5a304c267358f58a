"""Parameters of the outermost modules: name, shape, dtype, requires-grad."""

import sys
import weakref
from typing import Any

from .lines import Lines


class Parameters:
    """Writes a module's parameters when it is first called, and again at the end if they have changed."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._roots: dict[int, tuple[weakref.ref[Any], str, list[dict[str, Any]]]] = {}
        self._names: dict[str, int] = {}

    def see(self, module: Any) -> bool:
        """Take note of an outermost module; says whether it has a parameter that is trained."""
        known = self._roots.get(id(module))
        if known is None or known[0]() is not module:
            if any(_is_lazy(parameter) for _, parameter in _named(module)):
                return True  # its shapes are known when it has been called
            found = describe(module)
            name = self._new_name(type(module).__name__)
            known = self._roots[id(module)] = (weakref.ref(module), name, found)
            if found:
                self._lines.write("parameters", root=name, parameters=found)
        return any(parameter["requires_grad"] for parameter in known[2])

    def name_of(self, module: Any) -> "str | None":
        """The name that an outermost module's parameters were written with."""
        known = self._roots.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def _new_name(self, base: str) -> str:
        count = self._names[base] = self._names.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"

    def finish(self) -> None:
        """Write again what was added, frozen or converted since."""
        for reference, name, before in self._roots.values():
            module = reference()
            after = describe(module) if module is not None else before
            if after != before:
                self._lines.write("parameters", root=name, parameters=after)


def describe(module: Any) -> "list[dict[str, Any]]":
    """The module's parameters, shared ones once, in its own order."""
    return [
        {
            "name": name,
            "shape": list(parameter.shape),
            "dtype": str(parameter.dtype).removeprefix("torch."),
            "requires_grad": parameter.requires_grad,
            "size_bytes": parameter.numel() * parameter.element_size(),
            "on_device": parameter.is_cuda,
        }
        for name, parameter in _named(module)
        if not _is_lazy(parameter)
    ]


def _named(module: Any) -> "list[tuple[str, Any]]":
    """By torch's own method: a program may have replaced it."""
    own = sys.modules["torch"].nn.Module.named_parameters
    return list(own(module))


def _is_lazy(parameter: Any) -> bool:
    """An `UninitializedParameter` has no shape yet."""
    return hasattr(type(parameter), "materialize")
