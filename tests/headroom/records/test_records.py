import json

import pytest
from pydantic import ValidationError

from headroom.errors import UserError
from headroom.records.base import canonical_json, digest
from headroom.records.contract import Budgets, Contract, Policy
from headroom.records.run import RunRecord


def test_a_run_record_keeps_its_stable_names(make_run) -> None:
    written = json.loads(make_run().to_json())
    stable = {
        "outcome",
        "device",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "updates",
        "losses",
        "pass",
    }
    assert stable <= set(written)
    assert "purpose" not in written


def test_records_survive_a_round_trip_and_unknown_fields(make_run) -> None:
    record = make_run(losses=(float("nan"), None, float("inf"), 0.1))
    again = RunRecord.from_json(record.to_json())
    assert again.to_json() == record.to_json()
    assert str(again.losses[0]) == "nan" and again.losses[1] is None and again.losses[3] == 0.1
    later = json.loads(record.to_json()) | {"invented_later": 1}
    assert RunRecord.from_json(json.dumps(later)).updates == 3


def test_a_newer_schema_is_refused_with_a_sentence(make_run) -> None:
    newer = json.loads(make_run().to_json()) | {"schema_version": 99}
    with pytest.raises(UserError, match="schema version 99"):
        RunRecord.from_json(json.dumps(newer))


def test_records_are_frozen(make_run) -> None:
    with pytest.raises(ValidationError):
        make_run().updates = 5


def test_canonical_json_does_not_depend_on_order() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None]}) == '{"a":[1.5,null],"b":1}'
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})


def test_one_changed_field_breaks_the_seal(make_contract) -> None:
    contract: Contract = make_contract()
    assert contract.is_intact()
    assert Contract.from_json(contract.to_json()).is_intact()
    for change in (
        {"seed": 1},
        {"policy": Policy(require="measured")},
        {"budgets": Budgets(rounds=5)},
    ):
        assert not contract.model_copy(update=change).is_intact()
    assert not contract.model_copy(update={"sealed": None}).is_intact()


def test_rounds_are_bounded() -> None:
    with pytest.raises(ValidationError):
        Budgets(rounds=7)
