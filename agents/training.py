"""Which of the program's code trains, itself, through others, or out of sight."""

import ast
import functools
from collections.abc import Iterable, Mapping

from headroom.agents.callees import Callees
from headroom.agents.calls import is_backward, is_optimizer_step, starts_training
from headroom.agents.imports import imported_names
from headroom.agents.index import Index, Place
from headroom.agents.sorts import Sorts
from headroom.agents.syntax import Function, ParsedFile, Scope, last_name

# A program without any of these words, in its names or imports, has no training that a call out of sight could run.
_TRAINING_WORDS = (
    "optim",
    "backward",
    "autograd",
    "trainer",
    "lightning",
    "accelerat",
    "deepspeed",
)
# Methods that, on an object of unknown class, are more probably a list's or a dictionary's than the program's own.
_CONTAINER_METHODS = frozenset(
    {"append", "appendleft", "extend", "extendleft", "insert", "setdefault"}
)


class Training(Index):
    """The index with what its calls run, and whether they train."""

    def __init__(
        self,
        files: Mapping[str, ParsedFile],
        reached: frozenset[tuple[str, int]] = frozenset(),
        modules: Mapping[tuple[str, int], frozenset[str]] | None = None,
    ) -> None:
        """Index parsed files.

        Args:
            files: The program's own files by path.
            reached: Lines of module calls that gradients came back to.
            modules: Classes of the modules that were called at a line.
        """
        super().__init__(files)
        self.reached = reached
        self.callees = Callees(self, modules or {})
        self.sorts = Sorts(self)
        self.training = self._training_names()
        self.may_train_anywhere = bool(self.training) or any(
            word in node for node in _words_of(self.files.values()) for word in _TRAINING_WORDS
        )

    def _training_names(self) -> frozenset[str]:
        """Names of functions that run a backward pass or an optimizer step, themselves or through others."""
        reached = [
            self.files[path].function_at(line) for path, line in self.reached if path in self.files
        ]
        training = {function.name for function in reached if function is not None} - {"forward"}
        while True:
            found = {
                place.scope.name
                for places in self.functions.values()
                for place in places
                if isinstance(place.scope, Function)
                and self._any_trains(place.parsed, place.scope, frozenset(training))
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

    def trains(self, parsed: ParsedFile, node: ast.AST) -> bool:
        """Whether running this code, nested functions included, may run a backward pass or an optimizer step."""
        return self._any_trains(parsed, node, self.training)

    def hides_training(self, parsed: ParsedFile, node: ast.AST, *, proven: bool) -> bool:
        """Whether this code calls something out of sight which may train.

        Where it is `proven` by measurement that nothing here trained, only what the program itself hands around does.
        """
        if not (self.hands_out_training if proven else self.may_train_anywhere):
            return False
        return self._hides(parsed, node, self._hiding)

    def _hides(self, parsed: ParsedFile, node: ast.AST, hiding: frozenset[Scope]) -> bool:
        """Whether code calls something out of sight, itself or through functions that do."""
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            callee = self.callees.of(around(parsed, call), call)
            if not callee.known:
                return True
            ours = not isinstance(call.func, ast.Attribute) or self._may_be_ours(call.func)
            if ours and any(place.scope in hiding for place in callee.places):
                return True
        return False

    @functools.cached_property
    def _hiding(self) -> frozenset[Scope]:
        """Functions that call something out of sight, themselves or through others."""
        functions = [place for place in self.places if not isinstance(place.scope, ast.Module)]
        hiding: frozenset[Scope] = frozenset()
        while True:
            found = {
                place.scope
                for place in functions
                if place.scope in hiding or self._hides(place.parsed, place.scope, hiding)
            }
            if found == hiding:
                return hiding
            hiding = frozenset(found)

    @functools.cached_property
    def hands_out_training(self) -> bool:
        """Whether a function that trains is used as a value, so that a call under any name may be one of it."""
        return "__call__" in self.training or any(
            isinstance(node, ast.Name | ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and last_name(node) in self.training & set(self.functions)
            and not _is_called(parsed, node)
            for parsed in self.files.values()
            for node in parsed.parents
        )

    def _any_trains(self, parsed: ParsedFile, node: ast.AST, training: frozenset[str]) -> bool:
        return any(self._trains(parsed, child, training) for child in ast.walk(node))

    def _trains(self, parsed: ParsedFile, node: ast.AST, training: frozenset[str]) -> bool:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            # A bare function name counts even when it is not called here: it may be handed to whoever calls it.
            return node.id in training or (node.id in self.classes and "__init__" in training)
        if not isinstance(node, ast.Call):
            return False
        imports = imported_names(parsed.tree)
        if is_backward(node, imports) or is_optimizer_step(node) or starts_training(node):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in self.functions:
            return node.func.attr in training and self._may_be_ours(node.func)
        return any(
            place.name in training for place in self.callees.of(around(parsed, node), node).places
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


def around(parsed: ParsedFile, node: ast.AST) -> Place:
    """The scope of a node with its file."""
    return Place(parsed, parsed.scope_of(node))


def _is_called(parsed: ParsedFile, node: ast.AST) -> bool:
    outer = parsed.parents.get(node)
    return isinstance(outer, ast.Call) and outer.func is node


def _words_of(files: Iterable[ParsedFile]) -> frozenset[str]:
    """Every name that the files use, in lower case: variables, attributes, parameters, imports."""
    fields = ("id", "attr", "arg", "name", "module")
    found = {
        getattr(node, field, None)
        for parsed in files
        for node in parsed.parents
        for field in fields
    }
    return frozenset(word.lower() for word in found if isinstance(word, str))
