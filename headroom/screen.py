"""Candidates are tried on the virtual GPU before a second of real GPU time is spent on one of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from headroom.campaign.runner import Runner
from headroom.errors import PrerequisiteError
from headroom.records.run import RunRecord
from headroom.records.trial import Check
from headroom.verify.checks import compare_work, describe

LEAST_PREDICTED_FALL = 0.01

MOST_SECONDS = 300.0
MOST_OF_BUDGET = 0.2
"""A screening run gets the smaller of these.

On the virtual GPU values are assumed, so a program that waits for its loss to fall may never end there; that must not
cost the campaign its budget.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What the virtual GPU says of a candidate.

    `rejected` is a sentence, or None when it may be tried; `checks` compare its work with that of the state before.
    """

    peak_bytes: int | None
    rejected: str | None
    checks: tuple[Check, ...] = ()


class Screen:
    """Predicts peaks and compares work, without the contract's cap: what does not fit can still be seen to its end.

    Args:
        runner: Runs the program.
        available: Whether the virtual GPU works with the user's interpreter.
    """

    def __init__(self, runner: Runner, *, available: bool) -> None:
        self._runner = runner
        self._available = available
        self._baseline: RunRecord | None = None
        self._baseline_files: Mapping[str, bytes] = {}

    def baseline(self, files: Mapping[str, bytes]) -> int | None:
        """The predicted peak of the state that candidates start from; None where it cannot be predicted."""
        if self._baseline is not None and self._baseline_files == files:
            return self._baseline.peak_allocated_bytes
        record = self._predict("screen, before", files)
        if record is None or record.outcome not in ("completed", "oom"):
            self._available = False
            return None
        self._baseline, self._baseline_files = record, dict(files)
        return record.peak_allocated_bytes

    def look(self, files: Mapping[str, bytes]) -> Screened:
        """Predict a candidate's peak and say whether it deserves the hardware."""
        record = self._predict("screen", files)
        if record is None or self._baseline is None:
            return Screened(peak_bytes=None, rejected=None)
        if record.outcome == "failed":
            return Screened(peak_bytes=None, rejected=f"fails on the virtual GPU: {record.reason}")
        peak_bytes, before = record.peak_allocated_bytes, self._baseline.peak_allocated_bytes
        if peak_bytes is None or before is None or record.outcome != "completed":
            return Screened(peak_bytes=peak_bytes, rejected=None)
        if peak_bytes > before * (1 - LEAST_PREDICTED_FALL):
            return Screened(peak_bytes=peak_bytes, rejected="its predicted peak is no lower")
        checks = compare_work(self._baseline, record)
        failed = next((check for check in checks if check.passed is False), None)
        return Screened(
            peak_bytes=peak_bytes,
            rejected=None if failed is None else f"it changes the work: {describe(failed)}",
            checks=checks if self._baseline.outcome == "completed" else (),
        )

    def _predict(self, what: str, files: Mapping[str, bytes]) -> RunRecord | None:
        if not self._available:
            return None
        limit = min(MOST_SECONDS, MOST_OF_BUDGET * self._runner.seconds_left)
        try:
            record = self._runner.run(
                what, "measure", files, device="virtual", whole_card=True, at_most_seconds=limit
            )
        except PrerequisiteError:
            record = None
        if record is None or record.outcome == "timeout":
            self._available = False
            return None
        return record
