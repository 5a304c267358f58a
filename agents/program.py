"""The program's own files together: who calls whom, which functions train, where a value may end up."""

import ast
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headroom.agents.calls import Mode, is_backward, is_optimizer_step, starts_training
from headroom.agents.carry import Found, Passed, Seeds
from headroom.agents.flow import Flow
from headroom.agents.protocol import Evidence
from headroom.agents.syntax import (
    Function,
    ParsedFile,
    Scope,
    last_name,
    own_nodes,
    parameters,
    parse_source,
)

# A flow visits each (scope, seed) once; beyond this many the program is too entangled to be sure of anything.
_MAX_VISITS = 200
# Methods that, on an object of unknown class, are more probably a list's or a dictionary's than the program's own.
_CONTAINER_METHODS = frozenset(
    {"append", "appendleft", "extend", "extendleft", "insert", "setdefault"}
)


@dataclass(frozen=True, slots=True)
class Place:
    """A scope and the file that it is in."""

    parsed: ParsedFile
    scope: Scope

    @property
    def name(self) -> str:
        """The function's name; empty for a lambda or a module."""
        return getattr(self.scope, "name", "")

    @property
    def class_name(self) -> str:
        """The class around the scope; empty outside of any."""
        around = (
            node for node in self.parsed.ancestors(self.scope) if isinstance(node, ast.ClassDef)
        )
        return next((node.name for node in around), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a value may end up.

    `backward`: in a backward pass. `escaped`: it is returned to a caller that is not in the program's own files.
    `visited` holds everything met on the way, by scope.
    """

    backward: bool
    escaped: bool
    visited: dict[Place, Found]


class Program:
    """An index over the program's own files; name-based, so it may join what Python keeps apart, never the reverse."""

    def __init__(
        self, files: Mapping[str, ParsedFile], reached: frozenset[tuple[str, int]] = frozenset()
    ) -> None:
        """Index parsed files; `reached` are the lines of module calls that gradients came back to."""
        self.files = dict(files)
        self.reached = reached
        self.places: list[Place] = []
        self.functions: dict[str, list[Place]] = defaultdict(list)
        self.mentions: dict[str, list[Place]] = defaultdict(list)
        self.callers: dict[str, list[Place]] = defaultdict(list)
        self.classes: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        self.makers: dict[str, set[str]] = defaultdict(set)
        for parsed in self.files.values():
            self._index(parsed)
        self.training = self._training_names()

    def _index(self, parsed: ParsedFile) -> None:
        scopes = [node for node in parsed.parents if isinstance(node, Scope)]
        for scope in [parsed.tree, *scopes]:
            place = Place(parsed, scope)
            self.places.append(place)
            if isinstance(scope, Function):
                self.functions[scope.name].append(place)
            self._note_names(place)
        for node in parsed.parents:
            if isinstance(node, ast.ClassDef):
                methods = {child.name for child in node.body if isinstance(child, Function)}
                self.classes.setdefault(node.name, set()).update(methods)
                self.bases.setdefault(node.name, set()).update(map(last_name, node.bases))
            self._note_maker(node)

    def _note_names(self, place: Place) -> None:
        """Remember which names and attributes a scope mentions, and which it calls."""
        mentioned, called = set(), set()
        for node in own_nodes(place.scope):
            if isinstance(node, ast.Name | ast.Attribute):
                mentioned.add(last_name(node))
            elif isinstance(node, ast.Call):
                called.add(last_name(node.func))
        for name in mentioned:
            self.mentions[name].append(place)
        for name in called:
            self.callers[name].append(place)

    def _note_maker(self, node: ast.AST) -> None:
        """Remember which calls a name is assigned from: `agent = Agent(...)`, `with tqdm(...) as bar`."""
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            pairs = [(node.optional_vars, node.context_expr)]
        for target, value in pairs:
            maker = last_name(value.func) if isinstance(value, ast.Call) else type(value).__name__
            self.makers[last_name(target)].add(maker)

    def _training_names(self) -> frozenset[str]:
        """Names of functions that run a backward pass or an optimizer step, themselves or through others."""
        around = [
            self.files[path].function_at(line) for path, line in self.reached if path in self.files
        ]
        training = {function.name for function in around if function is not None} - {"forward"}
        while True:
            found = {
                place.scope.name
                for places in self.functions.values()
                for place in places
                if isinstance(place.scope, Function)
                and any(self._trains(node, frozenset(training)) for node in ast.walk(place.scope))
            }
            if found <= training:
                return frozenset(training)
            training |= found

    @property
    def trains_in_coroutines(self) -> bool:
        """Whether a coroutine trains, and so might run while another one waits."""
        return any(
            isinstance(place.scope, ast.AsyncFunctionDef) and place.name in self.training
            for place in self.places
        )

    def trains(self, node: ast.AST) -> bool:
        """Whether running this code, nested functions included, may run a backward pass or an optimizer step."""
        return any(self._trains(child, self.training) for child in ast.walk(node))

    def _trains(self, node: ast.AST, training: frozenset[str]) -> bool:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            # A bare function name counts even when it is not called here: it may be handed to whoever calls it.
            return node.id in training or (node.id in self.classes and "__init__" in training)
        if not isinstance(node, ast.Call):
            return False
        if is_backward(node) or is_optimizer_step(node) or starts_training(node):
            return True
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in training
            and self._may_be_ours(node.func)
        )

    def defines(self, callee: ast.expr) -> bool:
        """Whether a callee is, as far as one can tell, a method of a class in the program's own files."""
        if not isinstance(callee, ast.Attribute) or callee.attr in _CONTAINER_METHODS:
            return False
        return callee.attr in self.functions and self._may_be_ours(callee)

    def _may_be_ours(self, method: ast.Attribute) -> bool:
        """False for a method of an object that is only ever made by calls into libraries (`tqdm(...)`, `{}`)."""
        makers = self.makers.get(last_name(method.value), set())
        ours = {maker for maker in makers if maker in self.classes or maker in self.functions}
        if not makers:
            return True
        classes = {maker for maker in ours if maker in self.classes}
        if makers == classes:
            return any(method.attr in self.classes[maker] for maker in classes)
        return bool(ours)

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
            if found.returned and returns:
                callers = self._callers(place)
                escaped |= not callers
                following += [
                    (caller, Seeds(callees=frozenset({place.name})), True) for caller in callers
                ]
            for task in following:
                if (task[0].scope, task[1]) not in seen:
                    seen.add((task[0].scope, task[1]))
                    pending.append(task)
        return Destination(backward=backward, escaped=escaped, visited=visited)

    def _related(self, first: Place, second: Place) -> bool:
        """Whether `self` may be one and the same object in two scopes: their classes are, or inherit, each other."""
        one, two = first.class_name, second.class_name
        return not one or not two or one in self._lineage(two) or two in self._lineage(one)

    def _lineage(self, name: str) -> set[str]:
        found, pending = {name}, [name]
        while pending:
            bases = self.bases.get(pending.pop(), set()) - found
            found |= bases
            pending += bases
        return found

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
        outside = set(place.parsed.ancestors(place.scope))
        for name in sorted(found.exported):
            for other in self.mentions.get(name, []):
                if other.scope in outside:
                    yield other, Seeds(captured=frozenset({name})), True
                elif other.parsed is place.parsed and other.scope is not place.scope:
                    yield other, Seeds(names=frozenset({name})), True
        for passed in sorted(found.passed, key=str):
            for callee in self._callees(passed.callee):
                parameter = _parameter(callee.scope, passed)
                if parameter is not None:
                    # What comes back from this call is judged where the call stands, for these arguments alone.
                    yield callee, Seeds(parameters=frozenset({parameter})), False

    def _callees(self, name: str) -> list[Place]:
        """The functions of this name, or the constructors of classes of this name."""
        if name not in self.classes:
            return self.functions.get(name, [])
        return [place for place in self.functions.get("__init__", []) if place.class_name == name]


def _parameter(scope: Scope, passed: Passed) -> str | None:
    """The parameter that an argument binds."""
    names = parameters(scope)
    if passed.keyword is not None:
        return passed.keyword if passed.keyword in names else None
    if passed.position is None:
        return None
    at = passed.position + (1 if names[:1] in {("self",), ("cls",)} else 0)
    return names[at] if at < len(names) else None


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
    return _read_program(tuple(sorted(evidence.sources.items())), reached)


# Every play reads the same program, and asks twice: to detect and to write the edits.
@functools.lru_cache(maxsize=4)
def _read_program(
    sources: tuple[tuple[str, str], ...], reached: frozenset[tuple[str, int]]
) -> Program:
    parsed = ((path, parse_source(path, text)) for path, text in sources)
    return Program({path: file for path, file in parsed if file is not None}, reached)


def calls_on(nodes: Iterable[ast.AST], line: int) -> frozenset[ast.AST]:
    """The calls among `nodes` whose text covers a line."""
    return frozenset(
        node
        for node in nodes
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    )
