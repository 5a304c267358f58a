"""Which expressions may hold a tensor's graph, or its device memory, given the names that do.

A may-analysis: when in doubt, an expression carries.
"""

import ast
from dataclasses import dataclass, field

from headroom.agents.calls import (
    Mode,
    arguments,
    cuts,
    cuts_attribute,
    hands_on,
    is_alias_method,
    is_backward,
    may_alias,
)
from headroom.agents.syntax import access_path, covers, last_name

_COMPUTING = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript)
_RETURN_NONE = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "put_nowait"})
# Methods that put their arguments into the receiver.
COLLECTING = _RETURN_NONE | {"add", "put", "push", "update", "setdefault", "store"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """Where a flow starts.

    `nodes` are expressions that carry by themselves; `lines` make every computation on these lines carry; `names`
    are free variables, `captured` local ones that a closure puts something into, `attributes` names read from any
    object (but not from `self` where `foreign`), `callees` functions whose result carries.
    """

    nodes: frozenset[ast.AST] = frozenset()
    lines: frozenset[int] = frozenset()
    parameters: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    captured: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    foreign: bool = False
    callees: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Passed:
    """An argument that carries into a call: by position, or by keyword."""

    callee: str
    position: int | None
    keyword: str | None


@dataclass(slots=True)
class Found:
    """What a flow met."""

    backward: bool = False
    returned: bool = False
    attributes: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)
    passed: set[Passed] = field(default_factory=set)
    tainted: set[ast.AST] = field(default_factory=set)


class Carrier:
    """Evaluates expressions against `state`, the access paths that carry at this point of the program."""

    def __init__(self, seeds: Seeds, mode: Mode, found: Found, local: frozenset[str]) -> None:
        self.seeds = seeds
        self.mode = mode
        self.found = found
        self.local = local
        self.state: set[str] = set()
        self.quiet = 0

    def carries(self, node: ast.AST | None) -> bool:
        """Whether the value of an expression carries; also notes what its calls do."""
        if node is None:
            return False
        result = self._evaluate(node) or node in self.seeds.nodes
        if result:
            self.found.tainted.add(node)
        return result

    def bind(self, target: ast.expr, carries: bool, value: ast.expr | None = None) -> None:
        """Assign to a target; names and attributes forget what they held, containers do not."""
        if isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            paired = len(values) == len(target.elts) and not any(
                isinstance(part, ast.Starred) for part in (*values, *target.elts)
            )
            for at, part in enumerate(target.elts):
                self.bind(part, values[at] in self.found.tainted if paired else carries)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, carries)
        elif isinstance(target, ast.Subscript):
            self.carries(target.slice)
            self.add(target, carries)
        else:
            self.forget(target)
            self.add(target, carries)

    def add(self, target: ast.AST, carries: bool) -> None:
        """Let a target hold something that carries, beside what it holds already."""
        path = access_path(target)
        if not carries or path is None:
            return
        self.state.add(path)
        root, _, rest = path.partition(".")
        if rest:
            self.found.attributes.add(path)
        elif root not in self.local:
            self.found.exported.add(root)

    def forget(self, target: ast.AST) -> None:
        """Drop what a name or attribute held."""
        path = access_path(target)
        if path is not None and not isinstance(target, ast.Subscript):
            self.state = {
                held for held in self.state if held != path and not held.startswith(f"{path}.")
            }

    def _evaluate(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Name):
            free = node.id in self.seeds.names and node.id not in self.local
            return free or node.id in self.state or node.id in self.seeds.captured
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            parts = [self.carries(node.value), self.carries(node.slice)]
            advanced = not isinstance(node.slice, ast.Constant | ast.Slice)
            return parts[0] or (advanced and self._on_line(node))
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            return self._comprehension(node)
        if isinstance(node, ast.NamedExpr):
            result = self.carries(node.value)
            self.bind(node.target, result)
            return result
        if isinstance(node, ast.Lambda | ast.Constant):
            return False
        return self._composite(node)

    def _composite(self, node: ast.AST) -> bool:
        """Displays, operators and whatever else holds expressions."""
        parts = [
            self.carries(child)
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.expr)
        ]
        if isinstance(node, ast.JoinedStr | ast.FormattedValue):
            return False
        if isinstance(node, ast.Yield | ast.YieldFrom):
            self.found.returned |= any(parts)
            return False
        if isinstance(node, ast.IfExp):
            return any(parts[1:])
        if isinstance(node, ast.Compare) and self.mode == "graph":
            return False
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare):
            if isinstance(node, ast.BinOp) and _is_text(node.left):
                return False
            # What is computed is new memory, with a stack and a line of its own.
            carried = self.mode != "memory" and any(parts)
            return not self._silent() and (carried or self._on_line(node))
        return any(parts)

    def _attribute(self, node: ast.Attribute) -> bool:
        inner = self.carries(node.value)
        if cuts_attribute(node.attr, self.mode):
            return False
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        seeded = node.attr in self.seeds.attributes and not (own and self.seeds.foreign)
        return inner or seeded or access_path(node) in self.state

    def _call(self, call: ast.Call) -> bool:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        held = self.carries(receiver)
        given = [self.carries(argument) for argument in arguments(call)]
        if is_backward(call) and (held or any(given)):
            self.found.backward = True
        self._note_passed(call)
        self._mutate(call, receiver, any(given))
        if cuts(call, self.mode) or (receiver is not None and last_name(call.func) in _RETURN_NONE):
            return False
        if hands_on(call):
            return held or any(given)
        if last_name(call.func) in self.seeds.callees or self._on_line(call):
            return not self._silent()
        if self.mode == "memory":
            return (any(given) and may_alias(call)) or (held and is_alias_method(call))
        return not self._silent() and (held or any(given))

    def _mutate(self, call: ast.Call, receiver: ast.expr | None, given: bool) -> None:
        """`outs.append(out)`, `total.add_(loss)` and `heappush(heap, loss)` put arguments into something."""
        name = last_name(call.func)
        in_place = name.endswith("_") and not name.endswith("__")
        if receiver is not None and (name in COLLECTING or in_place):
            self.add(receiver, given)
        elif receiver is not None and name == "clear":
            self.forget(receiver)
        elif name in {"heappush", "setattr"} and call.args:
            self.add(call.args[0], given)

    def _note_passed(self, call: ast.Call) -> None:
        name = last_name(call.func)
        for at, argument in enumerate(call.args):
            if argument in self.found.tainted:
                self.found.passed.add(Passed(name, at, None))
        for keyword in call.keywords:
            if keyword.value in self.found.tainted:
                self.found.passed.add(Passed(name, None, keyword.arg))

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> bool:
        before = set(self.state)
        for generator in node.generators:
            self.bind(generator.target, self.carries(generator.iter))
            for condition in generator.ifs:
                self.carries(condition)
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        results = [self.carries(element) for element in elements]
        self.state = before
        return any(results)

    def _silent(self) -> bool:
        """Whether computing here records no graph."""
        return self.quiet > 0 and self.mode == "graph"

    def _on_line(self, node: ast.AST) -> bool:
        return isinstance(node, _COMPUTING) and any(covers(node, line) for line in self.seeds.lines)


def _is_text(node: ast.expr) -> bool:
    """The left side of `"%.3f" % loss`."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
