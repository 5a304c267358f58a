"""Evaluation that builds a graph which nobody uses: run it without gradients."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from headroom.agents.foreign import UNKNOWN_MODULE
from headroom.agents.plays.base import (
    Finding,
    Play,
    forward_stacks,
    is_at,
    is_large,
    share,
    shown_path,
    total_bytes,
)
from headroom.agents.plays.guards import Guard, MayTrain, Site, find_guard
from headroom.agents.plays.modes import evaluates_beside_training, find_mode_guard
from headroom.agents.program import Program, read_program
from headroom.agents.protocol import Evidence
from headroom.agents.rewrite import patch_for
from headroom.agents.text import Change
from headroom.evidence.model import Frame, StackUse
from headroom.records.diagnosis import Cause, Numerics
from headroom.records.patch import Patch
from headroom.records.run import CallSite

_FUSED = frozenset(
    {"MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerEncoderLayer"}
)


class NoGrad(Play):
    """Calls of modules with gradients on whose output no gradient ever came back to.

    What a call is for is measured, not read: neither the words `eval` or `no_grad` in the text nor a guard that does
    nothing decide.
    """

    name = "no_grad"
    numerics: Numerics = "exact"

    def findings(self, evidence: Evidence) -> tuple[Finding, ...]:
        """One finding for each guard that is missing, with all the call sites that it would cover."""
        program = read_program(evidence)
        covered: dict[Guard, list[CallSite]] = defaultdict(list)
        for site in evidence.call_sites:
            guard = None
            if evaluates_beside_training(site, evidence):
                guard = find_mode_guard(program, site)
            elif site.grad_calls > 0 and not _was_reached(site, evidence):
                guard = _guard_for(program, evidence, site)
            if guard is not None:
                covered[guard].append(site)
        found = [
            _finding(program, evidence, covered[guard], _patches(guard, tuple(covered)))
            for guard in covered
        ]
        return tuple(item for item in found if is_large(evidence.ledger, item.cause.peak_bytes))


def _was_reached(site: CallSite, evidence: Evidence) -> bool:
    """Whether a gradient came back to any module called on the line of this site."""
    return any(
        other.reached_calls > 0
        for other in evidence.call_sites
        if (other.file, other.line) == (site.file, site.line)
    )


def _stacks_through(sites: Sequence[CallSite], evidence: Evidence) -> list[StackUse]:
    return [
        stack
        for stack in forward_stacks(evidence.ledger)
        if any(is_at(frame, site) for frame in stack.user_frames for site in sites)
    ]


def _guard_for(program: Program, evidence: Evidence, site: CallSite) -> Guard | None:
    """A guard at the site's own line, else around one of the calls that lead to it."""
    trained = any(other.reached_calls > 0 for other in evidence.call_sites)
    eval_mode = site.eval_calls == site.calls
    proven = site.calls >= 2 and trained
    stacks = _stacks_through([site], evidence)
    largest = max(stacks, key=lambda stack: stack.allocated_bytes, default=None)
    own = Frame(filename=site.file, line=site.line, name=site.function)
    for frame in (own, *_direct_callers(largest, site)):
        parsed = program.files.get(frame.filename)
        if parsed is None:
            continue
        place = Site(
            parsed=parsed, line=frame.line, function=frame.name, proven=proven, eval_mode=eval_mode
        )
        try:
            guard = find_guard(program, place)
        except MayTrain:
            return None
        if guard is not None:
            return guard
    return None


def _direct_callers(stack: StackUse | None, site: CallSite) -> list[Frame]:
    """The frames outside a call site, up to the first that calls it through a library.

    What else a library's loop runs is unknown: it may train.
    """
    if stack is None:
        return []
    frames, user = list(stack.frames), list(stack.user_frames)
    at = next(i for i, frame in enumerate(user) if is_at(frame, site))
    callers = []
    for inner, outer in zip(user[at:], user[at + 1 :], strict=False):
        if inner not in frames or frames[frames.index(inner) + 1 :][:1] != [outer]:
            break
        callers.append(outer)
    return callers


def _patches(guard: Guard, guards: Sequence[Guard]) -> tuple[Patch, ...]:
    """The guard alone; then with those of all other evaluations, one of which may peak just as high."""
    alone = patch_for({guard.parsed: guard.changes}, title=_title([guard]), reason=_reason(guard))
    chosen = [guard]
    changes = {guard.parsed: guard.changes}
    for other in guards:
        joined = tuple(dict.fromkeys((*changes.get(other.parsed, ()), *other.changes)))
        if other is not guard and not _overlap(joined):
            chosen.append(other)
            changes[other.parsed] = joined
    together = patch_for(changes, title=_title(chosen), reason=_reason(guard))
    return tuple(dict.fromkeys(patch for patch in (alone, together) if patch is not None))


def _overlap(changes: Iterable[Change]) -> bool:
    ordered = sorted(changes, key=lambda change: (change.start, change.count))
    return any(
        second.start < first.start + first.count for first, second in itertools.pairwise(ordered)
    )


def _title(guards: Sequence[Guard]) -> str:
    return f"Run {' and '.join(guard.what for guard in guards)} without gradients"


def _reason(guard: Guard) -> str:
    return (
        f"Modules called in {guard.what} run with gradients on, so every intermediate result is kept for a backward "
        "pass that nobody asks for; under no_grad each is freed as soon as the next layer has used it."
    )


def _saw_backward(evidence: Evidence) -> bool:
    """Whether any backward pass ran before the record ends; without one, that no gradient came says nothing."""
    ledger = evidence.ledger
    return (
        any(site.reached_calls > 0 for site in evidence.call_sites)
        or any(stack.backward for stack in ledger.stacks)
        or ledger.peak.tick.update > 0
    )


def _numerics(program: Program, sites: Sequence[CallSite]) -> Numerics:
    """In eval mode and without gradients, torch runs its transformer layers as one fused operation.

    See `torch.nn.TransformerEncoderLayer`, "fast path"; its results are rounded differently.
    """
    fused = any(program.mentions.get(name) for name in _FUSED if name not in program.classes)
    seen = any(site.module in _FUSED for site in sites)
    in_eval = any(site.eval_calls > 0 for site in sites)
    return "rounding" if in_eval and (fused or seen) else NoGrad.numerics


def _finding(
    program: Program,
    evidence: Evidence,
    sites: Sequence[CallSite],
    patches: tuple[Patch, ...],
) -> Finding:
    stacks = _stacks_through(sites, evidence)
    size_bytes = total_bytes(stacks)
    first = sites[0]
    calls = sum(site.grad_calls for site in sites)
    # Stacks alone show that modules are called, not how often.
    counted = all(site.module != UNKNOWN_MODULE for site in sites)
    times = f" {calls} {'time' if calls == 1 else 'times'}" if counted else ""
    seen = (
        "and no gradient ever comes back"
        if _saw_backward(evidence)
        else "and by the program's text nobody needs their gradients, though no backward pass had run yet to show it"
    )
    summary = (
        f"`{first.function}` ({shown_path(first.file, evidence)}:{first.line}) calls modules{times} "
        f"with gradients on, {seen}: {share(evidence.ledger, size_bytes)} is their graph and what it holds."
    )
    cause = Cause(
        kind="evaluation_with_graph",
        play=NoGrad.name,
        summary=summary,
        peak_bytes=size_bytes,
        stack_ids=tuple(stack.id for stack in stacks),
        file=first.file,
        line=first.line,
    )
    return Finding(
        cause=cause,
        patches=patches,
        saving_bytes=size_bytes,
        numerics=_numerics(program, sites),
    )
