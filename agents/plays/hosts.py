"""Whether what is collected may live on the host: nothing writes into it later, and nothing on the device meets it."""

import ast
from collections.abc import Iterable, Iterator, Sequence

from headroom.agents.calls import arguments, cuts, hands_on
from headroom.agents.carry import Seeds
from headroom.agents.flow import Flow
from headroom.agents.imports import full_path, imported_names
from headroom.agents.index import Place
from headroom.agents.plays.holders import Holder
from headroom.agents.program import Program
from headroom.agents.reaching import reaching
from headroom.agents.syntax import access_path, last_name, own_nodes, parameters

# Methods in place that change no element.
_HARMLESS = frozenset({"requires_grad_", "detach_", "share_memory_"})
# What copies from the host to wherever it is needed.
_COPYING = frozenset({"load_state_dict", "copy_", "isinstance", "is_tensor"})
_LIVE_WEIGHTS = frozenset(
    {"state_dict", "parameters", "named_parameters", "buffers", "named_buffers"}
)
_NEW_MEMORY = frozenset({"clone", "deepcopy"})


def may_live_on_host(program: Program, holders: Sequence[Holder]) -> bool:
    """Whether host copies of what these statements store, moved all together, would serve as well.

    A host copy no longer follows what is written into the original, and torch computes on one device at a time.
    """
    if any(_is_written_later(program, holder) for holder in holders):
        return False
    # Where it is stored, the value itself is the original still.
    stored = {value for holder in holders for value in holder.values}
    for place, moved in _visited(program, holders).items():
        nodes = list(own_nodes(place.scope))
        paths = {access_path(node) for node in moved - stored} - {None}
        if any(_adds_device(program, place, node, moved, paths) for node in nodes):
            return False
        if any(_meets_device(program, place, node, moved) for node in nodes):
            return False
    return True


def _visited(program: Program, holders: Iterable[Holder]) -> dict[Place, set[ast.AST]]:
    """Everything computed from the stored values, by scope."""
    found: dict[Place, set[ast.AST]] = {}
    for holder in holders:
        seeds = Seeds(nodes=frozenset(holder.values))
        for place, met in program.destination(holder.place, seeds, "value").visited.items():
            found.setdefault(place, set()).update(met.tainted)
    return found


def _adds_device(
    program: Program, place: Place, node: ast.AST, moved: set[ast.AST], paths: set[str | None]
) -> bool:
    """`total += outs`, with one of them on the device."""
    if not isinstance(node, ast.AugAssign):
        return False
    if node.value in moved:
        return "tensor" in program.sorts.of(place, node.target)
    return access_path(node.target) in paths and not _is_no_tensor(program, place, node.value)


def _meets_device(program: Program, place: Place, node: ast.AST, moved: set[ast.AST]) -> bool:
    """Whether an operation takes something moved together with what may still be on the device."""
    if isinstance(node, ast.BinOp):
        return _mixes(program, place, [node.left, node.right], moved)
    if isinstance(node, ast.Compare):
        return _mixes(program, place, [node.left, *node.comparators], moved)
    if isinstance(node, ast.Subscript):
        inside = [part for part in ast.walk(node.slice) if isinstance(part, ast.expr)]
        return node.value in moved and any(
            part not in moved and "tensor" in program.sorts.of(place, part) for part in inside
        )
    return isinstance(node, ast.Call) and _call_meets_device(program, place, node, moved)


def _call_meets_device(program: Program, place: Place, call: ast.Call, moved: set[ast.AST]) -> bool:
    given = arguments(call)
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if (
        hands_on(call)
        or (last_name(call.func) in _COPYING and not _takes_over(call))
        or not (receiver in moved or any(part in moved for part in given))
    ):
        return False
    callee = program.callees.of(place, call)
    if _takes_over(call) or (receiver not in moved and (callee.module or not callee.known)):
        return True
    path = full_path(call.func, imported_names(place.parsed.tree)) or ""
    if receiver in moved or path.startswith("torch."):
        return _mixes(program, place, [*([receiver] if receiver in moved else []), *given], moved)
    return receiver is not None and "tensor" in program.sorts.of(place, receiver)


def _takes_over(call: ast.Call) -> bool:
    """`load_state_dict(weights, assign=True)` keeps what it is given, wherever that is."""
    return any(keyword.arg == "assign" for keyword in call.keywords)


def _mixes(
    program: Program, place: Place, operands: Sequence[ast.AST | None], moved: set[ast.AST]
) -> bool:
    flat = [part for operand in operands for part in _elements(operand)]
    if not any(part in moved for part in flat):
        return False
    return any(part not in moved and not _is_no_tensor(program, place, part) for part in flat)


