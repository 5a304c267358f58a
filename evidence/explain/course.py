"""Where a program stood at each entry of its history: forward, backward or optimizer, and which update.

The recorder's labels say both. Where there are none, the stacks of allocations do: an optimizer's frames, the calls of
modules, and no stack at all, which in a recording of Python stacks is autograd's own threads. A phase holds until an
allocation says otherwise, so frees belong to the phase before them. An update is complete where, after an optimizer
ran, a forward begins. All of this is inference: an optimizer that allocates nothing is not seen.
"""

import re
from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from headroom.evidence.account.account import Account
from headroom.evidence.explain.origins import Origin, origins
from headroom.evidence.model import Phase
from headroom.evidence.reading.history import Action

UnitKind = Literal["update", "call", "inferred update", "inferred backward", "none"]

_UNKNOWN: Final = 0
_LINE: Final = 6
_PHASES: Final[tuple[Phase | None, ...]] = (
    None,
    "forward",
    "evaluation",
    "backward",
    "optimizer",
    "other",
    None,
)
_CODES: Final[dict[Phase | None, int]] = {
    phase: code for code, phase in enumerate(_PHASES) if phase is not None
}
_FORWARD, _EVALUATION, _BACKWARD, _OPTIMIZER, _OTHER = (
    _CODES["forward"],
    _CODES["evaluation"],
    _CODES["backward"],
    _CODES["optimizer"],
    _CODES["other"],
)
_OF_ORIGIN: Final = {
    Origin.FORWARD: _FORWARD,
    Origin.EVALUATION: _EVALUATION,
    Origin.RECOMPUTED: _BACKWARD,
    Origin.BACKWARD: _BACKWARD,
    Origin.GRADIENT: _BACKWARD,
    Origin.OPTIMIZER: _OPTIMIZER,
    Origin.STATE: _OPTIMIZER,
    Origin.SETUP: _OTHER,
    Origin.LINE: _LINE,
    Origin.INPUT: _LINE,
    Origin.BUILD: _OTHER,
}
_RUNS: Final = re.compile(
    b"|".join(b"%c[\x00%c]*" % (code, code) for code in range(1, len(_PHASES))), re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The course of a program over the entries of one device.

    Runs are stretches of one phase: `run_starts[k]` is the first entry of run k and `run_phases[k]` its phase; where
    nothing is told, there is one run, and its phase is None. `run_of[e]` is the run of entry e. Units are updates, or
    what stands in for them (`unit_kind`): `unit_starts[k]` is the first entry of unit k, `unit_of[e]` entry e's unit.

    `origins` is by stack number. What was born before `settled_before` is neither of the last unit, nor kept from the
    one before it; where there are fewer, it is older than the first forward. `failures` are out-of-memory entries, and
    nothing is allocated after `last_allocation`.
    """

    run_starts: list[int]
    run_phases: list[Phase | None]
    run_of: "array[int]"
    unit_kind: UnitKind
    unit_starts: list[int]
    unit_of: "array[int]"
    origins: list[Origin]
    phases_inferred: bool
    settled_before: int
    failures: list[int]
    last_allocation: int

    def phase_at(self, entry: int) -> Phase | None:
        """The phase at an entry; None before the first, and where nothing is told."""
        return self.run_phases[self.run_of[entry]] if 0 <= entry < len(self.run_of) else None


def read_course(account: Account) -> Course:
    """Follow the course of a device's history."""
    history = account.replay.history
    end = len(history)
    found = origins(account.replay.stacks)
    labelled = {
        number: _CODES.get(label.phase, _UNKNOWN) for number, label in account.ticks.labels.items()
    }
    told = any(labelled.values())
    codes = _codes(account, found, labelled)
    starts, phases = _runs(codes)
    kind, unit_starts = _units(account, starts, phases)
    return Course(
        run_starts=starts,
        run_phases=[_PHASES[phase] for phase in phases],
        run_of=_spread(starts, end),
        unit_kind=kind,
        unit_starts=unit_starts,
        unit_of=_spread(unit_starts, end),
        origins=found,
        phases_inferred=not told,
        settled_before=_settled_before(account, kind, unit_starts, starts, phases),
        failures=sorted(history.device_free_bytes),
        last_allocation=history.actions.rfind(_ALLOC),
    )


def _codes(account: Account, found: list[Origin], labelled: dict[int, int]) -> bytearray:
    """Phase codes by entry: labels where they tell, else the stacks of allocations."""
    history = account.replay.history
    table = [_OF_ORIGIN.get(origin, _UNKNOWN) for origin in found]
    # Where nothing else is seen of a training, allocations without a stack are no sign of one.
    table[-1] = _BACKWARD if {_FORWARD, _OPTIMIZER} & set(table) else _UNKNOWN
    stacks = history.stacks
    if not any(labelled.values()):
        codes = bytearray(len(history))
        for entry, action in enumerate(history.actions):
            if action == _ALLOC:
                codes[entry] = table[stacks[entry]]
        return codes
    # One more, so that -1, which stands for no label, finds that nothing is told.
    by_label = [labelled.get(number, _UNKNOWN) for number in range(len(history.label_texts))]
    by_label.append(_UNKNOWN)
    codes = bytearray(map(by_label.__getitem__, history.labels))
    place = codes.find(_UNKNOWN)
    while place >= 0:
        if history.actions[place] == _ALLOC:
            codes[place] = table[stacks[place]]
        place = codes.find(_UNKNOWN, place + 1)
    return codes


_ALLOC: Final = int(Action.ALLOC)


def _runs(codes: bytearray) -> tuple[list[int], list[int]]:
    """First entry and phase of each stretch; lines of the user's own belong to the forward beside them."""
    matches = [(match.start(), codes[match.start()]) for match in _RUNS.finditer(codes)]
    starts: list[int] = []
    phases: list[int] = []
    for place, (start, code) in enumerate(matches):
        if code == _LINE:
            before = phases[-1] if phases else _UNKNOWN
            after = matches[place + 1][1] if place + 1 < len(matches) else _UNKNOWN
            beside = (before, after)
            code = next((one for one in (_FORWARD, _EVALUATION) if one in beside), _OTHER)
        if not phases or phases[-1] != code:
            starts.append(start)
            phases.append(code)
    if set(phases) <= {_OTHER}:
        # Lines of the program's own and nothing beside them tell no phases.
        return [0], [_UNKNOWN]
    starts[0] = 0
    return starts, phases


def _units(account: Account, starts: list[int], phases: list[int]) -> tuple[UnitKind, list[int]]:
    """What counts as an update, and the first entries of each; the first begins with the history."""
    ticks = account.ticks
    if ticks.known:
        updates = [tick.update for tick in ticks.ticks]
        calls = [tick.call for tick in ticks.ticks]
        kind: UnitKind = "update" if len(set(updates)) > 1 or not any(calls) else "call"
        numbers = updates if kind == "update" else calls
        changes = [
            start
            for start, (before, after) in zip(ticks.starts[1:], pairwise(numbers), strict=True)
            if before != after
        ]
        return kind, [0, *changes]
    after_optimizer = _begins_after(starts, phases, _OPTIMIZER)
    if after_optimizer or _OPTIMIZER in phases:
        return "inferred update", [0, *after_optimizer]
    after_backward = _begins_after(starts, phases, _BACKWARD)
    if after_backward:
        return "inferred backward", [0, *after_backward]
    return "none", [0]


def _begins_after(starts: list[int], phases: list[int], done: int) -> list[int]:
    """First entries of the forwards that follow a phase."""
    found: list[int] = []
    seen = False
    for start, phase in zip(starts, phases, strict=True):
        if phase == done:
            seen = True
        elif seen and phase in (_FORWARD, _EVALUATION, _OTHER):
            found.append(start)
            seen = False
    return found


def _spread(starts: list[int], end: int) -> "array[int]":
    """The place of the stretch by entry."""
    spread = array("i")
    for place, (start, stop) in enumerate(pairwise([*starts, end])):
        spread.extend(array("i", [place]) * (stop - start))
    return spread


def _settled_before(
    account: Account, kind: UnitKind, units: list[int], starts: list[int], phases: list[int]
) -> int:
    """The first entry that may belong to the present work, or to what is kept from the work before it."""
    history, settled = account.replay.history, 0
    # A unit in which nothing is allocated has only begun: the frees behind the last step.
    last = history.actions.rfind(_ALLOC)
    begun = [start for start in units if start <= last]
    if len(begun) > 1:
        settled = begun[-2]
    if kind == "update":
        ticks = account.ticks
        newest = ticks.ticks[-1].call
        calls = (
            start
            for start, tick in zip(ticks.starts, ticks.ticks, strict=True)
            if tick.call >= newest - 1
        )
        settled = max(settled, next(calls))
    elif kind != "call" and phases[-1] in (_FORWARD, _EVALUATION):
        settled = max(settled, len(history) - _longest_pass(starts, phases))
    if settled > 0:
        return settled
    works = (_FORWARD, _EVALUATION, _BACKWARD, _OPTIMIZER)
    found = [start for start, phase in zip(starts, phases, strict=True) if phase in works]
    return found[0] if found else len(history)


def _longest_pass(starts: list[int], phases: list[int]) -> int:
    """Twice the entries of the longest forward that a backward followed; more than any history where none did.

    Where no label tells calls, what is older than two passes is neither of this one nor kept from the last.
    """
    longest = max(
        (
            second - first
            for (first, second), (phase, after) in zip(
                pairwise(starts), pairwise(phases), strict=True
            )
            if phase == _FORWARD and after == _BACKWARD
        ),
        default=2**62,
    )
    return 2 * longest
