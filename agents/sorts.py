"""What sort of value an expression may be, by the assignments that reach it: a tensor, a number, a container.

Read from the text alone, so an answer may be `unknown`; a number is reported only where an assignment shows one.
"""

import ast
from collections.abc import Iterator
from typing import Literal

from headroom.agents.calls import gives_number
from headroom.agents.imports import full_path, imported_names
from headroom.agents.index import Bound, Index, Place, returned_values
from headroom.agents.reaching import Definition, reaching
from headroom.agents.syntax import access_path, last_name, parameters

Sort = Literal["tensor", "number", "dict", "list", "tuple", "unknown"]

_MAX_STEPS = 10
_UNKNOWN: frozenset[Sort] = frozenset({"unknown"})
_DISPLAYS: dict[type[ast.AST], Sort] = {
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.List: "list",
    ast.ListComp: "list",
    ast.Tuple: "tuple",
    ast.Constant: "number",
    ast.JoinedStr: "number",
}
_MAKERS: dict[str, Sort] = {
    "dict": "dict",
    "OrderedDict": "dict",
    "list": "list",
    "sorted": "list",
    "tuple": "tuple",
}
_TENSOR_FOLDERS = frozenset(
    {"torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special"}
)
_NO_TENSORS = frozenset(
    {
        "device",
        "compile",
        "load",
        "save",
        "manual_seed",
        "no_grad",
        "inference_mode",
        "autocast",
        "is_tensor",
    }
)


