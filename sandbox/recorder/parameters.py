"""Parameters of the outermost modules: name, shape, dtype, requires-grad."""

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
            found = describe(module)
            name = self._new_name(type(module).__name__)
            known = self._roots[id(module)] = (weakref.ref(module), name, found)
            if found:
                self._lines.write("parameters", root=name, parameters=found)
        return any(parameter["requires_grad"] for parameter in known[2])

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
        }
        for name, parameter in module.named_parameters()
    ]
