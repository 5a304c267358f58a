"""The agent without a model: plays read the evidence, and the largest cause goes first."""

from collections import defaultdict
from collections.abc import Sequence

from headroom.agents.plays.base import Finding, Play, share, shown_path
from headroom.agents.plays.collected_tensors import CollectedTensors
from headroom.agents.plays.no_grad import NoGrad
from headroom.agents.plays.retained_graph import RetainedGraph
from headroom.agents.protocol import Evidence
from headroom.evidence.model import Frame
from headroom.records.diagnosis import Candidate, Cause, Diagnosis
from headroom.records.patch import Edit, Patch
from headroom.records.trial import Trial
from headroom.units import format_bytes

_SHOWN_PLACES = 3


class Playbook:
    """Runs built-in plays; needs no model, no key and no network.

    Args:
        plays: What to try; all built-in plays by default.
    """

    def __init__(self, plays: Sequence[Play] | None = None) -> None:
        self._plays: tuple[Play, ...] = (
            (NoGrad(), RetainedGraph(), CollectedTensors()) if plays is None else tuple(plays)
        )

    def diagnose(self, evidence: Evidence) -> Diagnosis:
        """Rank what the plays recognise by bytes of the peak, and say what fills it in any case."""
        causes = [cause for play in self._plays for cause in play.detect(evidence)]
        causes.sort(key=lambda cause: -cause.peak_bytes)
        return Diagnosis(agent="playbook", causes=tuple(causes), largest=describe_peak(evidence))

    def propose(
        self, evidence: Evidence, diagnosis: Diagnosis, tried: tuple[Trial, ...]
    ) -> tuple[Candidate, ...]:
        """Candidates for the causes of the diagnosis, by expected saving; equal ones in the plays' own order."""
        known = {_place(cause) for cause in diagnosis.causes}
        findings = [pair for pair in self._findings(evidence) if _place(pair[1].cause) in known]
        findings.sort(key=lambda pair: -pair[1].saving_bytes)
        seen = [trial.candidate.patch for trial in tried]
        candidates: list[Candidate] = []
        for play, finding in findings:
            for patch in finding.patches:
                if not any(same_edits(patch, other) for other in seen):
                    seen.append(patch)
                    candidates.append(_candidate(play, finding, patch))
        return tuple(candidates)

    def _findings(self, evidence: Evidence) -> list[tuple[Play, Finding]]:
        return [(play, finding) for play in self._plays for finding in play.findings(evidence)]


def _place(cause: Cause) -> tuple[str, str | None, int | None, tuple[str, ...]]:
    """What makes a cause the same one, whatever its bytes were corrected to."""
    return cause.play, cause.file, cause.line, cause.stack_ids


def _candidate(play: Play, finding: Finding, patch: Patch) -> Candidate:
    return Candidate(
        play=play.name,
        numerics=finding.numerics or play.numerics,
        expected_saving_bytes=finding.saving_bytes,
        cause=finding.cause,
        patch=patch,
    )


def same_edits(first: Patch, second: Patch) -> bool:
    """Whether two patches change the same text in the same way, whatever else has moved in the file since."""
    if len(first.edits) != len(second.edits):
        return False
    return all(_same_edit(one, other) for one, other in zip(first.edits, second.edits, strict=True))


def _same_edit(first: Edit, second: Edit) -> bool:
    # In one version of a file, equal lines at different places are different edits.
    if first.sha256 == second.sha256 and first.start != second.start:
        return False
    one = (first.path, first.old_lines, first.new_lines)
    return one == (second.path, second.old_lines, second.new_lines)


def describe_peak(evidence: Evidence) -> str:
    """One sentence on what fills the peak: the lines of the program that hold most of it."""
    ledger = evidence.ledger
    places: dict[Frame | None, int] = defaultdict(int)
    for stack in ledger.stacks:
        places[stack.site] += stack.allocated_bytes
    if ledger.unattributed:
        places[None] += sum(ledger.unattributed.values())
    if not places:
        return "The ledger has no memory at the peak."
    ranked = sorted(places.items(), key=lambda item: -item[1])[:_SHOWN_PLACES]
    parts = [
        f"{_place_name(frame, evidence)} holds {share(ledger, size)}" for frame, size in ranked
    ]
    return f"Of {format_bytes(ledger.peak.allocated_bytes)} at the peak, {', '.join(parts)}."


def _place_name(frame: Frame | None, evidence: Evidence) -> str:
    if frame is None:
        return "memory without a line of the program"
    return f"{shown_path(frame.filename, evidence)}:{frame.line} (`{frame.name}`)"
