"""Where to turn gradients off around an evaluation: the function, the loop or the statement that may carry the guard.

The guard has to contain the call, and nothing whose gradients anybody needs.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from headroom.agents.calls import asks_for_gradients
from headroom.agents.carry import Seeds
from headroom.agents.index import Place
from headroom.agents.program import Program, calls_on
from headroom.agents.rewrite import decorate, torch_name, wrap, wrap_expression
from headroom.agents.syntax import (
    Function,
    Loop,
    ParsedFile,
    Scope,
    access_path,
    contains_await,
    contains_yield,
    first_line,
    is_generator,
    last_name,
    own_nodes,
)
from headroom.agents.text import Change

# `with` statements that say nothing about gradients; a guard may stand outside them. Inside any other, because what
# bears the name of a guard may turn gradients on again.
_NEUTRAL = frozenset(
    {
        "autocast",
        "open",
        "tqdm",
        "trange",
        "device",
        "stream",
        "record_function",
        "profile",
        "suppress",
    }
    | {
        "nullcontext",
        "sdpa_kernel",
        "Progress",
        "Pool",
        "ThreadPoolExecutor",
        "SummaryWriter",
        "socket",
    }
)
# Decorators that read the function's source, and so would see a wrapper instead.
_OPAQUE_DECORATORS = frozenset({"script", "script_method", "njit", "jit", "overload"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The changes that turn gradients off, and what they are put around."""

    parsed: ParsedFile
    changes: tuple[Change, ...]
    what: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A line that runs an evaluation, and how sure that is without looking at the program's text.

    `proven`: calls went by, training went on, and no gradient ever came back. `eval_mode`: the module was in eval mode.
    """

    parsed: ParsedFile
    line: int
    function: str
    proven: bool
    eval_mode: bool


class MayTrain(Exception):
    """The call's result may reach a backward pass, so that no place for a guard is right."""


def find_guard(program: Program, site: Site) -> Guard | None:
    """The widest guard that is safe for a call site; None when there is none.

    Raises:
        MayTrain: The result of the call flows into a backward pass, or nothing shows where it goes.
    """
    scope = site.parsed.scope_at(site.line, site.function)
    place = Place(site.parsed, scope)
    calls = calls_on(own_nodes(scope), site.line)
    output = program.destination(place, Seeds(nodes=calls), stop_at_backward=True)
    sure = site.proven
    if output.backward or (not sure and (output.escaped or not calls)):
        raise MayTrain
    if isinstance(scope, ast.Lambda):
        return _guard_lambda(program, site, scope)
    if _in_lazy_generator(site.parsed, calls):
        return None
    for region in _regions(program, site, scope, calls):
        narrow = not isinstance(region, Function | Loop)
        if narrow and not (sure or site.eval_mode) and program.trains(site.parsed, scope):
            continue
        if _is_safe(program, place, region, sure):
            guard = (
                _guard_function(site, region)
                if isinstance(region, Function)
                else _guard_block(site, region)
            )
            if guard is not None:
                return guard
    return None


def _regions(
    program: Program, site: Site, scope: Scope, calls: frozenset[ast.AST]
) -> Iterator[Function | ast.stmt]:
    """Places for a guard, the best first: function, outer to inner loops, other blocks, the statement."""
    # The last call is the innermost one, should a loop and its body share the line.
    last = max(calls, key=_position, default=None)
    found = [] if last is None else [site.parsed.statement_of(last)]
    found += site.parsed.statements_at(site.line, scope)
    statement = next((node for node in found if node is not None), None)
    if statement is None:
        return
    around: list[ast.stmt] = [statement]
    for outer in site.parsed.ancestors(statement):
        if outer is scope or _is_barrier(outer):
            if isinstance(outer, Function) and outer is scope:
                yield outer
            break
        if isinstance(outer, ast.stmt) and not isinstance(outer, ast.ClassDef):
            around.append(outer)
    around.reverse()
    yield from (node for node in around if isinstance(node, Loop))
    yield from (node for node in around if not isinstance(node, Loop))


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _is_barrier(node: ast.AST) -> bool:
    if not isinstance(node, ast.With | ast.AsyncWith):
        return False
    names = {
        last_name(item.context_expr.func)
        for item in node.items
        if isinstance(item.context_expr, ast.Call)
    }
    return len(names) < len(node.items) or not names <= _NEUTRAL


