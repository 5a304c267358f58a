"""How a call such as `.detach()` is put behind a stored value, such that it cannot fail on what is no tensor."""

import ast
from collections.abc import Iterator

from headroom.agents.calls import cuts
from headroom.agents.index import Place
from headroom.agents.plays.holders import is_mapping
from headroom.agents.program import Program
from headroom.agents.reaching import reaching
from headroom.agents.syntax import access_path, last_name, own_nodes

Around = tuple[str, str]

_COPIES_ITEMS = frozenset({"extend", "extendleft", "list", "tuple", "set", "deque"})
_CHANGING = frozenset({"update", "pop", "popitem", "setdefault", "clear"})
_COPIES_MAPPING = frozenset({"dict", "OrderedDict"})


def text_around(
    program: Program, place: Place, value: ast.expr, call: str, torch: str
) -> Around | None:
    """The text before and after a stored value that makes it what `call` gives; None where that is not safe.

    Args:
        program: The program.
        place: The scope that stores the value.
        value: The expression that is stored.
        call: `.detach()` or `.detach().cpu()`.
        torch: The name of torch in that file.
    """
    if isinstance(value, ast.Call) and cuts(value, "graph"):
        call = call.removeprefix(".detach()")
    if not call:
        return None
    sorts = program.sorts.of(place, value)
    each = f"value{call} if {torch}.is_tensor(value) else value"
    outer = place.parsed.parents.get(value)
    if _is_unpacked(outer, value) or (sorts == {"dict"} and _may_copy(place, value, outer)):
        return f"{{key: {each} for key, value in ", ".items()}"
    if _copier(outer) in _COPIES_ITEMS and sorts != {"tensor"}:
        return f"[{each} for value in ", "]"
    no_tensor = sorts == {"number"} or sorts & {"dict", "list", "tuple"}
    if no_tensor or is_mapping(place, value) or _copier(outer) in _COPIES_MAPPING:
        return None
    if "number" not in sorts:
        return "", call
    if not isinstance(value, ast.Name | ast.Attribute):
        return None
    # A default, or what `.item()` gave on another way here.
    name = ast.unparse(value)
    opening, closing = ("(", ")") if isinstance(outer, ast.BinOp) else ("", "")
    return opening, f"{call} if {torch}.is_tensor({name}) else {name}{closing}"


def _may_copy(place: Place, value: ast.expr, outer: ast.AST | None) -> bool:
    """Whether a copy of a dictionary serves as well: it is copied in any case, or nobody changes it later."""
    if _copier(outer) in _COPIES_MAPPING:
        return True
    if isinstance(value, ast.Call):
        return last_name(value.func) == "deepcopy"
    return isinstance(value, ast.Name) and _is_settled(place, value)


def needs_torch(around: Around) -> bool:
    """Whether the text uses the name of torch."""
    return ".is_tensor(" in "".join(around)


def _is_unpacked(outer: ast.AST | None, value: ast.expr) -> bool:
    """`{**logs}` and `dict(**logs)`."""
    if isinstance(outer, ast.keyword):
        return outer.arg is None
    if not isinstance(outer, ast.Dict):
        return False
    return any(
        key is None and item is value for key, item in zip(outer.keys, outer.values, strict=True)
    )


def _is_settled(place: Place, value: ast.Name) -> bool:
    """Whether a dictionary is made anew each time round and not changed once it is stored, so that a copy will do."""
    definitions, from_outside = reaching(place, value, value.id)
    loops = place.parsed.loops_around(value)[:1]
    fresh = not from_outside and all(
        item.value is not None and set(loops) <= set(place.parsed.ancestors(item.value))
        for item in definitions
    )
    return fresh and not any(
        line > value.lineno and path == value.id for line, path in _changes(place)
    )


def _changes(place: Place) -> Iterator[tuple[int, str | None]]:
    """Lines where something is put into a container or taken out of it, with its access path."""
    for node in own_nodes(place.scope):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield node.lineno, access_path(node.value)
        elif isinstance(node, ast.Call) and last_name(node.func) in _CHANGING:
            receiver = getattr(node.func, "value", node)
            yield node.lineno, access_path(receiver)


def _copier(outer: ast.AST | None) -> str:
    """The call that copies the items of what it is given."""
    return last_name(outer.func) if isinstance(outer, ast.Call) else ""
