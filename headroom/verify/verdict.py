"""The verdict on a trial: a pure function of the contract and the records of its runs."""

from dataclasses import dataclass

from headroom.records.contract import Contract, Level
from headroom.records.run import RunRecord
from headroom.records.trial import Check, Equivalence, Verdict
from headroom.units import format_bytes
from headroom.verify.checks import compare, describe, is_whole

_STRENGTH: dict[Level, int] = {"predicted": 0, "measured": 1, "verified": 2}

LEAST_FALL = 0.01
"""A peak has to fall by 1 % to count as progress: a choice, so that no patch is kept for a rounding of blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Originals:
    """What a candidate is compared with.

    Args:
        control: The unchanged program under the contract's cap.
        current: The best state so far; the control at first.
        reference: The unchanged program with a larger allowance, where the control ran out of memory and one was made.
    """

    control: RunRecord
    current: RunRecord
    reference: RunRecord | None = None

    @property
    def whole(self) -> RunRecord:
        """The run that shows most of what the original does."""
        return self.reference if self.reference is not None else self.control


def judge(
    contract: Contract,
    originals: Originals,
    trial: RunRecord,
    target_bytes: int | None,
    screened: tuple[Check, ...] = (),
) -> Verdict:
    """Judge one trial.

    Args:
        contract: The sealed contract.
        originals: What the candidate is compared with.
        trial: The candidate's run.
        target_bytes: Bytes to reach; None when the target is to fit at all.
        screened: Checks of the candidate's work against the whole original's, both on the virtual GPU; none failed.
    """
    word: Level = "predicted" if contract.device == "virtual" else "measured"
    if trial.outcome != "completed":
        return _rejected(f"the changed program did not complete: {trial.reason}")
    if trial.peak_allocated_bytes is None:
        return _rejected("the changed program has no peak: it never used the device")
    checks = (*compare(originals.whole, trial), *_summary(screened))
    equivalence = equivalence_of(checks)
    if equivalence == "changed":
        failed = next(check for check in checks if check.passed is False)
        return _rejected(
            f"it changes the work: {describe(failed)}",
            checks,
            equivalence,
        )
    met = target_met(trial, target_bytes)
    if not met and not _fell(originals.current, trial):
        return _rejected(
            f"the peak did not fall: {format_bytes(_peak(trial))} after "
            f"{format_bytes(_peak(originals.current))}",
            checks,
            equivalence,
        )
    missing = _missing_evidence(contract, word, originals.whole, trial, screened)
    return Verdict(
        word=word if missing is None else "insufficient_evidence",
        target_met=met,
        equivalence=equivalence,
        kept=missing is None,
        why=missing or _why_kept(checks, met),
        checks=checks,
    )


def _missing_evidence(
    contract: Contract,
    word: Level,
    original: RunRecord,
    trial: RunRecord,
    screened: tuple[Check, ...],
) -> str | None:
    """Why a candidate that looks good is not kept all the same, or None."""
    if not _is_comparable(original, trial, screened):
        return "the original ran out of memory before its first update: nothing shows that the training is the same"
    if _STRENGTH[word] < _STRENGTH[contract.policy.require]:
        return f"the contract requires {contract.policy.require}, and this run is only {word}"
    return None


def target_met(trial: RunRecord, target_bytes: int | None) -> bool:
    """Whether the run reached the target: no out-of-memory event at all, and no more bytes than asked for."""
    if trial.outcome != "completed" or trial.oom is not None:
        return False
    return target_bytes is None or _peak(trial) <= target_bytes


def equivalence_of(checks: tuple[Check, ...]) -> Equivalence:
    """`changed` if a check failed, `bitwise` if all were made, the losses among them, else `unproven`."""
    if any(check.passed is False for check in checks):
        return "changed"
    return "bitwise" if all(check.passed for check in checks) else "unproven"


def _is_comparable(original: RunRecord, trial: RunRecord, screened: tuple[Check, ...]) -> bool:
    """Whether the original showed any of the training that the candidate does."""
    return is_whole(original) or original.updates > 0 or trial.updates == 0 or bool(screened)


def _summary(screened: tuple[Check, ...]) -> tuple[Check, ...]:
    """The screen's checks as one; what it could not compare leaves the whole of it open."""
    compared = [check.name for check in screened if check.passed]
    if not compared:
        return ()
    value = ", ".join(compared) + " equal"
    left_open = [
        f"{check.name} not compared: {check.value}" for check in screened if not check.passed
    ]
    return (
        Check(
            name="whole run, on the virtual GPU",
            passed=None if left_open else True,
            value="; ".join((value, *left_open)),
        ),
    )


def _fell(current: RunRecord, trial: RunRecord) -> bool:
    """Whether the peak fell. A run that completes where the current state ran out of memory got further."""
    if current.outcome == "oom":
        return True
    return _peak(trial) <= _peak(current) * (1 - LEAST_FALL)


def _peak(record: RunRecord) -> int:
    return record.peak_allocated_bytes or 0


def _why_kept(checks: tuple[Check, ...], met: bool) -> str:
    losses = next(check for check in checks if check.name == "losses")
    open_checks = [
        check.name for check in checks if check.passed is None and check.name != "losses"
    ]
    parts = [
        "target met" if met else "the peak fell, the target is not met yet",
        f"losses: {losses.value}",
    ]
    if open_checks:
        parts.append(f"not compared: {', '.join(open_checks)}")
    return "; ".join(parts)


def _rejected(
    why: str, checks: tuple[Check, ...] = (), equivalence: Equivalence = "unproven"
) -> Verdict:
    return Verdict(
        word="rejected",
        target_met=False,
        equivalence=equivalence,
        kept=False,
        why=why,
        checks=checks,
    )
