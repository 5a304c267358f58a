"""The program's own files together: who calls whom, which functions train, where a value may end up."""

import ast
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headroom.agents.callees import Callee
from headroom.agents.calls import Mode
from headroom.agents.carry import Found, Passed, Seeds
from headroom.agents.flow import Flow
from headroom.agents.imports import full_path, imported_names, is_builtin, is_quiet, own_module
from headroom.agents.index import Place
from headroom.agents.protocol import Evidence
from headroom.agents.syntax import (
    Function,
    Scope,
    last_name,
    parameters,
    parse_source,
)
from headroom.agents.training import Training, around

# A flow visits each (scope, seed) once; beyond this many the program is too entangled to be sure of anything.
_MAX_VISITS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a value may end up.

    `backward`: in a backward pass. `escaped`: out of sight, returned to a caller or handed to a callee that is not in
    the program's own files. `visited` holds everything met on the way, by scope.
    """

    backward: bool
    escaped: bool
    visited: dict[Place, Found]


class Program(Training):
    """All of the program: what trains, and where values go."""

    def reaches_backward(self, start: Place, seeds: Seeds, mode: Mode = "graph") -> bool:
        """Whether values may end in a backward pass, or leave the program's own files, which may have one."""
        destination = self.destination(start, seeds, mode, stop_at_backward=True)
        return destination.backward or destination.escaped

    def destination(
        self, start: Place, seeds: Seeds, mode: Mode = "graph", *, stop_at_backward: bool = False
    ) -> Destination:
        """Follow values from a scope through returns, arguments, attributes and globals.

        With `stop_at_backward`, not further than the first backward pass.
        """
        pending: list[tuple[Place, Seeds, bool]] = [(start, seeds, True)]
        seen = {(start.scope, seeds)}
        visited: dict[Place, Found] = {}
        backward = escaped = False
        while pending:
            place, current, returns = pending.pop()
            found = Flow(place.parsed, place.scope, current, mode).run()
            _merge(visited, place, found)
            backward |= found.backward
            if len(seen) > _MAX_VISITS or (found.backward and stop_at_backward):
                return Destination(backward=True, escaped=True, visited=visited)
            following = list(self._onward(place, found))
            escaped |= self._is_lost(place, found)
            if found.returned and returns:
                callers = self._callers(place)
                escaped |= not callers or self._is_wrapped(place)
                following += [
                    (caller, Seeds(callees=frozenset({place.name})), True) for caller in callers
                ]
            for task in following:
                if (task[0].scope, task[1]) not in seen:
                    seen.add((task[0].scope, task[1]))
                    pending.append(task)
        return Destination(backward=backward, escaped=escaped, visited=visited)

    def _is_wrapped(self, place: Place) -> bool:
        """Whether a decorator that may train gets what a function returns before its callers do."""
        decorators: list[ast.expr] = getattr(place.scope, "decorator_list", [])
        callees = [node.func if isinstance(node, ast.Call) else node for node in decorators]
        imports = imported_names(place.parsed.tree)
        return self.may_train_anywhere and not all(
            (isinstance(callee, ast.Name) and is_builtin(callee.id))
            or is_quiet(full_path(callee, imports) or "")
            for callee in callees
        )

    def _is_lost(self, place: Place, found: Found) -> bool:
        """Whether something was handed to a callee out of sight, which may run a backward pass over it."""
        return self.may_train_anywhere and any(
            not self._callee(place, passed).known for passed in found.passed
        )

    def _callee(self, place: Place, passed: Passed) -> Callee:
        here = around(place.parsed, passed.call)
        if passed.callee is passed.call.func:
            return self.callees.of(here, passed.call)
        return self.callees.of_value(here, passed.callee)

    def _related(self, first: Place, second: Place) -> bool:
        """Whether `self` may be one and the same object in two scopes: their classes are, or inherit, each other."""
        one, two = first.class_name, second.class_name
        return not one or not two or one in self.lineage(two) or two in self.lineage(one)

    def _callers(self, place: Place) -> list[Place]:
        if not isinstance(place.scope, Function) or place.name in {"forward", "__call__"}:
            return []
        return self.callers.get(place.name, [])

    def _onward(self, place: Place, found: Found) -> Iterator[tuple[Place, Seeds, bool]]:
        for path in sorted(found.attributes):
            attribute = path.rsplit(".", 1)[-1]
            own = path == f"self.{attribute}"
            for other in self.mentions.get(attribute, []):
                foreign = own and not self._related(place, other)
                yield other, Seeds(attributes=frozenset({attribute}), foreign=foreign), True
            if self._is_own_module(place, path):
                yield from self._importing(place, attribute)
        outside = set(place.parsed.ancestors(place.scope))
        for name in sorted(found.exported):
            for other in self.mentions.get(name, []):
                if other.scope in outside:
                    yield other, Seeds(captured=frozenset({name})), True
                elif other.parsed is place.parsed and other.scope is not place.scope:
                    yield other, Seeds(names=frozenset({name})), True
            yield from self._importing(place, name)
        yield from self._into_calls(place, found)

    def _into_calls(self, place: Place, found: Found) -> Iterator[tuple[Place, Seeds, bool]]:
        for passed in sorted(found.passed, key=lambda item: item.order):
            targets = dict.fromkeys(self._callees(last_name(passed.callee)))
            targets.update(dict.fromkeys(self._callee(place, passed).places))
            for callee in targets:
                for parameter in _parameters(callee.scope, passed):
                    # What comes back from this call is judged where the call stands, for these arguments alone.
                    yield callee, Seeds(parameters=frozenset({parameter})), False

    def _is_own_module(self, place: Place, path: str) -> bool:
        module = imported_names(place.parsed.tree).get(path.split(".")[0])
        return module is not None and own_module(module, self.files)

    def _importing(self, place: Place, name: str) -> Iterator[tuple[Place, Seeds, bool]]:
        """Where other files may see a module's name: by `from module import name`, or as an attribute."""
        for other in self.mentions.get(name, []):
            if other.parsed is place.parsed:
                continue
            path = imported_names(other.parsed.tree).get(name)
            at_home = path is None and any(
                isinstance(at.scope, ast.Module) and at.parsed is other.parsed
                for at, _ in self.names.get(name, [])
            )
            if at_home or (path is not None and own_module(path, self.files)):
                yield other, Seeds(names=frozenset({name})), True
            yield other, Seeds(attributes=frozenset({name})), True

    def _callees(self, name: str) -> list[Place]:
        """The functions of this name, or the constructors of classes of this name."""
        if name not in self.classes:
            return self.functions.get(name, [])
        return [place for place in self.functions.get("__init__", []) if place.class_name == name]


