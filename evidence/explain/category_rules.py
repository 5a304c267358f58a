"""The rules of `categories` that follow from the recorder's label, or from stack, phase and life."""

from enum import Enum, auto
from typing import Final

from headroom.evidence.account.ticks import Label
from headroom.evidence.explain.lifetimes import Span
from headroom.evidence.explain.origins import Origin
from headroom.evidence.model import Category, Phase


class Shows(Enum):
    """What a row shows beside its stack, label, phase and life.

    `CUT_OFF` is freed after the last allocation of its backward or step and before any other, or not at all because the
    history ends; `CUT_OFF_PARAMETER` is that (or freed so in the backward in which the history begins), and as large as
    a parameter.
    `BEFORE_MODULES` is older than the first module's allocation in its phase and outlives it, `FROM_START` is that and
    kept from the first update on. `BEFORE_BACKWARD` is of no labelled phase, right before a backward.
    """

    NOTHING = auto()
    CUT_OFF = auto()
    CUT_OFF_PARAMETER = auto()
    BEFORE_MODULES = auto()
    FROM_START = auto()
    BEFORE_BACKWARD = auto()


_MADE_BY_BACKWARD: Final = frozenset({Origin.BACKWARD, Origin.ABSENT, Origin.UNTOLD, Origin.LINE})
_OWN_LINES: Final = frozenset({Origin.LINE, Origin.UNTOLD})


def by_label(label: Label, origin: Origin, span: Span, shows: Shows) -> Category | None:
    """The category that the recorder's label tells; None where it leaves the category open."""
    if label.gradient_of:
        return "gradient"
    if label.phase == "evaluation" and origin not in (Origin.SETUP, Origin.WORKSPACE):
        return "evaluation"
    if label.phase == "optimizer" and origin is not Origin.WORKSPACE:
        return _of_optimizer(origin, span, shows)
    open_end = origin is Origin.WORKSPACE or shows is Shows.CUT_OFF_PARAMETER
    if label.phase == "backward" and span is Span.TEMPORARY and not open_end:
        return "activation" if origin is Origin.RECOMPUTED else "backward_temporary"
    if label.phase == "forward" and origin not in (Origin.SETUP, Origin.WORKSPACE, Origin.INPUT):
        return "activation"
    return None


def by_stack(origin: Origin, phase: Phase | None, span: Span, shows: Shows) -> Category:
    """The category that stack, phase and life tell together; *other* where they tell none."""
    plain = _PLAIN_ORIGINS.get(origin)
    if plain is not None:
        return plain
    built = origin is Origin.BUILD and phase in (None, "other", "forward")
    if origin is Origin.SETUP or built:
        return "other" if span is Span.TEMPORARY else "parameter"
    if origin is Origin.OPTIMIZER:
        return _of_optimizer(origin, span, shows)
    if phase == "backward" and origin in _MADE_BY_BACKWARD:
        outlives = shows is Shows.NOTHING and span is not Span.TEMPORARY
        return "gradient" if outlives or shows is Shows.CUT_OFF_PARAMETER else "backward_temporary"
    if origin in _OWN_LINES and phase in ("forward", "evaluation", "other"):
        return _of_own_line(phase, shows)
    if origin is Origin.ABSENT and phase is None:
        return _of_cut_history(span, shows)
    return "other"


def _of_optimizer(origin: Origin, span: Span, shows: Shows) -> Category:
    """What outlives the step is state; what a failure within it leaves is not known to do so."""
    passing = span is Span.TEMPORARY or shows is Shows.CUT_OFF
    return "workspace" if passing and origin is not Origin.STATE else "optimizer_state"


def _of_cut_history(span: Span, shows: Shows) -> Category:
    """A block older than the history and freed within it, with no stack left."""
    if span is Span.FORWARD_TO_BACKWARD:
        return "activation"
    return "gradient" if shows is Shows.CUT_OFF_PARAMETER else "other"


def _of_own_line(phase: Phase | None, shows: Shows) -> Category:
    """A line of the program that runs no module: its batch, or arithmetic around the modules."""
    if shows is Shows.BEFORE_MODULES:
        return "input"
    if shows is Shows.FROM_START:
        return "other"
    if phase == "evaluation":
        return "evaluation"
    return "activation" if phase == "forward" or shows is Shows.BEFORE_BACKWARD else "other"


_PLAIN_ORIGINS: Final[dict[Origin, Category]] = {
    Origin.WORKSPACE: "workspace",
    Origin.INPUT: "input",
    Origin.FORWARD: "activation",
    Origin.RECOMPUTED: "activation",
    Origin.EVALUATION: "evaluation",
    Origin.STATE: "optimizer_state",
    Origin.GRADIENT: "gradient",
}
