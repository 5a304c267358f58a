"""What an agent says is recomputed before anyone acts on it."""

from pathlib import Path

import pytest

from headroom.agents.checked import check_diagnosis
from headroom.agents.detectors import detect
from headroom.agents.protocol import Evidence
from headroom.evidence.analysis import analyse
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.records.diagnosis import Cause, Diagnosis


@pytest.fixture
def evidence(captures: Path) -> Evidence:
    device = analyse(read_snapshot_file(captures / "eval_leak.pickle")).main
    return Evidence(
        ledger=device.ledger,
        call_sites=(),
        sources={},
        parameters_bytes=0,
        pack="",
        roots=(),
        device=device,
    )


def said(*causes: Cause) -> Diagnosis:
    return Diagnosis(agent="anybody", causes=causes, largest="")


def found(evidence: Evidence) -> Cause:
    assert evidence.device is not None
    (cause,) = detect(evidence.device)
    return cause


def test_what_is_right_stands(evidence: Evidence) -> None:
    cause = found(evidence)
    checked = check_diagnosis(said(cause), evidence)
    assert checked.diagnosis.causes == (cause,)
    assert checked.objections == ()


def test_a_wrong_number_is_replaced_by_the_ledgers(evidence: Evidence) -> None:
    cause = found(evidence)
    checked = check_diagnosis(said(cause.model_copy(update={"peak_bytes": 5})), evidence)
    (kept,) = checked.diagnosis.causes
    assert kept.peak_bytes > 2**30
    assert [one.status for one in checked.objections] == ["corrected"]


def test_what_speaks_of_nothing_is_dropped(evidence: Evidence) -> None:
    cause = found(evidence)
    invented = cause.model_copy(update={"stack_ids": ("S999",)})
    checked = check_diagnosis(said(invented, cause), evidence)
    assert checked.diagnosis.causes == (cause,)
    assert [one.status for one in checked.objections] == ["refused"]