class Sorts:
    """Answers for expressions of a program."""

    def __init__(self, index: Index) -> None:
        """Answer from the assignments of an index."""
        self._index = index
        self._known: dict[tuple[ast.AST, ast.expr], frozenset[Sort]] = {}

    def of(self, place: Place, node: ast.expr, steps: int = _MAX_STEPS) -> frozenset[Sort]:
        """The sorts that an expression, read where it stands in a scope, may have."""
        display = _DISPLAYS.get(type(node))
        if display is not None:
            return frozenset({display})
        if steps == 0:
            return _UNKNOWN
        if isinstance(node, ast.Call):
            return self._call(place, node, steps - 1)
        if isinstance(node, ast.BinOp):
            return self._computed(place, (node.left, node.right), steps - 1)
        if isinstance(node, ast.UnaryOp):
            return self.of(place, node.operand, steps - 1)
        if isinstance(node, ast.IfExp):
            return self._join([(place, node.body), (place, node.orelse)], steps - 1)
        if isinstance(node, ast.Subscript):
            return self._join(self._elements(place, node, steps - 1), steps - 1)
        if isinstance(node, ast.Name | ast.Attribute):
            key = (place.scope, node)
            if key not in self._known:
                # Whoever asks again on the way, round a loop, learns nothing from it.
                self._known[key] = _UNKNOWN
                self._known[key] = self._join(self._sources(place, node), steps - 1)
            return self._known[key]
        return _UNKNOWN

    def _join(self, values: Iterator[Bound] | list[Bound], steps: int) -> frozenset[Sort]:
        found: set[Sort] = set()
        for place, value in values:
            found |= _UNKNOWN if value is None else self.of(place, value, steps)
        return frozenset(found) or _UNKNOWN

    def _computed(
        self, place: Place, operands: tuple[ast.expr, ast.expr], steps: int
    ) -> frozenset[Sort]:
        """A number only of numbers; whatever meets a tensor is one."""
        left, right = (self.of(place, operand, steps) for operand in operands)
        return frozenset(_meet(one, two) for one in left for two in right)

    def _call(self, place: Place, call: ast.Call, steps: int) -> frozenset[Sort]:
        name = last_name(call.func)
        if isinstance(call.func, ast.Name) and name in _MAKERS:
            return frozenset({_MAKERS[name]})
        if name == "state_dict":
            return frozenset({"dict"})
        if gives_number(call):
            return frozenset({"number"})
        if _makes_tensor(full_path(call.func, imported_names(place.parsed.tree)) or ""):
            return frozenset({"tensor"})
        if name in {"deepcopy", "copy"} and len(call.args) == 1:
            return self.of(place, call.args[0], steps)
        functions = self._index.functions.get(name, [])
        if functions:
            returned = [(item, value) for item in functions for value in returned_values(item)]
            return self._join(returned, steps)
        if isinstance(call.func, ast.Attribute) and name != "get":
            # `x.mean()` is a tensor if `x` is one; whose method it is otherwise, nobody knows.
            receiver = self.of(place, call.func.value, steps)
            return receiver & {"tensor"} or _UNKNOWN
        return _UNKNOWN

    def _elements(self, place: Place, node: ast.Subscript, steps: int) -> Iterator[Bound]:
        """What `logs["loss"]` reads of the displays that `logs` may be; None for any other subscript."""
        if not isinstance(node.slice, ast.Constant):
            yield place, None
            return
        for where, value in self._origins(place, node.value, steps):
            found = _entry(value, node.slice.value)
            yield (where, None) if found is None else (where, found)

    def _origins(self, place: Place, node: ast.expr | None, steps: int) -> Iterator[Bound]:
        """The expressions that made a value, through names and returns."""
        if steps > 0 and isinstance(node, ast.Name | ast.Attribute):
            for where, value in self._sources(place, node):
                yield from self._origins(where, value, steps - 1)
        elif (
            steps > 0
            and isinstance(node, ast.Call)
            and last_name(node.func) in self._index.functions
        ):
            for function in self._index.functions[last_name(node.func)]:
                for value in returned_values(function):
                    yield from self._origins(function, value, steps - 1)
        else:
            yield place, node

    def _sources(self, place: Place, node: ast.Name | ast.Attribute) -> Iterator[Bound]:
        path = access_path(node)
        if path is None:
            yield place, None
            return
        definitions, from_outside = reaching(place, node, path)
        for definition in definitions:
            yield from self._values(place, definition)
        if not from_outside:
            return
        if isinstance(node, ast.Attribute):
            yield from self._index.attributes.get(node.attr, [])
        elif path in parameters(place.scope):
            yield from self._index.arguments_for(place, path)
        else:
            around = set(place.parsed.ancestors(place.scope))
            yield from (item for item in self._index.names.get(path, []) if item[0].scope in around)

    def _values(self, place: Place, definition: Definition) -> Iterator[Bound]:
        value = definition.value
        if definition.augments is not None and value is not None:
            # `total += loss` is a tensor as soon as one of the two is.
            yield place, ast.BinOp(definition.augments, ast.Add(), value)
        elif definition.position is None or value is None:
            yield place, value
        else:
            yield from self._at(place, value, definition.position)

    def _at(self, place: Place, value: ast.expr, position: int) -> Iterator[Bound]:
        """What is at a position of the tuple that a function of the program returns."""
        name = last_name(value.func) if isinstance(value, ast.Call) else ""
        functions = self._index.functions.get(name, [])
        if not functions:
            yield place, None
        for function in functions:
            for returned in returned_values(function):
                tuple_ = returned if isinstance(returned, ast.Tuple) else None
                fits = tuple_ is not None and position < len(tuple_.elts)
                yield function, tuple_.elts[position] if tuple_ is not None and fits else None


def _entry(display: ast.expr | None, key: object) -> ast.expr | None:
    """What a dictionary display has for a key, or a tuple at an index."""
    if isinstance(display, ast.Dict):
        for name, value in zip(display.keys, display.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return value
    if (
        isinstance(display, ast.Tuple)
        and isinstance(key, int)
        and -len(display.elts) <= key < len(display.elts)
    ):
        return display.elts[key]
    return None


def _makes_tensor(path: str) -> bool:
    """Functions of torch, but not its classes, nor what has to do with devices and files."""
    folder, _, name = path.rpartition(".")
    return folder in _TENSOR_FOLDERS and name[:1].islower() and name not in _NO_TENSORS


def _meet(one: Sort, two: Sort) -> Sort:
    if "tensor" in {one, two}:
        return "tensor"
    return one if one == two or (two == "number" and one != "unknown") else "unknown"
