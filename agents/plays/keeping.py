"""Suspects of one function into one finding: single edits first, the most probable one ahead, then all together."""

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from headroom.agents.index import Place
from headroom.agents.plays.base import Finding, is_large, share, shown_path
from headroom.agents.plays.forms import Around, needs_torch, text_around
from headroom.agents.plays.holders import Holder
from headroom.agents.plays.hosts import may_live_on_host
from headroom.agents.plays.suspects import Suspect, companions
from headroom.agents.program import Program
from headroom.agents.protocol import Evidence
from headroom.agents.rewrite import patch_for, surround, torch_name
from headroom.agents.syntax import ParsedFile
from headroom.agents.text import Change
from headroom.records.diagnosis import Cause, CauseKind
from headroom.records.patch import Patch

# A trial costs a run; beyond this many single edits of one function the rest is left to the one that makes them all.
_MAX_SINGLES = 4


def findings_of(
    program: Program,
    evidence: Evidence,
    suspects: Sequence[Suspect],
    *,
    play: str,
    kind: CauseKind,
    what: str,
    call: str,
    patches: Callable[[Sequence[Suspect]], tuple[Patch, ...]],
) -> tuple[Finding, ...]:
    """Findings for suspects that are sorted by probability, one for each function.

    Args:
        program: The program that the suspects are in.
        evidence: What the suspects were found in.
        suspects: Statements that may hold what piles up, the most probable first.
        play: Name of the play.
        kind: The cause's kind.
        what: How the values are kept, for the summary.
        call: What is put behind the values of all functions, for the last patch.
        patches: Writes the patches for the suspects of one function.
    """
    by_place: dict[Place, list[Suspect]] = {}
    for suspect in suspects:
        by_place.setdefault(suspect.holder.place, []).append(suspect)
    found = []
    for place, members in by_place.items():
        cause = _cause(evidence, place, members, play=play, kind=kind, what=what)
        if is_large(evidence.ledger, cause.peak_bytes):
            saving_bytes = max(member.saving_bytes for member in members)
            found.append(Finding(cause=cause, patches=patches(members), saving_bytes=saving_bytes))
    joint = _joint(program, by_place.values(), call) if len(found) > 1 else None
    if joint is not None:
        # The very last candidate: where each function holds a part, only all of them together let go.
        last = min(reversed(found), key=lambda finding: finding.saving_bytes)
        at = found.index(last)
        found[at] = replace(last, patches=(*last.patches, joint))
    return tuple(found)


def _joint(program: Program, groups: Iterable[Sequence[Suspect]], call: str) -> Patch | None:
    """One patch for the suspects of all functions."""
    return _patch(program, [member.holder for group in groups for member in group], call)


def _cause(
    evidence: Evidence,
    place: Place,
    members: Sequence[Suspect],
    *,
    play: str,
    kind: CauseKind,
    what: str,
) -> Cause:
    piles = {pile.stack.id: pile for member in members for pile in member.piles}
    size_bytes = sum(pile.size_bytes for pile in piles.values())
    first = members[0].holder
    where = f"`{place.name}`" if place.name else "the program"
    summary = (
        f"{where} keeps values {what} ({shown_path(place.parsed.path, evidence)}:{first.line}): "
        f"{share(evidence.ledger, size_bytes)} is left from earlier updates or calls."
    )
    return Cause(
        kind=kind,
        play=play,
        summary=summary,
        peak_bytes=size_bytes,
        stack_ids=tuple(piles),
        file=place.parsed.path,
        line=first.line,
    )


def patches_of(
    program: Program,
    members: Sequence[Suspect],
    call: str,
    along: Sequence[Callable[[Suspect], tuple[Holder, ...]]] = (lambda _suspect: (),),
) -> tuple[Patch, ...]:
    """Patches that put `call` behind the stored values: one for each suspect, then one for all.

    Each function of `along` gives statements that have to be edited along with a suspect, the next one more of them
    than the one before; it is asked when that one's patches have been written.
    """
    patches: list[Patch | None] = []
    everything: list[Holder] = []
    for beside in along:
        groups = [[member.holder, *beside(member)] for member in members[:_MAX_SINGLES]]
        patches += [_patch(program, group, call) for group in groups]
        everything = [holder for group in groups for holder in group]
    everything += [member.holder for member in members[_MAX_SINGLES:]]
    if everything:
        patches.append(_patch(program, everything, call))
    return tuple(dict.fromkeys(patch for patch in patches if patch is not None))


def host_companions(program: Program) -> tuple[Callable[[Suspect], tuple[Holder, ...]], ...]:
    """What moves to the host along with a suspect: near containers, then far ones, too."""
    return (
        lambda suspect: companions(program, suspect, far=False),
        lambda suspect: companions(program, suspect, far=True),
    )


def _patch(program: Program, holders: Sequence[Holder], call: str) -> Patch | None:
    """One patch that puts the call behind every value of these statements; None where one of them may not move."""
    moves = call.endswith(".cpu()")
    if moves and not may_live_on_host(program, holders):
        return None
    texts: dict[ParsedFile, dict[ast.expr, Around]] = {}
    imports: dict[ParsedFile, tuple[Change, ...]] = {}
    kept: list[Holder] = []
    for holder in holders:
        place, parsed = holder.place, holder.place.parsed
        torch, needed = torch_name(parsed, holder.line)
        for value in holder.values:
            around = text_around(program, place, value, call, torch)
            if around is None:
                continue
            texts.setdefault(parsed, {})[value] = around
            kept.append(holder)
            if needs_torch(around):
                imports[parsed] = needed
    changes = {
        parsed: [*imports.get(parsed, ()), *surround(parsed, by_value)]
        for parsed, by_value in texts.items()
    }
    values = (value for by_value in texts.values() for value in by_value)
    names = ", ".join(dict.fromkeys(f"`{ast.unparse(value)}`" for value in values))
    verb = "Move to the host" if moves else "Detach"
    lines = ", ".join(str(line) for line in sorted({holder.line for holder in kept}))
    return patch_for(changes, title=f"{verb} {names} at line {lines}", reason=_reason(call))


def _reason(call: str) -> str:
    if call == ".detach()":
        return (
            "The stored value keeps its whole graph, and with it every tensor saved for a backward pass that never "
            "comes; detached, it keeps only itself."
        )
    return (
        "The stored values stay on the device for as long as they are collected; on the host they "
        "cost no device memory."
    )
