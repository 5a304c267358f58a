"""What a call may run: functions of the program, something known to be harmless, or something out of sight."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headroom.agents.calls import binds
from headroom.agents.imports import (
    full_path,
    imported_names,
    is_builtin,
    is_quiet,
    module_depth,
    own_module,
)
from headroom.agents.index import Bound, Index, Place, returned_values
from headroom.agents.syntax import Function, last_name, local_names, parameters

# From an assignment to the next; a program that hands a function on more often is too entangled.
_MAX_STEPS = 12
# Methods that give back the object, or one that does the same when it is called.
_SELF_RETURNING = frozenset(
    {
        "to", "cuda", "cpu", "eval", "train", "half", "float", "double", "bfloat16", "requires_grad_", "apply",
        "compile", "type", "share_memory",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Callee:
    """What may run: `places` in the program's own files; without `known`, anything else, too.

    `module`: it may be an object of a torch module class.
    """

    places: tuple[Place, ...] = ()
    known: bool = True
    module: bool = False


_UNKNOWN = Callee(known=False)


class Callees:
    """Resolves callees by the program's text and by the lines where modules were seen to be called.

    Args:
        index: The program's own files.
        modules: Classes of the modules that were called at a line, by file and line.
    """

    def __init__(self, index: Index, modules: Mapping[tuple[str, int], frozenset[str]]) -> None:
        self._index = index
        self._modules = modules
        self._known: dict[ast.Call, Callee] = {}
        self._names: dict[tuple[ast.AST, str], Callee] = {}

    def of(self, place: Place, call: ast.Call) -> Callee:
        """What a call in this scope may run."""
        if call not in self._known:
            found = self._value(place, call.func, _MAX_STEPS)
            self._known[call] = found
            if not found.known and call in self._module_calls(place, call):
                self._known[call] = Callee(found.places, known=True, module=True)
        return self._known[call]

    def of_value(self, place: Place, node: ast.expr) -> Callee:
        """What may run when the value of an expression is called."""
        return self._value(place, node, _MAX_STEPS)

    def _module_calls(self, place: Place, call: ast.Call) -> set[ast.Call]:
        """Calls on the lines of one that must be those of the modules seen there.

        Where there are more candidates than module classes, those that run first: what is nested runs before.
        """
        found: set[ast.Call] = set()
        for line in range(call.lineno, (call.end_lineno or call.lineno) + 1):
            classes = self._modules.get((place.parsed.path, line), frozenset())
            if classes:
                found |= self._first_calls(place, line, len(classes))
        return found

    def _first_calls(self, place: Place, line: int, count: int) -> set[ast.Call]:
        on_line = [
            node
            for node in place.parsed.parents
            if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0)
        ]
        on_line.sort(key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
        by_text: dict[str, set[ast.Call]] = defaultdict(set)
        for node in on_line:
            here = Place(place.parsed, place.parsed.scope_of(node))
            target = self._value(here, node.func, _MAX_STEPS)
            if target.module or not target.known:
                by_text[ast.unparse(node.func)].add(node)
        return {node for text in list(by_text)[:count] for node in by_text[text]}

    def _value(self, place: Place, node: ast.expr | None, steps: int) -> Callee:
        """What runs when the value of an expression is called."""
        if steps == 0:
            return _UNKNOWN
        if isinstance(node, ast.Name):
            return self._name(place, node.id, steps - 1)
        if isinstance(node, ast.Attribute):
            return self._attribute(place, node, steps - 1)
        if isinstance(node, ast.Call):
            return self._made(place, node, steps - 1)
        if isinstance(node, ast.Lambda):
            return Callee((Place(place.parsed, node),))
        if isinstance(node, ast.IfExp):
            return self._join([(place, node.body), (place, node.orelse)], steps)
        if isinstance(node, ast.BoolOp):
            return self._join([(place, value) for value in node.values], steps)
        if isinstance(node, ast.Subscript):
            return self._join(self._entries(place, node), steps - 1)
        if isinstance(node, ast.NamedExpr | ast.Await):
            return self._value(place, node.value, steps)
        return Callee() if isinstance(node, ast.Constant) else _UNKNOWN

    def _join(self, values: Iterable[Bound], steps: int) -> Callee:
        found = [self._value(place, value, steps) for place, value in values]
        if not found:
            return _UNKNOWN
        places = dict.fromkeys(place for item in found for place in item.places)
        return Callee(
            tuple(places),
            known=all(item.known for item in found),
            module=any(item.module for item in found),
        )

    def _name(self, place: Place, name: str, steps: int) -> Callee:
        binder = _binder(place, name)
        key = (place.parsed.tree if binder is None else binder.scope, name)
        if key not in self._names:
            # Whoever asks again on the way, through a recursive call, adds nothing.
            self._names[key] = Callee()
            self._names[key] = self._bound(place, binder, name, steps)
        return self._names[key]

    def _bound(self, place: Place, binder: Place | None, name: str, steps: int) -> Callee:
        if binder is not None and name == "self" and binder.class_name:
            return self._instance(binder.class_name)
        if binder is not None:
            bound = [
                item for item in self._index.names.get(name, []) if item[0].scope is binder.scope
            ]
            if name in parameters(binder.scope):
                bound += self._index.arguments_for(binder, name)
            return self._join(bound, steps)
        own = self._own(name)
        if own is not None:
            return own
        path = imported_names(place.parsed.tree).get(name)
        if path is not None:
            return self._imported(path, steps)
        bound = self._global(name, place.parsed.path)
        if bound:
            return self._join(bound, steps)
        return Callee() if is_builtin(name) else _UNKNOWN

    def _own(self, name: str) -> Callee | None:
        """A function of the program, or the constructor of a class of it."""
        if name in self._index.classes:
            lineage = self._index.lineage(name)
            makers = self._index.functions.get("__init__", [])
            return Callee(tuple(place for place in makers if place.class_name in lineage))
        places = self._index.functions.get(name)
        return Callee(tuple(places)) if places else None

    def _global(self, name: str, path: str | None = None) -> list[Bound]:
        return [
            (place, value)
            for place, value in self._index.names.get(name, [])
            if isinstance(place.scope, ast.Module) and path in {None, place.parsed.path}
        ]

    def _imported(self, path: str, steps: int) -> Callee:
        if not own_module(path, self._index.files):
            return Callee() if is_quiet(path) else _UNKNOWN
        name = path.rsplit(".", 1)[-1]
        own = self._own(name)
        return own if own is not None else self._join(self._global(name), steps)

    def _attribute(self, place: Place, node: ast.Attribute, steps: int) -> Callee:
        root = _root_name(node)
        if root is not None and _binder(place, root) is None:
            path = full_path(node, imported_names(place.parsed.tree))
            if path is not None and not self._is_method(path):
                return self._imported(path, steps)
        own = self._index.functions.get(node.attr)
        if own:
            return Callee(tuple(own))
        values = self._index.attributes.get(node.attr)
        # What the program neither defines nor assigns is a method of a library's object.
        return self._join(values, steps) if values else Callee()

    def _entries(self, place: Place, node: ast.Subscript) -> list[Bound]:
        """All entries of the displays that a table of functions or classes is made of."""
        name = node.value.id if isinstance(node.value, ast.Name) else None
        if name is None or _binder(place, name) is not None:
            return []
        tables = [value for _, value in self._global(name)]
        displays = [table for table in tables if isinstance(table, ast.Dict)]
        if len(displays) < len(tables):
            return []
        return [(place, value) for table in displays for value in table.values]

    def _is_method(self, path: str) -> bool:
        """`bank.KEPT.append`: of an object in one of the program's files, not of the file."""
        parts = [part for part in path.split(".") if part]
        depth = module_depth(path, self._index.files)
        return 0 < depth < len(parts) - 1

    def _made(self, place: Place, call: ast.Call, steps: int) -> Callee:
        """What the result of a call runs, when it is called in turn."""
        name = last_name(call.func)
        if binds(call):
            return self._value(place, call.args[0], steps)
        if isinstance(call.func, ast.Attribute) and name in _SELF_RETURNING:
            return self._value(place, call.func.value, steps)
        if isinstance(call.func, ast.Subscript):
            entries = self._entries(place, call.func)
            calls = [(where, ast.Call(value, [], [])) for where, value in entries if value]
            return self._join(calls, steps)
        if name in self._index.classes:
            return self._instance(name)
        functions = self._index.functions.get(name)
        if functions:
            returned = [(item, value) for item in functions for value in returned_values(item)]
            return self._join(returned, steps)
        path = full_path(call.func, imported_names(place.parsed.tree))
        if path is None or not is_quiet(path) or own_module(path, self._index.files):
            return _UNKNOWN
        if name[:1].islower() and call.args:
            # `torch.compile(step)` runs what it was given.
            return Callee(self._value(place, call.args[0], steps).places, module=True)
        return Callee(module=path.startswith("torch"))

    def _instance(self, name: str) -> Callee:
        """What calling an object of a class of the program runs."""
        lineage = self._index.lineage(name)
        own = tuple(
            place
            for place in self._index.functions.get("__call__", [])
            if place.class_name in lineage
        )
        if own:
            return Callee(own)
        methods = {method for base in lineage for method in self._index.classes.get(base, ())}
        is_module = "forward" in methods or "Module" in lineage
        return Callee(module=True) if is_module else _UNKNOWN


def _binder(place: Place, name: str) -> Place | None:
    """The function, this one or one around it, that a name is local to."""
    for node in (place.scope, *place.parsed.ancestors(place.scope)):
        if isinstance(node, Function | ast.Lambda) and name in local_names(node):
            return Place(place.parsed, node)
    return None


def _root_name(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
