"""How long blocks live: for good, over several updates, from forward to backward, within a step, or briefly.

Judged by where the program stood (`course`) when a block was allocated and freed:

- *temporary*: freed in the stretch of one phase in which it was allocated;
- *forward to backward*: allocated in a forward, freed in a backward of the same update;
- *step*: any other life within one update, or into the next one (a gradient is freed when the next update begins, the
  last loss when it is overwritten);
- *several updates*: freed two updates later or more;
- *persistent*: never freed within the history, and older than the newest two updates (what the last one made may be
  held until it is overwritten) or the newest two calls of the outermost module; where the history tells fewer, older
  than its first forward.

What is freed after the last allocation of the history goes down with the program: where it would be *several
updates*, it is *persistent*. What is not freed because the history ends first, or what an out-of-memory error freed
before its time, is judged by its birth: a block of the present forward is *forward to backward*, any other *step*.
Blocks older than the history that are freed in it count as *step* or *forward to backward* if that happens in its first
update, otherwise as *several updates*. Where nothing tells updates or phases, what is never freed is *persistent*, and
what lives for less than a hundredth of the history's entries *temporary*.
"""

from bisect import bisect_left
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from headroom.evidence.account.lives import BlockLives
from headroom.evidence.explain.course import Course
from headroom.evidence.model import Lifetime


class Span(IntEnum):
    """A class of lives as a place in `NAMES`; classes of one name differ in how they end."""

    TEMPORARY = 0
    FORWARD_TO_BACKWARD = 1
    STEP = 2
    SEVERAL = 3
    PERSISTENT = 4
    UNFINISHED_FORWARD = 5
    UNFINISHED = 6
    TORN_DOWN = 7


NAMES: Final[tuple[Lifetime, ...]] = (
    "temporary",
    "forward to backward",
    "step",
    "several updates",
    "persistent",
    "forward to backward",
    "step",
    "step",
)
UNFREED: Final = frozenset(
    {Span.PERSISTENT, Span.UNFINISHED, Span.UNFINISHED_FORWARD, Span.TORN_DOWN}
)
_BRIEF: Final = 100


def spans(course: Course, lives: BlockLives, rows: Iterable[int]) -> list[Span]:
    """The class of some lives, in order."""
    born_at, freed_at = lives.born, lives.freed
    run_of, unit_of = course.run_of, course.unit_of
    end = len(run_of)
    forward = [phase in ("forward", "evaluation") for phase in course.run_phases]
    backward = [phase == "backward" for phase in course.run_phases]
    waiting_from = _waiting_from(course)
    last_birth = course.last_allocation
    told = any(course.run_phases) or len(course.unit_starts) > 1
    found: list[Span] = []
    for row in rows:
        born, freed = born_at[row], freed_at[row]
        torn = Span.TORN_DOWN if freed > last_birth else Span.STEP
        if freed >= end:
            found.append(_never_freed(course, born, waiting_from))
        elif born < 0:
            found.append(_older_than_history(course, freed))
        elif not told:
            found.append(Span.TEMPORARY if (freed - born) * _BRIEF <= end else torn)
        elif run_of[born] == run_of[freed]:
            found.append(_within_run(course, born, freed))
        elif unit_of[freed] - unit_of[born] > 1:
            found.append(Span.PERSISTENT if freed > last_birth else Span.SEVERAL)
        else:
            same_unit = unit_of[born] == unit_of[freed]
            crosses = same_unit and forward[run_of[born]] and backward[run_of[freed]]
            found.append(Span.FORWARD_TO_BACKWARD if crosses else torn)
    return found


def _never_freed(course: Course, born: int, waiting_from: int) -> Span:
    phase, settled = course.phase_at(born), course.settled_before
    if phase == "backward":
        # The calls of one update share its gradients, so what is older than a call may still be of this update.
        settled = min(settled, course.unit_starts[-1]) if course.unit_kind != "call" else 0
    if born < settled:
        return Span.PERSISTENT
    waits = phase in ("forward", "evaluation") and course.run_of[born] >= waiting_from
    return Span.UNFINISHED_FORWARD if waits else Span.UNFINISHED


def _waiting_from(course: Course) -> int:
    """The first run whose backward has not been: after the last backward that came to its end.

    Where there is none at all, and no failure that could have kept one from coming, nothing waits for one.
    """
    last = len(course.run_phases) - 1
    backwards = [run for run, phase in enumerate(course.run_phases) if phase == "backward"]
    if not backwards and not course.failures:
        return last + 1
    finished = [run for run in backwards if run < last]
    return finished[-1] + 1 if finished else 0


def _older_than_history(course: Course, freed: int) -> Span:
    if freed >= 0 and course.unit_of[freed]:
        return Span.PERSISTENT if freed > course.last_allocation else Span.SEVERAL
    by_backward = freed >= 0 and course.run_phases[course.run_of[freed]] == "backward"
    return Span.FORWARD_TO_BACKWARD if by_backward else Span.STEP


def _within_run(course: Course, born: int, freed: int) -> Span:
    failures = course.failures
    if failures and bisect_left(failures, born) < bisect_left(failures, freed):
        forward = course.run_phases[course.run_of[born]] in ("forward", "evaluation")
        return Span.UNFINISHED_FORWARD if forward else Span.UNFINISHED
    return Span.TEMPORARY
