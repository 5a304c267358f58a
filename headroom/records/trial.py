"""What trying a candidate gave: checks, verdict, and the campaign's result."""

from typing import Literal

from pydantic import Field

from headroom.records.base import Part, Record
from headroom.records.diagnosis import Candidate
from headroom.records.patch import Patch

VerdictWord = Literal[
    "predicted",
    "measured",
    "verified",
    "rejected",
    "not_reproduced",
    "insufficient_evidence",
    "stopped",
]
Equivalence = Literal["bitwise", "rounding", "statistical", "policy", "unproven", "changed"]


class Check(Part):
    """One comparison of candidate and original. `passed` is null when there was nothing to compare."""

    name: str
    passed: bool | None
    value: str = ""
    expected: str = ""
    where: str = ""


class Verdict(Part):
    """How strong the evidence is. Target and equivalence stand beside it and are never merged into it."""

    word: VerdictWord
    target_met: bool
    equivalence: Equivalence
    kept: bool
    why: str
    checks: tuple[Check, ...] = ()


class Trial(Record):
    """A candidate, the runs that tried it, and the verdict."""

    round: int
    candidate: Candidate
    screened_peak_bytes: int | None = Field(None, description="predicted by the virtual GPU")
    run_id: str | None = None
    peak_bytes: int | None = None
    step_seconds: float | None = None
    verdict: Verdict


class CampaignResult(Record):
    """What `fix --json` prints; the names of the first block are stable."""

    campaign_id: str
    verdict: VerdictWord
    equivalence: Equivalence
    target_met: bool
    target_bytes: int | None
    before_peak_bytes: int | None
    after_peak_bytes: int | None
    patch: str = Field(
        "", description="unified diff against the user's files; empty when nothing is kept"
    )
    rounds: int

    program: str
    device: Literal["cuda", "virtual"]
    card: str
    why: str
    before_is_lower_bound: bool = False
    reference_peak_bytes: int | None = Field(
        None, description="peak of the original with a larger allowance, where it ran out of memory"
    )
    before_step_seconds: float | None = None
    after_step_seconds: float | None = None
    predicted_peak_bytes: int | None = None
    reference: str | None = Field(None, description="what the losses were compared with")
    control_run: str | None = None
    final_run: str | None = None
    checks: tuple[Check, ...] = ()
    kept: Patch | None = None
    after_sources: dict[str, str] = Field(
        {}, description="SHA-256 of each changed file with the patch applied"
    )
    trials: tuple[Trial, ...] = ()
    stopped_by: str | None = Field(None, description="the budget that ended the campaign")
    wall_seconds: float = 0.0
    gpu_seconds: float = 0.0
    notes: tuple[str, ...] = ()