def _parameters(scope: Scope, passed: Passed) -> tuple[str, ...]:
    """The parameters that an argument may bind: any of them, where it is unpacked."""
    names = parameters(scope)
    own = names[1:] if names[:1] in {("self",), ("cls",)} else names
    if passed.position == -1 or isinstance(scope, ast.Module):
        return ()
    spec = scope.args
    if passed.keyword is not None:
        extra = (spec.kwarg.arg,) if spec.kwarg is not None else ()
        return (passed.keyword,) if passed.keyword in names else extra
    if passed.position is None:
        return own
    positional = len(spec.posonlyargs) + len(spec.args) - (len(names) - len(own))
    if passed.position < positional:
        return (own[passed.position],)
    return (spec.vararg.arg,) if spec.vararg is not None else ()


def _merge(visited: dict[Place, Found], place: Place, found: Found) -> None:
    known = visited.setdefault(place, found)
    known.tainted |= found.tainted
    known.backward |= found.backward
    known.returned |= found.returned


def read_program(evidence: Evidence) -> Program:
    """Index the sources of an evidence pack, once for equal packs; files that do not parse are left out."""
    reached = frozenset(
        (site.file, site.line) for site in evidence.call_sites if site.reached_calls > 0
    )
    modules = frozenset((site.file, site.line, site.module) for site in evidence.call_sites)
    return _read_program(tuple(sorted(evidence.sources.items())), reached, modules)


# Every play reads the same program, and asks twice: to detect and to write the edits.
@functools.lru_cache(maxsize=4)
def _read_program(
    sources: tuple[tuple[str, str], ...],
    reached: frozenset[tuple[str, int]],
    modules: frozenset[tuple[str, int, str]],
) -> Program:
    parsed = ((path, parse_source(path, text)) for path, text in sources)
    at_line: dict[tuple[str, int], frozenset[str]] = {}
    for path, line, module in modules:
        at_line[path, line] = at_line.get((path, line), frozenset()) | {module}
    return Program({path: file for path, file in parsed if file is not None}, reached, at_line)


def calls_on(nodes: Iterable[ast.AST], line: int) -> frozenset[ast.AST]:
    """The calls among `nodes` whose text covers a line."""
    return frozenset(
        node
        for node in nodes
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    )
