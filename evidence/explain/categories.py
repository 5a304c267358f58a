"""What a block is for: named by the recorder, or inferred from its stack and lifetime.

What the recorder saw comes first, and is not inferred:

1. the name of the storage (parameter, gradient, optimizer state, buffer, variable; what only a graph saves has none of
   these, so the rest decides);
2. the label of the allocation: a backward that accumulates a gradient, an evaluation, a forward, an optimizer.

Then the inferences, in this order:

3. the size, where it alone tells (`old_blocks`): cuBLAS workspaces, and a model older than the recording;
4. a stack all of whose named blocks are parameters (or optimizer state, or buffers) has more of them;
5. the stack alone (`origins`): cuBLAS workspaces; what a module's constructor, `to` or `cuda` allocated and did not
   free at once is a *parameter*, and so is what a constructor of the user's own keeps; a data loader's is an *input*;
   an optimizer's is *optimizer state* if it outlives the step, else *workspace*; a recomputed forward is *activation*;
   a forward under `torch.no_grad` as a decorator, or under a function named `evaluate` or the like, is *evaluation*;
6. the phase (`course`) and the life together: what a backward allocates is a *gradient* if it outlives the backward,
   else *backward temporary* (where the history ends in the backward, or nothing is allocated between its end and the
   free, sizes decide: as large as a parameter is a gradient); what a forward allocates is *activation*, however briefly
   it lives (the lifetime says that), and so is what the user's own line allocates between a forward and its backward;
   what such a line allocates before the first module of an update runs, and keeps beyond it, is *input*, unless it is
   from the first update and kept for good; a block older than the history is *activation* if the first backward frees
   it, and *gradient* if the history begins in a backward, the block is as large as a parameter, and it is freed soon
   after.

Anything else is *other*. A buffer that a module moves looks like a parameter, and a parameter without a gradient too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headroom.evidence.account.account import Account
from headroom.evidence.account.ticks import Label
from headroom.evidence.explain.category_rules import Shows, by_label, by_stack
from headroom.evidence.explain.course import Course, read_course
from headroom.evidence.explain.lifetimes import NAMES, UNFREED, Span, spans
from headroom.evidence.explain.old_blocks import find_workspaces, has_old_blocks, old_categories
from headroom.evidence.explain.origins import Origin
from headroom.evidence.model import Category, Lifetime, Phase
from headroom.evidence.reading.history import NO_STACK, Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Category and lifetime of one life."""

    category: Category
    inferred: bool
    lifetime: Lifetime


# What a stack makes nothing else beside; one of a backward makes temporaries beside gradients.
_ALIKE: Final = frozenset({"parameter", "optimizer_state", "buffer"})
_NAMED: Final = _ALIKE | {"gradient", "variable"}
_STEPS: Final = frozenset({Span.STEP, Span.TORN_DOWN})

# The first update may be cut by the beginning of the history.
_UNITS_LOOKED_AT: Final = 3


def classify(account: Account, rows: Sequence[int], course: Course | None = None) -> list[Kind]:
    """Say what each of some lives is for.

    Args:
        account: The device.
        rows: Rows of its lives.
        course: Its course, where it is known already.
    """
    judge = _Judge(account, read_course(account) if course is None else course)
    found = spans(judge.course, account.replay.lives, rows)
    return [judge.kind(row, span) for row, span in zip(rows, found, strict=True)]


