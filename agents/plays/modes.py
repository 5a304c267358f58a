"""One line that trains and evaluates in turn: gradients only while its module is in training mode."""

import ast

from headroom.agents.calls import is_backward
from headroom.agents.imports import imported_names
from headroom.agents.index import Place
from headroom.agents.plays.guards import Guard
from headroom.agents.program import Program, calls_on
from headroom.agents.protocol import Evidence
from headroom.agents.rewrite import torch_name, wrap
from headroom.agents.syntax import (
    access_path,
    contains_await,
    contains_yield,
    first_line,
    last_name,
    own_nodes,
)
from headroom.records.run import CallSite

_SIMPLE = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return


def evaluates_beside_training(site: CallSite, evidence: Evidence) -> bool:
    """Whether no gradient came back to the calls in eval mode, while those in training mode at the line trained."""
    if site.eval_calls < site.calls or site.reached_calls or not site.grad_calls:
        return False
    beside = [
        other
        for other in evidence.call_sites
        if (other.file, other.line) == (site.file, site.line) and other.reached_calls > 0
    ]
    same = any(other.module == site.module and other.eval_calls == 0 for other in beside)
    return same and all(other.eval_calls == 0 for other in beside)


def find_mode_guard(program: Program, site: CallSite) -> Guard | None:
    """A guard around the statement that calls the module, which leaves its training as it is.

    None where the text does not show that only training runs a backward pass, or which module is called.
    """
    parsed = program.files.get(site.file)
    if parsed is None:
        return None
    place = Place(parsed, parsed.scope_at(site.line, site.function))
    calls = calls_on(own_nodes(place.scope), site.line)
    module = _module(program, place, calls)
    if module is None:
        return None
    statement = parsed.statement_of(module)
    if not isinstance(statement, _SIMPLE) or program.trains(parsed, statement):
        return None
    inside = list(ast.walk(statement))
    if contains_yield(inside) or contains_await(inside) or any(map(_delays, inside)):
        return None
    if not _trains_conditionally(program, place, statement):
        return None
    torch, imports = torch_name(parsed, first_line(statement))
    flag = f"{torch}.is_grad_enabled() and {ast.unparse(module.func)}.training"
    wrapped = wrap(parsed, statement, f"with {torch}.set_grad_enabled({flag}):")
    if wrapped is None:
        return None
    change, first = wrapped
    line = first_line(first)
    return Guard(
        parsed=parsed,
        changes=(*imports, change),
        what=f"the code at line {line}, in eval mode,",
        line=line,
    )


def _delays(node: ast.AST) -> bool:
    """Whether code would run later, outside of the guard."""
    return isinstance(node, ast.Lambda | ast.GeneratorExp)


def _module(program: Program, place: Place, calls: frozenset[ast.AST]) -> ast.Call | None:
    """The only call at the line of something whose mode the program switches."""
    switched = {
        access_path(call.func.value)
        for name in ("train", "eval")
        for where, call in program.calls.get(name, [])
        if isinstance(call.func, ast.Attribute)
    }
    last_names = {path.rsplit(".", 1)[-1] for path in switched if path is not None}
    found = [
        call
        for call in calls
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name | ast.Attribute)
        and access_path(call.func) is not None
        and last_name(call.func) in last_names
    ]
    return found[0] if len(found) == 1 else None


def _trains_conditionally(program: Program, place: Place, statement: ast.stmt) -> bool:
    """Whether every backward pass stands under a condition that the statement does not share.

    Where the scope has none, its callers decide, and there must be two of them.
    """
    imports = imported_names(place.parsed.tree)
    trained = [
        node
        for node in own_nodes(place.scope)
        if isinstance(node, ast.Call)
        and (is_backward(node, imports) or program.trains(place.parsed, node))
    ]
    around = set(place.parsed.ancestors(statement))
    if not trained:
        return len(program.calls.get(place.name, [])) >= 2
    return all(
        any(
            isinstance(outer, ast.If) and outer not in around
            for outer in place.parsed.ancestors(node)
        )
        for node in trained
    )
