"""Taint through one function: where may a value go, statement by statement.

Assignments to names overwrite, so a name that is used for training here and for evaluation there is not confused;
branches are joined and loops repeated until nothing new is found.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

from headroom.agents.calls import Mode, guard_paths, is_guard
from headroom.agents.carry import Carrier, Found, Seeds
from headroom.agents.imports import imported_names
from headroom.agents.syntax import Function, ParsedFile, Scope, local_names, nested_scopes

# Each pass lets a value travel one assignment further against the order of the text; real loops settle in two or three.
_MAX_PASSES = 8


class Flow:
    """One walk through the code of a scope."""

    def __init__(
        self,
        parsed: ParsedFile,
        scope: Scope,
        seeds: Seeds,
        mode: Mode,
        entry: frozenset[str] = frozenset(),
        found: Found | None = None,
    ) -> None:
        self.parsed = parsed
        self.scope = scope
        self.seeds = seeds
        self.mode = mode
        self.entry = entry
        self.guards = guard_paths(parsed.tree)
        self.found = found or Found()
        local = frozenset() if isinstance(scope, ast.Module) else local_names(scope)
        self.carrier = Carrier(seeds, mode, self.found, local, imported_names(parsed.tree))
        self.carrier.state = set(entry | seeds.parameters)
        self.ever: set[str] = set()
        self.breaks: list[set[str]] = []
        self.continues: list[set[str]] = []

    def run(self) -> Found:
        """Walk the scope, then the functions nested in it with everything they might see."""
        if isinstance(self.scope, ast.Lambda):
            self.found.returned |= self.carrier.carries(self.scope.body)
        else:
            decorators = getattr(self.scope, "decorator_list", [])
            self.carrier.quiet = sum(is_guard(node, self.guards) for node in decorators)
            self._block(self.scope.body)
        self._note_state()
        giving = self._nested()
        if giving <= self.seeds.captured | self.seeds.names:
            return self.found
        # Whoever calls such a closure, under whatever name, gets what it returns.
        seeds = replace(self.seeds, captured=self.seeds.captured | giving)
        return Flow(self.parsed, self.scope, seeds, self.mode, self.entry, self.found).run()

    def _nested(self) -> frozenset[str]:
        """Walk the functions nested in the scope; the names of those that return something that carries."""
        inner = replace(
            self.seeds, names=self.seeds.names | self.seeds.captured, captured=frozenset()
        )
        giving = set()
        for nested in nested_scopes(self.scope):
            seen = frozenset(self.ever) - local_names(nested)
            # What a closure returns is not what its surroundings return.
            returned, self.found.returned = self.found.returned, False
            Flow(self.parsed, nested, inner, self.mode, seen, self.found).run()
            in_class = isinstance(self.parsed.parents.get(nested), ast.ClassDef)
            if self.found.returned and isinstance(nested, Function) and not in_class:
                giving.add(nested.name)
            self.found.returned = returned
        return frozenset(giving)

    def _note_state(self) -> None:
        self.ever |= self.carrier.state

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)
            self._note_state()

    def _statement(self, node: ast.stmt) -> None:
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            handler(self, node)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.carrier.carries(child)

    def _assign(self, node: ast.Assign) -> None:
        carries = self.carrier.carries(node.value)
        for target in node.targets:
            self.carrier.bind(target, carries, node.value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.carrier.bind(node.target, self.carrier.carries(node.value), node.value)

    def _augmented(self, node: ast.AugAssign) -> None:
        self.carrier.add(node.target, self.carrier.carries(node.value))

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self.carrier.forget(target)

    def _return(self, node: ast.Return) -> None:
        self.found.returned |= self.carrier.carries(node.value)
        self._leave()

    def _raise(self, node: ast.Raise) -> None:
        self.carrier.carries(node.exc)
        self._leave()

    def _break(self, node: ast.Break) -> None:
        if self.breaks:
            self.breaks[-1] |= self.carrier.state
        self._leave()

    def _continue(self, node: ast.Continue) -> None:
        if self.continues:
            self.continues[-1] |= self.carrier.state
        self._leave()

    def _leave(self) -> None:
        """Nothing after this point runs; the empty state is neutral when branches join."""
        self._note_state()
        self.carrier.state = set()

    def _if(self, node: ast.If) -> None:
        self.carrier.carries(node.test)
        self._join(lambda: self._block(node.body), lambda: self._block(node.orelse))

    def _match(self, node: ast.Match) -> None:
        self.carrier.carries(node.subject)
        self._join(lambda: None, *(self._branch(case.body) for case in node.cases))

    def _try(self, node: ast.Try) -> None:
        before = set(self.carrier.state)
        self._block(node.body)
        interrupted = before | self.carrier.state
        self._block(node.orelse)
        ends = set(self.carrier.state)
        for handler in node.handlers:
            self.carrier.state = set(interrupted)
            self._block(handler.body)
            ends |= self.carrier.state
        self.carrier.state = ends
        self._block(node.finalbody)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        silent = 0
        for item in node.items:
            carries = self.carrier.carries(item.context_expr)
            if item.optional_vars is not None:
                self.carrier.bind(item.optional_vars, carries)
            silent += is_guard(item.context_expr, self.guards)
        self.carrier.quiet += silent
        self._block(node.body)
        self.carrier.quiet -= silent

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        header = range(node.lineno, (node.iter.end_lineno or node.lineno) + 1)
        made_here = any(line in header for line in self.seeds.lines)

        def next_item() -> None:
            self.carrier.bind(node.target, self.carrier.carries(node.iter) or made_here)

        self._loop(node, next_item)

    def _while(self, node: ast.While) -> None:
        self._loop(node, lambda: self.carrier.carries(node.test))

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, header: Callable[[], object]) -> None:
        self.breaks.append(set())
        self.continues.append(set())
        for _ in range(_MAX_PASSES):
            entry = set(self.carrier.state)
            header()
            self._block(node.body)
            after = entry | self.carrier.state | self.continues[-1]
            self.carrier.state = after
            if after == entry:
                break
        self.continues.pop()
        self._block(node.orelse)
        self.carrier.state |= self.breaks.pop()

    def _class(self, node: ast.ClassDef) -> None:
        self._block(node.body)

    def _function(self, node: Function) -> None:
        """Defining a function runs none of its code; `run` visits it at the end."""

    def _branch(self, body: Sequence[ast.stmt]) -> Callable[[], None]:
        return lambda: self._block(body)

    def _join(self, *branches: Callable[[], None]) -> None:
        before = set(self.carrier.state)
        ends: set[str] = set()
        for branch in branches:
            self.carrier.state = set(before)
            branch()
            ends |= self.carrier.state
        self.carrier.state = ends


_HANDLERS: dict[type[ast.stmt], Callable[..., None]] = {
    ast.Assign: Flow._assign,
    ast.AnnAssign: Flow._annotated,
    ast.AugAssign: Flow._augmented,
    ast.Delete: Flow._delete,
    ast.Return: Flow._return,
    ast.Raise: Flow._raise,
    ast.Break: Flow._break,
    ast.Continue: Flow._continue,
    ast.If: Flow._if,
    ast.Match: Flow._match,
    ast.Try: Flow._try,
    ast.TryStar: Flow._try,
    ast.With: Flow._with,
    ast.AsyncWith: Flow._with,
    ast.For: Flow._for,
    ast.AsyncFor: Flow._for,
    ast.While: Flow._while,
    ast.ClassDef: Flow._class,
    ast.FunctionDef: Flow._function,
    ast.AsyncFunctionDef: Flow._function,
}
