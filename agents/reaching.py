"""Which assignments may have given a name its value where it is read."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from headroom.agents.index import Place
from headroom.agents.syntax import Loop, Scope, access_path, own_nodes


@dataclass(frozen=True, slots=True)
class Definition:
    """A value given to a name: all of `value`, or what is at `position` of it where it is unpacked.

    Without a value it is known that something is assigned, not what. `augments` is the name itself in `x += value`.
    """

    value: ast.expr | None
    position: int | None = None
    augments: ast.expr | None = None


def reaching(place: Place, node: ast.expr, path: str) -> tuple[list[Definition], bool]:
    """The definitions of an access path that may reach an expression within its scope.

    The second value says whether the path may also still have what it had when the scope was entered.
    """
    found: list[Definition] = []
    current: ast.AST = node
    for outer in place.parsed.ancestors(node):
        bound = _bound_by(outer, current, path)
        if bound is not None:
            return [*found, bound], False
        for sibling in _before(outer, current):
            plain = _plain(sibling, path)
            if plain is not None:
                return [*found, plain], False
            found += _inside(sibling, path)
        test = getattr(outer, "test", None)
        named = _inside(test, path) if test is not None and test is not current else []
        if named:
            return [*found, *named], False
        if isinstance(outer, Loop) and isinstance(current, ast.stmt):
            # What an earlier iteration left.
            found += [item for part in outer.body for item in _inside(part, path)]
        if isinstance(outer, Scope):
            break
        current = outer
    return found, True


def _before(outer: ast.AST, current: ast.AST) -> list[ast.stmt]:
    """The statements before one in its block, the nearest first."""
    for _, block in ast.iter_fields(outer):
        if isinstance(block, list) and current in block and isinstance(current, ast.stmt):
            return list(reversed(block[: block.index(current)]))
    return []


def _bound_by(outer: ast.AST, current: ast.AST, path: str) -> Definition | None:
    """What a loop, a comprehension or a `with` around the expression binds the path to."""
    targets: list[ast.expr] = []
    if isinstance(outer, ast.For | ast.AsyncFor) and current in outer.body:
        # A definite assignment before it in the body was found first.
        return _element(outer.target, outer.iter, path)
    if isinstance(outer, ast.With | ast.AsyncWith):
        targets = [item.optional_vars for item in outer.items if item.optional_vars is not None]
    elif isinstance(outer, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        for generator in outer.generators:
            found = _element(generator.target, generator.iter, path)
            if found is not None:
                return found
    named = any(access_path(part) == path for target in targets for part in ast.walk(target))
    return Definition(None) if named else None


def _element(target: ast.expr, iterable: ast.expr, path: str) -> Definition | None:
    """What a loop binds to a path: a number where it counts, else something unknown."""
    if path not in {access_path(part) for part in ast.walk(target)}:
        return None
    counts = isinstance(iterable, ast.Call) and access_path(iterable.func) == "range"
    return Definition(ast.Constant(value=0) if counts else None)


def _plain(statement: ast.stmt, path: str) -> Definition | None:
    """What a statement assigns to the path in any case."""
    return next(_definitions(statement, path), None) if not _is_compound(statement) else None


def _is_compound(statement: ast.stmt) -> bool:
    return hasattr(statement, "body")


def _inside(statement: ast.AST, path: str) -> list[Definition]:
    """What a statement or an expression, or a part of it, may assign to the path."""
    nodes = [statement, *own_nodes(statement)]
    return [found for node in nodes for found in _definitions(node, path)]


def _definitions(node: ast.AST, path: str) -> Iterator[Definition]:
    value = getattr(node, "value", None)
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _from_target(target, node.value, path)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(value, ast.expr):
        yield from _from_target(node.target, value, path)
    elif isinstance(node, ast.AugAssign) and _is(node.target, path):
        yield Definition(node.value, augments=node.target)
    elif isinstance(node, ast.For | ast.AsyncFor):
        found = _element(node.target, node.iter, path)
        if found is not None:
            yield found


def _from_target(target: ast.expr, value: ast.expr, path: str) -> Iterator[Definition]:
    if _is(target, path):
        yield Definition(value)
    if not isinstance(target, ast.Tuple | ast.List):
        return
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    for at, part in enumerate(target.elts):
        if len(values) == len(target.elts):
            yield from _from_target(part, values[at], path)
        elif _is(part, path):
            yield Definition(value, position=at)
        elif path in {access_path(inner) for inner in ast.walk(part)}:
            yield Definition(None)


def _is(target: ast.expr, path: str) -> bool:
    return isinstance(target, ast.Name | ast.Attribute) and access_path(target) == path
