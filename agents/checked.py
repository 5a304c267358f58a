"""A diagnosis with every claim recomputed from the ledger, before anyone sees it or acts on it. Pure."""

from dataclasses import dataclass

from headroom.agents.protocol import Evidence
from headroom.evidence.claims.check import check_claims, claims_of
from headroom.records.claims import Checked
from headroom.records.diagnosis import Cause, Diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDiagnosis:
    """The causes that stand, with the ledger's own numbers, and the claims that were not accepted as they were made."""

    diagnosis: Diagnosis
    objections: tuple[Checked, ...]


def check_diagnosis(diagnosis: Diagnosis, evidence: Evidence) -> CheckedDiagnosis:
    """Recompute each cause's claims.

    A cause with a refused claim is dropped: what it speaks of is not there. Wrong bytes are replaced by the right ones.
    """
    account = evidence.device if evidence.device is not None else evidence.ledger
    kept: list[Cause] = []
    objections: list[Checked] = []
    for cause in diagnosis.causes:
        results = check_claims(claims_of(cause), account)
        objections += [result for result in results if result.status != "accepted"]
        if not any(result.status == "refused" for result in results):
            kept.append(_corrected(cause, results))
    kept.sort(key=lambda cause: -cause.peak_bytes)
    return CheckedDiagnosis(
        diagnosis=diagnosis.model_copy(update={"causes": tuple(kept)}),
        objections=tuple(objections),
    )


def _corrected(cause: Cause, results: tuple[Checked, ...]) -> Cause:
    for result in results:
        right = result.right
        if right is None:
            continue
        size = right.size_bytes if right.size_bytes is not None else right.earlier_bytes
        if isinstance(size, int) and size != cause.peak_bytes:
            return cause.model_copy(update={"peak_bytes": size})
    return cause