def _elements(node: ast.AST | None) -> Iterator[ast.expr]:
    """The operands behind a display or a starred argument."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        for part in node.elts:
            yield from _elements(part)
    elif isinstance(node, ast.Starred):
        yield from _elements(node.value)
    elif isinstance(node, ast.expr):
        yield node


def _is_no_tensor(program: Program, place: Place, node: ast.expr) -> bool:
    """Whether an operand is surely a number, a name or a setting, or on the host."""
    if isinstance(node, ast.Lambda | ast.GeneratorExp):
        return True
    if isinstance(node, ast.Call) and cuts(node, "value"):
        return True
    if (full_path(node, imported_names(place.parsed.tree)) or "").startswith("torch."):
        return True  # `torch.float32`
    if isinstance(node, ast.Attribute) and node.attr in {"device", "dtype", "shape", "ndim"}:
        return True
    if isinstance(node, ast.Subscript):
        return _is_no_tensor(program, place, node.value)
    return program.sorts.of(place, node) <= {"number"}


def _is_written_later(program: Program, holder: Holder) -> bool:
    """Whether the original of a stored value may be changed in place once it has been stored."""
    place = holder.place
    if _holds_live_weights(holder):
        return True
    names = {
        access_path(node): node
        for value in holder.values
        for node in ast.walk(value)
        if isinstance(node, ast.Name | ast.Attribute) and access_path(node)
    }
    for path, node in names.items():
        if path is not None and _name_is_written(program, holder, path, node):
            return True
    values = [value for value in holder.values if isinstance(value, ast.Name)]
    from_caller = any(value.id in parameters(place.scope) for value in values)
    return from_caller and _has_modules_in_place(program)


def _holds_live_weights(holder: Holder) -> bool:
    """Whether weights are stored uncopied, so that every update of the optimizer shows in them."""
    calls = [node for node in ast.walk(holder.node) if isinstance(node, ast.Call)]
    if not any(last_name(call.func) in _LIVE_WEIGHTS for call in calls):
        return False
    return not all(
        any(
            isinstance(node, ast.Call) and last_name(node.func) in _NEW_MEMORY
            for node in ast.walk(value)
        )
        for value in holder.values
    )


def _name_is_written(program: Program, holder: Holder, path: str, node: ast.expr) -> bool:
    place = holder.place
    definitions, from_outside = reaching(place, node, path)
    seeds = Seeds(
        nodes=frozenset(item.value for item in definitions if item.value is not None) | {node},
        parameters=frozenset({path}) & frozenset(parameters(place.scope)),
    )
    tainted = Flow(place.parsed, place.scope, seeds, "memory").run().tainted
    if not tainted.intersection(holder.values):
        return False  # what is stored is new memory
    aliases = {access_path(item) for item in tainted} | {path}
    loops = place.parsed.loops_around(holder.node)
    older = from_outside or any(
        item.value is None or not set(loops).intersection(place.parsed.ancestors(item.value))
        for item in definitions
    )
    end = holder.node.end_lineno or holder.node.lineno
    for write, target in _writes(place):
        if not any(_is_part(target, alias) for alias in aliases if alias):
            continue
        shared = older and set(loops).intersection(place.parsed.loops_around(write))
        if write.lineno > end or shared:
            return True
    return False


def _is_part(path: str, alias: str) -> bool:
    return path == alias or path.startswith(f"{alias}.")


def _writes(place: Place) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Writes in place, each with the access path that is written."""
    for node in own_nodes(place.scope):
        targets: list[ast.AST] = []
        if isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Assign):
            targets = [target for target in node.targets if isinstance(target, ast.Subscript)]
        elif isinstance(node, ast.Call):
            targets = _written_by(node)
        for target in targets:
            path = access_path(target)
            if path is not None and isinstance(node, ast.stmt | ast.expr):
                yield node, path


def _written_by(call: ast.Call) -> list[ast.AST]:
    name = last_name(call.func)
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    found: list[ast.AST] = [named["out"]] if "out" in named else []
    in_place = name.endswith("_") and not name.endswith("__") and name not in _HARMLESS
    flag = named.get("inplace")
    if in_place or (isinstance(flag, ast.Constant) and flag.value is True):
        found += call.args[:1]
        found += [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return found


def _has_modules_in_place(program: Program) -> bool:
    """Whether modules of the program write into what they are given: `nn.ReLU(inplace=True)`."""
    return any(
        isinstance(node, ast.keyword)
        and node.arg == "inplace"
        and not (isinstance(node.value, ast.Constant) and node.value.value is False)
        for parsed in program.files.values()
        for node in parsed.parents
    )
