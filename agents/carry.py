"""Which expressions may hold a tensor's graph, or its device memory, given the names that do.

A may-analysis: when in doubt, an expression carries.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from headroom.agents.calls import (
    TENSOR_METHODS,
    Mode,
    arguments,
    binds,
    cuts,
    cuts_attribute,
    hands_on,
    is_alias_method,
    is_backward,
    may_alias,
)
from headroom.agents.syntax import access_path, covers, last_name, parameters

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
    """Something that carries into a call of `callee`: by position, by keyword, or unpacked (neither of them).

    The position is -1 where the callee itself carries: a bound method, a partial, a closure.
    """

    call: ast.Call
    callee: ast.expr
    position: int | None = None
    keyword: str | None = None

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Sort key: the order of the text."""
        position = -2 if self.position is None else self.position
        return (self.call.lineno, self.call.col_offset, position, self.keyword or "")


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

    def __init__(
        self,
        seeds: Seeds,
        mode: Mode,
        found: Found,
        local: frozenset[str],
        imports: Mapping[str, str],
    ) -> None:
        self.imports = imports
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
        result = self._evaluate(node) or self._is_seed(node)
        if result:
            self.found.tainted.add(node)
        return result

    def _is_seed(self, node: ast.AST) -> bool:
        """A seed carries, unless it is a call whose result cannot: `model(x).item()` covers the line, too."""
        if node not in self.seeds.nodes:
            return False
        return not (isinstance(node, ast.Call) and cuts(node, self.mode))

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
        if isinstance(node, ast.Lambda):
            return self._lambda(node)
        return not isinstance(node, ast.Constant) and self._composite(node)

    def _lambda(self, node: ast.Lambda) -> bool:
        """A function carries when what it returns does: whoever calls it gets that."""
        before = set(self.state)
        self.state -= set(parameters(node))
        result = self.carries(node.body)
        self.state = before
        return result

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
        if inner and node.attr == "backward":
            # Whoever this bound method is handed to will call it.
            self.found.backward = True
        if cuts_attribute(node.attr, self.mode):
            return False
        return inner or self._keeps(node)

    def _named_attribute(self, call: ast.Call) -> bool:
        """`getattr(module, "aux", 0.0)`: an attribute like any other, or the default."""
        name = call.args[1]
        # What is no constant may be any name.
        plain = name.value if isinstance(name, ast.Constant) else None
        seeded = bool(self.seeds.attributes) and plain in (None, *self.seeds.attributes)
        others = (call.args[0], *call.args[2:])
        return seeded or any(argument in self.found.tainted for argument in others)

    def _keeps(self, node: ast.expr) -> bool:
        """Whether something was put into this very attribute."""
        if not isinstance(node, ast.Attribute):
            return False
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        seeded = node.attr in self.seeds.attributes and not (own and self.seeds.foreign)
        return seeded or access_path(node) in self.state

    def _call(self, call: ast.Call) -> bool:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        held = self.carries(receiver)
        itself = self._carries_callee(call.func)
        given = [self.carries(argument) for argument in arguments(call)]
        if is_backward(call, self.imports) and (held or any(given)):
            self.found.backward = True
        self._note_passed(call, itself)
        self._mutate(call, receiver, any(given))
        if _reads_attribute(call):
            return self._named_attribute(call)
        if cuts(call, self.mode) or (receiver is not None and last_name(call.func) in _RETURN_NONE):
            return False
        if hands_on(call):
            return held or any(given)
        if itself or last_name(call.func) in self.seeds.callees or self._on_line(call):
            return not self._silent()
        if self.mode == "memory":
            return (any(given) and may_alias(call)) or (held and is_alias_method(call))
        return not self._silent() and (held or any(given))

    def _carries_callee(self, callee: ast.expr) -> bool:
        """Whether what is called carries: a closure, a bound method, a function in an attribute.

        `x.sum()` is a method, though somebody else has a tensor in an attribute `sum`.
        """
        if isinstance(callee, ast.Attribute):
            return callee.attr not in TENSOR_METHODS and self._keeps(callee)
        return self.carries(callee)

    def _mutate(self, call: ast.Call, receiver: ast.expr | None, given: bool) -> None:
        """`outs.append(out)`, `total.add_(loss)` and `heappush(heap, loss)` put arguments into something."""
        name = last_name(call.func)
        in_place = name.endswith("_") and not name.endswith("__")
        if receiver is not None and (name in COLLECTING or in_place):
            self.add(receiver, given)
        elif receiver is not None and name == "clear":
            self.forget(receiver)
        elif name in {"setattr", "__setattr__"}:
            self._set_attribute(call, receiver)
        elif name == "heappush" and call.args:
            self.add(call.args[0], given)

    def _set_attribute(self, call: ast.Call, receiver: ast.expr | None) -> None:
        """`setattr(module, "aux", loss)` and `module.__setattr__("aux", loss)` are assignments."""
        words = [*([receiver] if receiver is not None else []), *call.args]
        if len(words) < 3:
            return
        holder, name, value = words[-3:]
        carries = value in self.found.tainted
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            self.add(ast.Attribute(holder, name.value, ast.Store()), carries)
            return
        self.add(holder, carries)
        if carries:
            # Whatever its name is, anybody may read it from the object: as if it had gone to a callee out of sight.
            self.found.passed.add(Passed(call, ast.Set([]), 0))

    def _note_passed(self, call: ast.Call, itself: bool) -> None:
        first = 1 if binds(call) else 0
        callee = call.args[0] if first else call.func
        if itself:
            self.found.passed.add(Passed(call, call.func, -1))
        for at, argument in enumerate(call.args[first:]):
            if argument in self.found.tainted:
                position = None if isinstance(argument, ast.Starred) else at
                self.found.passed.add(Passed(call, callee, position))
        for keyword in call.keywords:
            if keyword.value in self.found.tainted:
                self.found.passed.add(Passed(call, callee, None, keyword.arg))

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


def _reads_attribute(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "getattr" and len(call.args) >= 2


def _is_text(node: ast.expr) -> bool:
    """The left side of `"%.3f" % loss`."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