class _Judge:
    """Judges rows; equal evidence is judged once."""

    def __init__(self, account: Account, course: Course) -> None:
        self.account, self.course = account, course
        self.lives, self.stacks = account.replay.lives, account.owners.stacks
        self.labels = account.replay.history.labels if account.ticks.labels else None
        self.alike = _alike(account.ticks.labels)
        self.known: dict[tuple[int, int, Phase | None, Span, Shows], Kind] = {}
        self.ends: dict[int, tuple[int, int]] = {}
        self.modules_from = _modules_from(account, course)
        self.cut_in_backward = course.run_phases[0] == "backward"
        self.same_stack = self._categories_of_named_stacks()
        self.parameter_sizes: frozenset[int] | None = None
        self.by_size: dict[int, Category] = dict.fromkeys(
            find_workspaces(account, course, self._is_parameter_size), "workspace"
        )
        if has_old_blocks(account):
            self.by_size |= old_categories(account, self._gradients_of_one_update())

    def kind(self, row: int, span: Span) -> Kind:
        """The kind of one row."""
        name = self.account.names.get(row)
        if name is not None and name.category in _NAMED:
            return _kind(name.category, False, span)
        by_size = self.by_size.get(row)
        if by_size is not None:
            return _kind(by_size, True, span, stays=True)
        born, stack = self.lives.born[row], self.stacks[row]
        label, phase, shows = -1, None, Shows.NOTHING
        if born >= 0:
            run = self.course.run_of[born]
            phase = self.course.run_phases[run]
            if self.labels is not None:
                label = self.alike.get(self.labels[born], -1)
            shows = self._shows(row, born, run, phase, span)
        elif self.cut_in_backward and span in _STEPS and self._is_parameter_size(row):
            shows = Shows.CUT_OFF_PARAMETER
        key = (stack, label, phase, span, shows)
        kind = self.known.get(key)
        if kind is None:
            kind = self.known[key] = self._judge(key)
        return kind

    def _shows(self, row: int, born: int, run: int, phase: Phase | None, span: Span) -> Shows:
        if phase == "backward":
            return self._shows_of_backward(row, born, run, span)
        if phase == "optimizer":
            failed = bool(self.course.failures) and self.course.failures[-1] >= born
            in_flight = failed and span is Span.UNFINISHED and self._is_last(run)
            passing = span in _STEPS and self._ends_with_run(row, run)
            return Shows.CUT_OFF if in_flight or passing else Shows.NOTHING
        if born < self.modules_from.get(run, -1) <= self.lives.freed[row]:
            from_start = span is Span.PERSISTENT and not self.course.unit_of[born]
            return Shows.FROM_START if from_start else Shows.BEFORE_MODULES
        if phase == "other" and self.course.run_phases[run + 1 : run + 2] == ["backward"]:
            return Shows.BEFORE_BACKWARD
        return Shows.NOTHING

    def _shows_of_backward(self, row: int, born: int, run: int, span: Span) -> Shows:
        """Whether the end of a backward leaves open if a block would have outlived it, and what its size says then."""
        course = self.course
        if span is Span.TEMPORARY:
            # An optimizer that allocates shows what its gradients outlive; one that does not hides it.
            following = course.run_phases[run + 1 : run + 2]
            hidden = course.phases_inferred and following != ["optimizer"]
            if not (hidden and self._ends_with_run(row, run)):
                return Shows.NOTHING
        elif span in _STEPS:
            if not self._ends_with_run(row, run):
                return Shows.NOTHING
            # Labels of frees end a backward before its last results are let go; gradients stay for the optimizer.
            if course.unit_of[born] == course.unit_of[self.lives.freed[row]]:
                return Shows.CUT_OFF
        elif span is not Span.UNFINISHED or not self._is_last(run):
            return Shows.NOTHING
        if self._is_parameter_size(row):
            return Shows.CUT_OFF_PARAMETER
        known = bool(self.parameter_sizes) or span is not Span.STEP
        return Shows.CUT_OFF if known else Shows.NOTHING

    def _is_last(self, run: int) -> bool:
        return run == len(self.course.run_starts) - 1

    def _ends_with_run(self, row: int, run: int) -> bool:
        """Whether a block is freed after the last allocation of its run, and before the next one."""
        last, following = self._around(run)
        return last < self.lives.freed[row] < following

    def _around(self, run: int) -> tuple[int, int]:
        """The last allocation of a run, and the first one after it."""
        found = self.ends.get(run)
        if found is None:
            actions = self.account.replay.history.actions
            stop = [*self.course.run_starts[run + 1 : run + 2], len(actions)][0]
            after = actions.find(_ALLOC, stop)
            last = actions.rfind(_ALLOC, self.course.run_starts[run], stop)
            found = self.ends[run] = (last, after if after >= 0 else len(actions))
        return found

    def _judge(self, key: tuple[int, int, Phase | None, Span, Shows]) -> Kind:
        stack, number, phase, span, shows = key
        origin = self.course.origins[stack]
        label = self.account.ticks.labels.get(number)
        seen = by_label(label, origin, span, shows) if label is not None else None
        if seen is not None:
            return _kind(seen, False, span)
        if origin is Origin.GRADIENT:
            return _kind("gradient", False, span)
        alike = self.same_stack.get(stack)
        if alike is not None:
            return _kind(alike, True, span)
        found = by_stack(origin, phase, span, shows)
        return _kind(found, True, span, stays=origin is Origin.WORKSPACE)

    def _categories_of_named_stacks(self) -> dict[int, Category]:
        """The one category that all named blocks of a stack have."""
        found: dict[int, set[Category]] = {}
        for row, name in self.account.names.items():
            stack = self.stacks[row]
            if stack != NO_STACK:
                found.setdefault(stack, set()).add(name.category)
        return {
            stack: next(iter(categories))
            for stack, categories in found.items()
            if len(categories) == 1 and categories <= _ALIKE
        }

    def _gradients_of_one_update(self) -> list[int]:
        """Rows of the gradients of the first update that made gradients and freed them."""
        course, lives = self.course, self.lives
        backwards = [
            start
            for start, phase in zip(course.run_starts, course.run_phases, strict=True)
            if phase == "backward"
        ]
        units = dict.fromkeys(course.unit_of[start] for start in backwards)
        for unit in list(units)[:_UNITS_LOOKED_AT]:
            rows = self._freed_rows_of(unit)
            found = spans(course, lives, rows)
            gradients = [
                row
                for row, span in zip(rows, found, strict=True)
                if self.kind(row, span).category == "gradient"
            ]
            if gradients:
                return gradients
        return []

    def _freed_rows_of(self, unit: int) -> list[int]:
        """Rows that are born in a unit and freed within the history."""
        lives, end = self.lives, len(self.course.unit_of)
        starts = [*self.course.unit_starts, end]
        first, stop = starts[unit], starts[unit + 1]
        born = [row for row, entry in enumerate(lives.born) if first <= entry < stop]
        return [row for row in born if lives.freed[row] < end]

    def _is_parameter_size(self, row: int) -> bool:
        if self.parameter_sizes is None:
            self.parameter_sizes = self._find_parameter_sizes()
        return self.lives.requested_bytes[row] in self.parameter_sizes

    def _find_parameter_sizes(self) -> frozenset[int]:
        setup = {
            stack for stack, origin in enumerate(self.course.origins) if origin is Origin.SETUP
        }
        sizes, last = self.lives.requested_bytes, self.course.last_allocation
        found = {
            sizes[row]
            for row, (stack, freed) in enumerate(zip(self.stacks, self.lives.freed, strict=True))
            if stack in setup and freed > last
        }
        named = self.account.names.items()
        return frozenset(found | {sizes[row] for row, one in named if one.category == "parameter"})


