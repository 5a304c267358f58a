"""Every cause that the playbook finds holds against the ledger that it was found in."""

import ast
from pathlib import Path

import pytest

from headroom.agents.playbook import Playbook
from headroom.agents.protocol import Evidence
from headroom.campaign.gather import gather
from headroom.evidence.claims.check import check_claims, claims_of
from tests.agents.conftest import Writer
from tests.agents.test_playbook import TWO_CAUSES, evidence_of

SCENARIOS = {"evaluation_graph": "evaluation_with_graph", "retained_graph": "retained_graph"}


def assert_causes_hold(evidence: Evidence, *kinds: str) -> None:
    causes = Playbook().diagnose(evidence).causes
    assert set(kinds) <= {cause.kind for cause in causes}
    for cause in causes:
        claims = claims_of(cause)
        assert claims
        for checked in check_claims(claims, evidence.ledger):
            assert checked.status == "accepted", (cause, checked)


def test_causes_of_a_program_with_two() -> None:
    assert "#@call" in TWO_CAUSES
    assert_causes_hold(evidence_of(Writer), "evaluation_with_graph", "retained_graph")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_causes_of_a_recorded_scenario(record, root: Path, torch_python: str, name: str) -> None:
    source = (root / "eval" / "scenarios" / f"{name}.py").read_text()
    assert ast.parse(source)
    done = record(source, python=torch_python, purpose="trace", device="virtual", card="h200")
    assert done.record.outcome == "completed", done.stderr
    assert_causes_hold(gather(done.record, done.folder, {}), SCENARIOS[name])
