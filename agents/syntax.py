"""A Python file as lines and tree: which function, loop or statement a line lies in, and what its names mean.

Pure: text in, positions out. Files that do not parse, or nest too deeply to walk, are left alone (`parse_file` gives
None), because an agent that cannot read a file must not edit it.
"""

import ast
import functools
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headroom.agents.text import SourceText, read_text, source_bytes
from headroom.errors import PatchError

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While

# Recursive walks take up to five Python frames a level, and Python allows about a thousand.
_MAX_DEPTH = 150


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParsedFile:
    """One file: its text, its tree, and the parent of every node."""

    path: str
    data: bytes
    text: SourceText
    tree: ast.Module
    parents: dict[ast.AST, ast.AST]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node`, innermost first, up to the module."""
        current = self.parents.get(node)
        while current is not None:
            yield current
            current = self.parents.get(current)

    def scope_of(self, node: ast.AST) -> Scope:
        """The innermost function, lambda or module whose code `node` is part of."""
        for outer in self.ancestors(node):
            if isinstance(outer, Scope):
                return outer
        return self.tree

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement that holds `node`, or `node` itself."""
        if isinstance(node, ast.stmt):
            return node
        return next((outer for outer in self.ancestors(node) if isinstance(outer, ast.stmt)), None)

    def function_at(self, line: int) -> Function | None:
        """The innermost `def` whose body or header covers the line."""
        found = [node for node in self._covering(line) if isinstance(node, Function)]
        return max(found, key=lambda node: node.lineno, default=None)

    def scope_at(self, line: int, name: str = "") -> Scope:
        """The scope that runs a line, for a frame of this function name.

        `<lambda>` selects a lambda; the names of comprehensions select the function around them.
        """
        if name == "<module>":
            return self.tree
        around = [node for node in self._covering(line) if isinstance(node, Scope)]
        kinds = ast.Lambda if name == "<lambda>" else Function
        matching = [node for node in around if isinstance(node, kinds)]
        named = [node for node in matching if getattr(node, "name", "<lambda>") == name] or matching
        return max(named, key=lambda node: (node.lineno, node.col_offset), default=self.tree)

    def statements_at(self, line: int, scope: Scope | None = None) -> tuple[ast.stmt, ...]:
        """The innermost statements that cover a line (several when semicolons or one-line bodies share it).

        With a `scope`, only statements of that scope's own code.
        """
        covering = [node for node in self._covering(line) if isinstance(node, ast.stmt)]
        if scope is not None:
            covering = [node for node in covering if self.scope_of(node) is scope]
        outer = {parent for node in covering for parent in self.ancestors(node)}
        return tuple(node for node in covering if node not in outer)

    def loops_around(self, node: ast.AST) -> tuple[Loop, ...]:
        """The loops around a node within its own scope, innermost first."""
        found = []
        for outer in self.ancestors(node):
            if isinstance(outer, Scope):
                break
            if isinstance(outer, Loop):
                found.append(outer)
        return tuple(found)

    def _covering(self, line: int) -> Iterator[ast.stmt | ast.expr]:
        for node in self.parents:
            if isinstance(node, ast.stmt | ast.expr) and covers(node, line):
                yield node


def covers(node: ast.stmt | ast.expr, line: int) -> bool:
    """Whether a node's text touches a line; decorators do not count as part of a function."""
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def parse_source(path: str, text: str) -> ParsedFile | None:
    """Parse an entry of `Evidence.sources`; None when it cannot be read."""
    return parse_file(path, source_bytes(text)) if path.endswith(".py") else None


@functools.lru_cache(maxsize=256)
def parse_file(path: str, data: bytes) -> ParsedFile | None:
    """Parse a file's bytes, once for equal arguments; None when it does not parse or nests too deeply."""
    try:
        text = read_text(data, path)
        with warnings.catch_warnings():
            # What Python warns about in the program's text is not ours to say.
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except (PatchError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    parents: dict[ast.AST, ast.AST] = {}
    level: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        following = []
        for node in level:
            for child in ast.iter_child_nodes(node):
                # Context nodes such as Load() are shared by the whole tree and have no place in it.
                if not isinstance(child, ast.expr_context | ast.operator | ast.boolop):
                    parents[child] = node
                    following.append(child)
        if not following:
            return ParsedFile(path=path, data=data, text=text, tree=tree, parents=parents)
        level = following
    return None


def access_path(node: ast.AST) -> str | None:
    """`self.history` for a name, attribute chain or a subscript of one; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = access_path(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    if isinstance(node, ast.Subscript | ast.Starred):
        return access_path(node.value)
    return None


def last_name(node: ast.AST) -> str:
    """The last name of a callee: `step` for `self.optimizer.step`; empty when there is none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run as part of a scope, in source order, without the bodies of nested functions."""
    pending = list(reversed(_code(scope)))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, Scope):
            pending += reversed(list(ast.iter_child_nodes(node)))


@functools.lru_cache(maxsize=4096)
def nested_scopes(scope: Scope) -> tuple[Scope, ...]:
    """The functions and lambdas that a scope's own code defines, without what is nested in those."""
    return tuple(node for node in own_nodes(scope) if isinstance(node, Scope) and node is not scope)


def _code(scope: ast.AST) -> list[ast.AST]:
    if isinstance(scope, ast.Lambda):
        return [scope.body]
    if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
        return list(scope.body)
    return list(ast.iter_child_nodes(scope))


def parameters(scope: Scope) -> tuple[str, ...]:
    """Names of a function's parameters, positional ones first."""
    if isinstance(scope, ast.Module):
        return ()
    spec = scope.args
    named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    named += [extra for extra in (spec.vararg, spec.kwarg) if extra is not None]
    return tuple(argument.arg for argument in named)


@functools.lru_cache(maxsize=4096)
def local_names(scope: Scope) -> frozenset[str]:
    """Names that a function binds for itself: parameters and targets, without `global` and `nonlocal` ones."""
    bound = set(parameters(scope))
    foreign: set[str] = set()
    for node in own_nodes(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            foreign.update(node.names)
    return frozenset(bound - foreign)


def is_generator(function: Function) -> bool:
    """Whether calling the function gives a generator."""
    return contains_yield(own_nodes(function))


def contains_yield(nodes: Iterable[ast.AST]) -> bool:
    """Whether control may leave these nodes for the consumer of a generator."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes)


def contains_await(nodes: Iterable[ast.AST]) -> bool:
    """Whether control may leave these nodes for another coroutine."""
    waits = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    return any(
        isinstance(node, waits) or (isinstance(node, ast.comprehension) and bool(node.is_async))
        for node in nodes
    )


def torch_import(tree: ast.Module) -> tuple[str, int] | None:
    """The name that torch has in a file and the line that binds it; None when no module-level import does.

    `import torch.nn` binds `torch` too; `import torch.nn as nn` and `from torch import nn` do not.
    """
    for node in own_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch":
                    return alias.asname or "torch", node.lineno
                if alias.name.startswith("torch.") and alias.asname is None:
                    return "torch", node.lineno
    return None


def import_line(tree: ast.Module) -> int:
    """The line, counted from 1, before which a new import belongs.

    That is the first import that is none from `__future__`; without one, the first statement after the docstring and
    the `__future__` imports.
    """
    docstring = ast.get_docstring(tree, clean=False) is not None
    body = tree.body[1:] if docstring else tree.body
    rest = [node for node in body if not _is_future(node)]
    imports = [node for node in rest if isinstance(node, ast.Import | ast.ImportFrom)]
    if rest:
        return first_line((imports or rest)[0])
    return (tree.body[-1].end_lineno or 0) + 1 if tree.body else 1


def first_line(node: ast.stmt) -> int:
    """The line where a statement's text starts, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