def _alike(labels: dict[int, Label]) -> dict[int, int]:
    """By label, the first that says the same of a category: there are few such, and many labels."""
    first: dict[tuple[Phase | None, bool], int] = {}
    return {
        number: first.setdefault((label.phase, bool(label.gradient_of)), number)
        for number, label in labels.items()
    }


def _kind(category: Category, inferred: bool, span: Span, *, stays: bool = False) -> Kind:
    """A kind; what is made to stay is persistent where nothing frees it, however young it is."""
    kept = (stays or category in _ALIKE) and span in UNFREED
    return Kind(
        category=category, inferred=inferred, lifetime="persistent" if kept else NAMES[span]
    )


def _modules_from(account: Account, course: Course) -> dict[int, int]:
    """By run, the entry at which the first module allocates: within the run, or in the forward that follows it."""
    history, table = account.replay.history, course.origins
    modules = (Origin.FORWARD, Origin.EVALUATION)
    found: dict[int, int] = {}
    ends = [*course.run_starts[1:], len(history)]
    for run, phase in enumerate(course.run_phases):
        if phase in ("forward", "evaluation"):
            entries = range(course.run_starts[run], ends[run])
            first = next(
                (
                    entry
                    for entry in entries
                    if history.actions[entry] == _ALLOC and table[history.stacks[entry]] in modules
                ),
                None,
            )
            if first is not None:
                found[run] = first
                if run and course.run_phases[run - 1] == "other":
                    found[run - 1] = first
    return found


_ALLOC: Final = int(Action.ALLOC)
