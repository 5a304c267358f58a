"""What is left at the end of a campaign: the result, and one patch against the user's own files."""

import hashlib
from pathlib import Path

from headroom.agents.diff import unified_diff
from headroom.agents.edits import edits_between
from headroom.campaign.gather import unread_sources
from headroom.campaign.rounds import State, median_step
from headroom.campaign.runner import Runner
from headroom.records.contract import Contract
from headroom.records.patch import Edit, Patch
from headroom.records.trial import CampaignResult, Equivalence, VerdictWord


def kept_patch(state: State) -> Patch | None:
    """All kept candidates as one patch against the user's files; None when nothing was kept."""
    edits: list[Edit] = []
    for path, content in sorted(state.files.items()):
        edits.extend(edits_between(Path(path).read_bytes(), content, path))
    if not edits:
        return None
    return Patch(
        title="; ".join(trial.candidate.patch.title for trial in state.kept),
        reason=" ".join(trial.candidate.patch.reason for trial in state.kept),
        edits=tuple(edits),
    )


def diff_of(state: State, contract: Contract) -> str:
    """The kept state as a unified diff, with paths as the program's outermost folder sees them."""
    # A path that goes through symbolic links is shown as the file that it leads to, which is what git knows.
    real = {path: str(Path(path).resolve()) for path in state.files}
    before = {real[path]: Path(path).read_bytes() for path in state.files}
    after = {real[path]: content for path, content in state.files.items()}
    return unified_diff(before, after, diff_root(contract))


def diff_root(contract: Contract) -> str:
    """The folder that the diff's paths are relative to, and that `git apply` has to be run in."""
    program = contract.program
    holding = [root for root in program.roots if Path(program.cwd).is_relative_to(root)]
    return holding[0] if holding else (program.roots[0] if program.roots else program.cwd)


def summarise(runner: Runner, state: State, stopped: str | None) -> CampaignResult:
    """The campaign's result. `stopped` is the sentence of the budget that ended it, if one did."""
    contract, control = runner.contract, state.control
    word, equivalence, why = _conclusion(state, stopped)
    patch = kept_patch(state)
    info = control.measured.device_info
    last = state.kept[-1] if state.kept else None
    return CampaignResult(
        campaign_id=runner.campaign_id,
        verdict=word,
        equivalence=equivalence,
        target_met=state.target_met,
        target_bytes=_target_bytes(state),
        before_peak_bytes=control.measured.peak_allocated_bytes,
        after_peak_bytes=state.best.peak_allocated_bytes if state.kept else None,
        patch=diff_of(state, contract) if patch else "",
        rounds=state.rounds,
        program=contract.program.label,
        device=contract.device,
        card=info.name if info else contract.card,
        why=why,
        before_is_lower_bound=control.measured.peak_is_lower_bound,
        reference_peak_bytes=control.reference.peak_allocated_bytes if control.reference else None,
        before_step_seconds=median_step(control.reference or control.measured),
        after_step_seconds=median_step(state.best) if state.kept else None,
        predicted_peak_bytes=state.predicted_peak_bytes,
        reference=_reference(state),
        control_run=control.measured.run_id,
        final_run=state.best.run_id if state.kept else None,
        checks=last.verdict.checks if last else (),
        kept=patch,
        after_sources={
            path: hashlib.sha256(content).hexdigest() for path, content in state.files.items()
        },
        trials=tuple(state.trials),
        stopped_by=stopped,
        wall_seconds=runner.elapsed_seconds,
        gpu_seconds=runner.gpu_seconds,
        notes=_notes(state),
    )


def _conclusion(state: State, stopped: str | None) -> tuple[VerdictWord, Equivalence, str]:
    if state.kept:
        last = state.kept[-1].verdict
        why = last.why if stopped is None else f"{last.why}; {stopped}"
        return last.word, last.equivalence, why
    if stopped is not None:
        return "stopped", "unproven", stopped
    if state.trials:
        # What the last trial was rejected for; its equivalence is no property of a result with nothing in it.
        last = state.trials[-1].verdict
        return last.word, "unproven", last.why
    why = "no built-in cure applies"
    return "insufficient_evidence", "unproven", f"{why}. {state.largest}" if state.largest else why


def _target_bytes(state: State) -> int | None:
    """Bytes to reach; what the device gives, where the target is to fit."""
    if state.target_bytes is not None:
        return state.target_bytes
    info = state.control.measured.device_info
    return info.capacity_bytes if info else None


def _reference(state: State) -> str | None:
    if state.control.reference is not None:
        virtual = state.control.reference.device == "virtual"
        return "the original without a limit" if virtual else "the original with the whole card"
    if state.control.measured.outcome == "oom":
        return f"the original's first {state.control.measured.updates} updates"
    return "the original"


def _notes(state: State) -> tuple[str, ...]:
    notes = list(unread_sources(state.control.traced))
    virtual = state.best.virtual
    if virtual is None:
        return tuple(notes)
    notes += virtual.not_modelled
    if virtual.unsupported:
        notes.append(f"operations not modelled: {', '.join(sorted(virtual.unsupported)[:5])}")
    if virtual.assumed_values:
        notes.append(f"{virtual.assumed_values} values were assumed, not computed")
    if virtual.upper_bound_shapes:
        notes.append(
            f"{virtual.upper_bound_shapes} data-dependent shapes were taken at their largest"
        )
    return tuple(notes)