def _is_safe(program: Program, place: Place, region: Function | ast.stmt, sure: bool) -> bool:
    """Whether nothing that runs in the region, and no value that leaves it, needs a gradient."""
    # A guard goes under the other decorators of a function, so what those do about gradients does not matter.
    body = region.body if isinstance(region, Function) else [region]
    asks = any(asks_for_gradients(node) for part in body for node in ast.walk(part))
    if asks or program.trains(place.parsed, region):
        return False
    if program.hides_training(place.parsed, region, proven=sure):
        return False
    span = range(first_line(region), (region.end_lineno or region.lineno) + 1)
    if any(path == place.parsed.path and line in span for path, line in program.reached):
        return False
    inside = list(own_nodes(region))
    if contains_await(inside) and program.trains_in_coroutines:
        return False
    if not isinstance(region, Function) and contains_yield(inside):
        # The consumer of a generator would run under the guard, too.
        return False
    computed = frozenset(node for node in inside if isinstance(node, ast.Call | ast.BinOp))
    leaving = program.destination(place, Seeds(nodes=computed), stop_at_backward=True)
    return not leaving.backward and (sure or not leaving.escaped)


def _in_lazy_generator(parsed: ParsedFile, calls: frozenset[ast.AST]) -> bool:
    """Whether the call runs in a generator expression that somebody else consumes, later."""
    for call in calls:
        for outer in parsed.ancestors(call):
            if isinstance(outer, ast.stmt):
                break
            if isinstance(outer, ast.GeneratorExp):
                return not isinstance(parsed.parents[outer], ast.Call)
    return False


def _guard_function(site: Site, function: Function) -> Guard | None:
    names = {
        last_name(node.func if isinstance(node, ast.Call) else node)
        for node in function.decorator_list
    }
    paths = {access_path(node) for node in function.decorator_list}
    if names & _OPAQUE_DECORATORS or "jit.script" in paths:
        return None
    if isinstance(function, ast.AsyncFunctionDef):
        # torch's decorator is left again when the call has made the coroutine, before any of it has run.
        return None
    torch, imports = torch_name(site.parsed, first_line(function))
    change = decorate(site.parsed, function, f"@{torch}.no_grad()")
    kind = "generator" if is_generator(function) else "function"
    return Guard(
        parsed=site.parsed,
        changes=(*imports, change),
        what=f"the {kind} `{function.name}`",
        line=function.lineno,
    )


def _guard_block(site: Site, region: ast.stmt) -> Guard | None:
    torch, imports = torch_name(site.parsed, first_line(region))
    wrapped = wrap(site.parsed, region, f"with {torch}.no_grad():")
    if wrapped is None:
        return None
    change, first = wrapped
    kind = "loop" if isinstance(region, Loop) else "code"
    return Guard(
        parsed=site.parsed,
        changes=(*imports, change),
        what=f"the {kind} at line {first_line(first)}",
        line=first_line(first),
    )


def _guard_lambda(program: Program, site: Site, function: ast.Lambda) -> Guard | None:
    if program.trains(site.parsed, function.body) or any(
        asks_for_gradients(node) for node in ast.walk(function)
    ):
        return None
    if program.hides_training(site.parsed, function.body, proven=site.proven):
        return None
    torch, imports = torch_name(site.parsed, function.lineno)
    changes = wrap_expression(site.parsed, function, f"{torch}.no_grad()(", ")")
    return Guard(
        parsed=site.parsed,
        changes=(*imports, *changes),
        what=f"the lambda at line {function.lineno}",
        line=function.lineno,
    )
