"""An index over the program's own files, by name: what is defined, called, mentioned and assigned where."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headroom.agents.syntax import Function, ParsedFile, Scope, last_name, own_nodes, parameters

Bound = tuple["Place", ast.expr | None]


@dataclass(frozen=True, slots=True)
class Place:
    """A scope and the file that it is in."""

    parsed: ParsedFile
    scope: Scope

    @property
    def name(self) -> str:
        """The function's name; empty for a lambda or a module."""
        return getattr(self.scope, "name", "")

    @property
    def class_name(self) -> str:
        """The class around the scope; empty outside of any."""
        around = (
            node for node in self.parsed.ancestors(self.scope) if isinstance(node, ast.ClassDef)
        )
        return next((node.name for node in around), "")


class Index:
    """Name-based, so it may join what Python keeps apart, never the reverse.

    `names` and `attributes` hold what is assigned to them, with the scope it happens in; None where that is no plain
    expression, as for a loop's target.
    """

    def __init__(self, files: Mapping[str, ParsedFile]) -> None:
        """Index parsed files."""
        self.files = dict(files)
        self.places: list[Place] = []
        self.functions: dict[str, list[Place]] = defaultdict(list)
        self.mentions: dict[str, list[Place]] = defaultdict(list)
        self.callers: dict[str, list[Place]] = defaultdict(list)
        self.calls: dict[str, list[tuple[Place, ast.Call]]] = defaultdict(list)
        self.classes: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        self.makers: dict[str, set[str]] = defaultdict(set)
        self.names: dict[str, list[Bound]] = defaultdict(list)
        self.attributes: dict[str, list[Bound]] = defaultdict(list)
        for parsed in self.files.values():
            self._index(parsed)

    def lineage(self, name: str) -> set[str]:
        """A class's name with those of all its bases."""
        found, pending = {name}, [name]
        while pending:
            bases = self.bases.get(pending.pop(), set()) - found
            found |= bases
            pending += bases
        return found

    def arguments_for(self, function: Place, parameter: str) -> Iterator[Bound]:
        """What the program's own calls of a function bind to a parameter, its default included."""
        scope = function.scope
        if isinstance(scope, ast.Module | ast.Lambda):
            yield function, None
            return
        yield from ((function, value) for value in _defaults(scope, parameter))
        name = function.class_name if scope.name == "__init__" else scope.name
        names = parameters(scope)
        at = names.index(parameter) - (1 if names[:1] in {("self",), ("cls",)} else 0)
        for place, call in self.calls.get(name, []):
            yield place, _argument(call, at, parameter)

    def _index(self, parsed: ParsedFile) -> None:
        scopes = [node for node in parsed.parents if isinstance(node, Scope)]
        for scope in [parsed.tree, *scopes]:
            place = Place(parsed, scope)
            self.places.append(place)
            if isinstance(scope, Function):
                self.functions[scope.name].append(place)
            self._note_names(place)
        for node in parsed.parents:
            if isinstance(node, ast.ClassDef):
                methods = {child.name for child in node.body if isinstance(child, Function)}
                self.classes.setdefault(node.name, set()).update(methods)
                self.bases.setdefault(node.name, set()).update(map(last_name, node.bases))

    def _note_names(self, place: Place) -> None:
        """Remember what a scope mentions, calls and assigns."""
        mentioned, called = set(), set()
        for node in own_nodes(place.scope):
            if isinstance(node, ast.Name | ast.Attribute):
                mentioned.add(last_name(node))
            elif isinstance(node, ast.Call):
                called.add(last_name(node.func))
                self.calls[last_name(node.func)].append((place, node))
                mentioned |= _attributes_by_string(node)
            for target, value in _bindings(node):
                self._note_binding(place, target, value)
        for name in mentioned:
            self.mentions[name].append(place)
        for name in called:
            self.callers[name].append(place)

    def _note_binding(self, place: Place, target: ast.expr, value: ast.expr | None) -> None:
        if value is not None:
            maker = last_name(value.func) if isinstance(value, ast.Call) else type(value).__name__
            self.makers[last_name(target)].add(maker)
        if isinstance(target, ast.Attribute):
            self.attributes[target.attr].append((place, value))
        elif isinstance(target, ast.Name):
            self.names[target.id].append((place, value))
            if any(isinstance(node, ast.ClassDef) for node in _body_of(place, target)):
                self.attributes[target.id].append((place, value))


def _attributes_by_string(call: ast.Call) -> set[str]:
    """The attribute that `getattr(x, "name")` reads."""
    if last_name(call.func) not in {"getattr", "attrgetter"}:
        return set()
    constants = (part.value for part in call.args if isinstance(part, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def _body_of(place: Place, target: ast.AST) -> Iterator[ast.AST]:
    """What is around a target within its own scope."""
    for node in place.parsed.ancestors(target):
        if isinstance(node, Scope):
            return
        yield node


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Targets that a node assigns to, each with its value where that is one expression."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _paired(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        yield node.target, node.value
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _paired(node.optional_vars, node.context_expr)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from _paired(node.target, None)


def _paired(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value
        return
    values: list[ast.expr | None] = [None] * len(target.elts)
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
        values = list(value.elts)
    for part, item in zip(target.elts, values, strict=True):
        yield from _paired(part, item)


def _defaults(scope: Function, parameter: str) -> Iterator[ast.expr]:
    spec = scope.args
    positional = [*spec.posonlyargs, *spec.args]
    tail = positional[len(positional) - len(spec.defaults) :]
    for argument, default in [
        *zip(tail, spec.defaults, strict=True),
        *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
    ]:
        if argument.arg == parameter and default is not None:
            yield default


def _argument(call: ast.Call, at: int, parameter: str) -> ast.expr | None:
    """The argument that a call binds to a parameter; None where it cannot be told."""
    for keyword in call.keywords:
        if keyword.arg == parameter:
            return keyword.value
    unpacked = any(isinstance(argument, ast.Starred) for argument in call.args)
    if unpacked or any(keyword.arg is None for keyword in call.keywords):
        return None
    # What is left out takes its default.
    return call.args[at] if 0 <= at < len(call.args) else ast.Constant(value=None)


def returned_values(function: Place) -> list[ast.expr | None]:
    """The expressions that a function returns, in its own code; empty for a lambda or a module."""
    if not isinstance(function.scope, Function):
        return []
    return [node.value for node in own_nodes(function.scope) if isinstance(node, ast.Return)]
