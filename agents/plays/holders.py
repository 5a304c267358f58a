"""Statements that may hold a tensor beyond its iteration: `losses.append(loss)`, `total += loss`, `self.last = out`.

Found by syntax among the expressions that a flow from the growing stacks has reached; which of them is the cause is
for a trial to tell.
"""

import ast
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Literal

from headroom.agents.calls import arguments
from headroom.agents.carry import COLLECTING
from headroom.agents.index import Place
from headroom.agents.syntax import (
    access_path,
    last_name,
    local_names,
    own_nodes,
    parameters,
)

Kind = Literal["collects", "accumulates", "comprehension", "attribute", "returned"]

# Attributes that autograd and modules manage themselves.
_MANAGED = frozenset({"grad", "data", "requires_grad", "training"})
# Values that an empty container or a running total starts from.
_FRESH_CALLS = frozenset(
    {"list", "dict", "set", "deque", "defaultdict", "OrderedDict", "zeros", "tensor"}
)
# What people ask of a dictionary or of a model's output object, and never of a tensor.
_FIELDS = frozenset({"items", "keys", "loss", "logits", "last_hidden_state", "hidden_states"})
# Modules whose functions bear the names of methods that collect: `torch.add`.
_NAMESPACES = frozenset({"torch", "F", "functional", "nn", "np", "numpy"})
# Functions that build one tensor out of a sequence of them.
_JOINING = frozenset({"cat", "concat", "stack", "vstack", "hstack"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A statement that holds `values`, the tainted expressions to cut, in `receiver`.

    A `returned` one holds nothing itself: it makes the container that a caller then keeps.
    """

    place: Place
    node: ast.stmt | ast.expr
    kind: Kind
    receiver: str | None
    values: tuple[ast.expr, ...]

    @property
    def line(self) -> int:
        """Where the statement starts."""
        return self.node.lineno


def find_holders(
    place: Place, tainted: Container[ast.AST], *, inside_call: bool
) -> Iterator[Holder]:
    """The holders in a scope, in source order.

    `inside_call`: the scope runs as part of an outermost module call, so what is local to it ends with the call.
    """
    leaves = _Leaves(tainted)
    for node in own_nodes(place.scope):
        found = _holder(place, node, leaves)
        if found is None or not found.values:
            continue
        if not _ends_with_iteration(found, inside_call=inside_call):
            yield found


class _Leaves:
    """The parts of a stored expression that a method call such as `.detach()` belongs behind."""

    def __init__(self, tainted: Container[ast.AST]) -> None:
        self.tainted = tainted

    def of(self, node: ast.AST | None, skip: str | None = None) -> tuple[ast.expr, ...]:
        """The tainted leaves of an expression, without those that read `skip`, the accumulator itself."""
        if not isinstance(node, ast.expr) or node not in self.tainted:
            return ()
        if skip is not None and access_path(node) == skip:
            return ()
        parts = self._parts(node, skip)
        if parts is None:
            return (node,)
        return tuple(leaf for part in parts for leaf in self.of(part, skip))

    def _parts(self, node: ast.expr, skip: str | None) -> list[ast.expr] | None:
        """The operands to descend into; None when the expression itself is one tensor."""
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return list(node.elts)
        if isinstance(node, ast.Dict):
            return list(node.values)
        if isinstance(node, ast.DictComp):
            return [node.value]
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            return [node.elt]
        if isinstance(node, ast.IfExp):
            # `x.detach() if torch.is_tensor(x) else x`: what is no tensor has no graph.
            checked = isinstance(node.test, ast.Call) and last_name(node.test.func) == "is_tensor"
            return [node.body] if checked else [node.body, node.orelse]
        if isinstance(node, ast.Starred):
            return []
        if isinstance(node, ast.BinOp):
            joins = skip is not None and _reads(node, skip)
            listed = any(isinstance(side, ast.List | ast.Tuple) for side in (node.left, node.right))
            return [node.left, node.right] if joins or listed else None
        if isinstance(node, ast.Call):
            return self._arguments(node)
        return None

    def _arguments(self, call: ast.Call) -> list[ast.expr] | None:
        name = last_name(call.func)
        values = arguments(call)
        # A class makes an object, and `dict(...)` a container: neither is a tensor.
        makes_object = name[:1].isupper() or name in {
            "dict",
            "list",
            "tuple",
            "set",
            "deque",
            "zip",
        }
        return values if makes_object else None


def _reads(node: ast.AST, path: str) -> bool:
    return any(access_path(child) == path for child in ast.walk(node))


def _holder(place: Place, node: ast.AST, leaves: _Leaves) -> Holder | None:
    held: _Held | None = None
    if isinstance(node, ast.Call):
        held = _from_call(node, leaves)
    elif isinstance(node, ast.AugAssign):
        held = "accumulates", node.target, leaves.of(node.value)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        held = _from_assignment(node, leaves)
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        held = _from_comprehension(place, node, leaves)
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Dict | ast.Tuple | ast.List):
        held = "returned", None, leaves.of(node.value)
    if held is None or not isinstance(node, ast.stmt | ast.expr):
        return None
    kind, receiver, found = held
    keeps = isinstance(node, ast.Call)
    values = tuple(
        value
        for value in found
        if keeps or _is_copied(place, value) or not is_mapping(place, value)
    )
    path = None if receiver is None else access_path(receiver)
    return Holder(place=place, node=node, kind=kind, receiver=path, values=values)


def _is_copied(place: Place, value: ast.expr) -> bool:
    """Whether a mapping's items go into a new one: `dict(logs)`, `Record(**logs)`, `{**logs}`."""
    outer = place.parsed.parents.get(value)
    if isinstance(outer, ast.keyword):
        return outer.arg is None
    if isinstance(outer, ast.Dict):
        return any(
            item is value and key is None
            for key, item in zip(outer.keys, outer.values, strict=True)
        )
    return isinstance(outer, ast.Call) and last_name(outer.func) in {"dict", "OrderedDict"}


def is_mapping(place: Place, value: ast.expr) -> bool:
    """Whether the scope reads the value by string keys or named fields, so that it is no tensor."""
    path = access_path(value)
    if path is None or isinstance(value, ast.Subscript):
        return False
    return any(_asks_for_part(node, path) for node in own_nodes(place.scope))


def _asks_for_part(node: ast.AST, path: str) -> bool:
    if isinstance(node, ast.Subscript) and access_path(node.value) == path:
        return isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    asks = isinstance(node, ast.Attribute) and node.attr in _FIELDS
    return asks and access_path(node) == f"{path}.{getattr(node, 'attr', '')}"


_Held = tuple[Kind, ast.AST | None, tuple[ast.expr, ...]]


def _from_call(call: ast.Call, leaves: _Leaves) -> _Held | None:
    name = last_name(call.func)
    if isinstance(call.func, ast.Attribute) and name in COLLECTING:
        receiver = call.func.value
        if access_path(receiver) in _NAMESPACES:
            return None
        return (
            "collects",
            receiver,
            tuple(leaf for part in arguments(call) for leaf in leaves.of(part)),
        )
    if name == "heappush" and len(call.args) == 2:
        return "collects", call.args[0], leaves.of(call.args[1])
    return None


def _from_assignment(node: ast.Assign | ast.AnnAssign, leaves: _Leaves) -> _Held | None:
    target = node.targets[-1] if isinstance(node, ast.Assign) else node.target
    value, path = node.value, access_path(target)
    if value is None or path is None:
        return None
    if isinstance(target, ast.Subscript):
        return "collects", target, leaves.of(value)
    if _reads(value, path):
        return "accumulates", target, _accumulated(value, path, leaves)
    if (
        isinstance(target, ast.Attribute)
        and target.attr not in _MANAGED
        and not path.startswith("ctx.")
    ):
        return "attribute", target, leaves.of(value)
    return None


def _from_comprehension(
    place: Place,
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
    leaves: _Leaves,
) -> _Held | None:
    """A comprehension that computes what it collects; one that only goes through a container holds nothing new."""
    values = tuple(leaf for leaf in leaves.of(node) if not _only_reads(leaf))
    statement = place.parsed.statement_of(node)
    target = statement.targets[-1] if isinstance(statement, ast.Assign) else None
    return "comprehension", target, values


def _only_reads(leaf: ast.expr) -> bool:
    """`x`, `row.loss`, `row["loss"]`: something that is there already."""
    if isinstance(leaf, ast.Subscript):
        return isinstance(leaf.slice, ast.Constant) and access_path(leaf) is not None
    return isinstance(leaf, ast.Name | ast.Attribute)


def _accumulated(value: ast.expr, path: str, leaves: _Leaves) -> tuple[ast.expr, ...]:
    """`loss` in `total = total + loss`, `out` in `outs = torch.cat([outs, out])`; nothing when nothing is joined."""
    if isinstance(value, ast.IfExp):
        branches = (value.body, value.orelse)
        return tuple(leaf for branch in branches for leaf in _accumulated(branch, path, leaves))
    if isinstance(value, ast.Call):
        joins = last_name(value.func) in _JOINING
        parts = [element for part in arguments(value) for element in getattr(part, "elts", [part])]
        return tuple(leaf for part in parts for leaf in leaves.of(part, skip=path)) if joins else ()
    return leaves.of(value, skip=path)


def _ends_with_iteration(holder: Holder, *, inside_call: bool) -> bool:
    """Whether the receiver is made anew each time round, so that nothing piles up in it."""
    scope, receiver = holder.place.scope, holder.receiver
    if receiver is None:
        return inside_call
    # A list that was passed in stays with the caller; a parameter that is assigned anew is a local name.
    passed_in = receiver in parameters(scope) and holder.kind == "collects"
    outlives = receiver not in local_names(scope) or passed_in
    if "." in receiver or (outlives and not isinstance(scope, ast.Module)):
        return False
    if inside_call or holder.kind == "comprehension":
        return inside_call
    loops = holder.place.parsed.loops_around(holder.node)
    return not loops or any(_makes_fresh(child, receiver) for child in loops[0].body)


def _makes_fresh(node: ast.stmt, receiver: str) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if receiver not in {access_path(target) for target in targets if isinstance(target, ast.Name)}:
        return False
    value = node.value
    if isinstance(value, ast.List | ast.Set):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.values
    is_call = isinstance(value, ast.Call) and last_name(value.func) in _FRESH_CALLS
    return is_call or isinstance(value, ast.Constant)
