"""The loop, with a scripted sandbox and agent: what is run, in which order, what is kept, and what ends it."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headroom.agents.edits import edits_between
from headroom.agents.protocol import Evidence
from headroom.campaign.campaign import run_campaign
from headroom.campaign.listener import Silent
from headroom.campaign.runner import Settings
from headroom.errors import BudgetError, PrerequisiteError, UserError
from headroom.journal import read_journal
from headroom.records.contract import Budgets, Contract, Target
from headroom.records.diagnosis import Candidate, Cause, Diagnosis
from headroom.records.patch import Patch
from headroom.records.run import DeviceInfo, OomInfo, RunRecord
from headroom.records.trial import CampaignResult, Trial
from headroom.sandbox.protocol import RunRequest
from headroom.sandbox.scripted import ScriptedSandbox
from headroom.store import Store
from headroom.units import GIB

CAUSE = Cause(kind="other", play="scripted", summary="because", peak_bytes=GIB, stack_ids=("S001",))
CAPPED = DeviceInfo(
    kind="cuda", name="NVIDIA H200", total_memory_bytes=140 * GIB, capacity_bytes=8 * GIB
)
OOM = OomInfo(
    count=1, requested_bytes=GIB, live_bytes=8 * GIB, reserved_bytes=8 * GIB,
    device_free_bytes=0, device_total_bytes=140 * GIB, update=1,
)  # fmt: skip


class ScriptedAgent:
    """Proposes to append one line after another to the program; never one that was tried."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def diagnose(self, evidence: Evidence) -> Diagnosis:
        return Diagnosis(agent="scripted", causes=(CAUSE,), largest="the largest")

    def propose(
        self, evidence: Evidence, diagnosis: Diagnosis, tried: tuple[Trial, ...]
    ) -> tuple[Candidate, ...]:
        titles = {trial.candidate.patch.title for trial in tried}
        (path, content) = next(iter(evidence.files().items()))
        return tuple(
            Candidate(
                play="scripted",
                numerics="exact",
                expected_saving_bytes=GIB,
                cause=CAUSE,
                patch=Patch(
                    title=line,
                    reason="because",
                    edits=edits_between(content, content + line.encode() + b"\n", path),
                ),
            )
            for line in self.lines
            if line not in titles
        )


@dataclass
class Bench:
    """A campaign's ingredients; `peaks` gives the peak for each appended line that is in the program."""

    program: Path
    store: Store
    contract: Contract
    make_run: Callable[..., RunRecord]
    snapshot: Path
    peaks: dict[str, int] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    sandbox: ScriptedSandbox = field(init=False)

    def __post_init__(self) -> None:
        self.sandbox = ScriptedSandbox(self.answer)

    def answer(self, request: RunRequest) -> RunRecord:
        text = request.changed_files.get(str(self.program), self.program.read_bytes()).decode()
        lines = text.splitlines()
        fields: dict[str, Any] = {"peak_allocated_bytes": 10 * GIB}
        if len(lines) == 1:
            fields.update(self.before)
        for line in lines[1:]:
            fields["peak_allocated_bytes"] = min(
                fields["peak_allocated_bytes"], self.peaks.get(line, 10 * GIB)
            )
            fields.update(self.records.get(line, {}))
        fits = request.capacity_bytes is None and (request.device == "cuda" or request.unlimited)
        if fits and fields.get("outcome") == "oom":
            fields = {"peak_allocated_bytes": fields["peak_allocated_bytes"]}
        if request.device == "virtual":
            fields["losses"] = (None, None, None)
        if request.purpose == "trace":
            shutil.copy(self.snapshot, request.folder / "snapshot.pickle")
            fields["snapshot"] = "snapshot.pickle"
        sources = {str(self.program): hashlib.sha256(text.encode()).hexdigest()}
        return self.make_run(**{"device": request.device, "sources": sources, **fields})

    def run(self, *lines: str, screening: bool = True, **changes: Any) -> CampaignResult:
        contract = self.contract.model_copy(update=changes).seal()
        return run_campaign(
            contract,
            agent=ScriptedAgent(*lines),
            sandbox=self.sandbox,
            store=self.store,
            listener=Silent(),
            settings=Settings(card="h200"),
            screening=screening,
        )

    def asked(self) -> list[tuple[str, str, bool]]:
        return [(r.device, r.purpose, bool(r.changed_files)) for r in self.sandbox.requests]


@pytest.fixture
def bench(tmp_path: Path, make_run, make_contract, captures: Path) -> Bench:
    program = tmp_path / "train.py"
    program.write_text("import torch\n")
    store = Store(tmp_path / "store")
    store.prepare()
    contract: Contract = make_contract()
    moved = contract.program.model_copy(
        update={"target": str(program), "cwd": str(tmp_path), "roots": (str(tmp_path),)}
    )
    sources = {str(program): hashlib.sha256(program.read_bytes()).hexdigest()}
    contract = contract.model_copy(update={"program": moved, "sources": sources}).seal()
    return Bench(program, store, contract, make_run, captures / "eval_leak.pickle")


def test_a_candidate_that_meets_the_target_is_kept_as_one_patch(bench):
    bench.peaks = {"a = 1": 5 * GIB}
    result = bench.run("a = 1")
    assert (result.verdict, result.target_met, result.equivalence, result.rounds) == (
        "measured",
        True,
        "bitwise",
        1,
    )
    assert result.target_bytes == 7 * GIB
    assert result.before_peak_bytes == 10 * GIB and result.after_peak_bytes == 5 * GIB
    assert result.patch.splitlines()[-1] == "+a = 1"
    assert result.kept is not None and result.kept.edits[0].path == str(bench.program)
    assert bench.program.read_text() == "import torch\n"


def test_the_order_of_runs_and_that_only_the_last_spends_the_device_on_a_candidate(bench):
    bench.peaks = {"a = 1": 5 * GIB}
    bench.run("a = 1")
    assert bench.asked() == [
        ("cuda", "measure", False),
        ("cuda", "trace", False),
        ("virtual", "measure", False),
        ("virtual", "measure", True),
        ("cuda", "measure", True),
    ]


def test_on_the_virtual_gpu_one_run_is_both_measure_and_trace(bench):
    bench.peaks = {"a = 1": 5 * GIB}
    result = bench.run("a = 1", device="virtual")
    assert bench.asked() == [("virtual", "trace", False), ("virtual", "trace", True)]
    assert (result.verdict, result.equivalence) == ("predicted", "unproven")


def test_under_a_cap_the_original_is_run_with_the_whole_card_for_comparison(bench):
    bench.before = {"outcome": "oom", "oom": OOM, "device_info": CAPPED, "updates": 1, "losses": (3.0,),
                    "samples_per_update": (8,), "peak_is_lower_bound": True}  # fmt: skip
    bench.peaks = {"a = 1": 5 * GIB}
    result = bench.run("a = 1", capacity_bytes=8 * GIB)
    assert [r.capacity_bytes for r in bench.sandbox.requests] == [
        8 * GIB,
        None,
        8 * GIB,
        None,
        None,
        8 * GIB,
    ]
    assert result.equivalence == "bitwise"
    assert result.reference == "the original with the whole card"
    assert result.before_is_lower_bound
    assert result.reference_peak_bytes == 10 * GIB
    assert result.target_bytes == 8 * GIB


def test_where_the_card_has_no_more_the_virtual_gpu_shows_the_rest_of_the_original(bench):
    bench.before = {"outcome": "oom", "oom": OOM, "updates": 0, "losses": (), "samples_per_update": (),
                    "gradients_per_update": (), "call_sites": ()}  # fmt: skip
    bench.peaks = {"a = 1": 5 * GIB}
    real = bench.answer

    def answer(request: RunRequest) -> RunRecord:
        record: RunRecord = real(request)
        if request.device == "cuda" and not request.changed_files:
            return record.model_copy(update=bench.before)
        return record

    bench.sandbox = ScriptedSandbox(answer)
    result = bench.run("a = 1")
    assert [request.unlimited for request in bench.sandbox.requests] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert (result.verdict, result.equivalence, result.target_met) == ("measured", "unproven", True)
    assert result.checks[-1].name == "whole run, on the virtual GPU"
    blind = bench.run("a = 1", screening=False)
    assert (blind.verdict, blind.kept, blind.patch) == ("insufficient_evidence", None, "")


def test_work_that_changes_on_the_virtual_gpu_costs_no_hardware(bench):
    bench.peaks = {"a = 1": 5 * GIB}
    bench.records = {"a = 1": {"gradients_per_update": (1, 1, 0)}}
    result = bench.run("a = 1")
    assert result.trials[0].verdict.why == (
        "screened out: it changes the work: gradients: 0 parameters had one instead of 1 update 3"
    )
    assert ("cuda", "measure", True) not in bench.asked()


def test_steps_on_the_way_add_up_and_the_diff_is_against_the_users_file(bench):
    bench.peaks = {"a = 1": 8 * GIB, "b = 2": 6 * GIB}
    result = bench.run("a = 1", "b = 2", screening=False)
    assert (result.rounds, result.target_met, len(result.trials)) == (2, True, 2)
    assert [line for line in result.patch.splitlines() if line.startswith("+")][1:] == [
        "+a = 1",
        "+b = 2",
    ]
    assert result.after_peak_bytes == 6 * GIB


def test_what_changes_the_training_is_rejected_and_the_next_one_tried(bench):
    bench.peaks = {"a = 1": 2 * GIB, "b = 2": 6 * GIB}
    bench.records = {"a = 1": {"updates": 2}}
    result = bench.run("a = 1", "b = 2", screening=False)
    assert [(t.verdict.word, t.verdict.equivalence) for t in result.trials] == [
        ("rejected", "changed"),
        ("measured", "bitwise"),
    ]
    assert "+a = 1" not in result.patch and "+b = 2" in result.patch


def test_a_rejected_candidate_leaves_the_state_as_it_was(bench):
    bench.records = {"a = 1": {"outcome": "failed", "reason": "ValueError: no"}}
    result = bench.run("a = 1", screening=False)
    assert (result.verdict, result.patch, result.kept) == ("rejected", "", None)
    assert "ValueError: no" in result.why
    assert result.after_peak_bytes is None


def test_the_screen_spares_the_device_a_candidate_that_predicts_no_fall(bench):
    bench.peaks = {"b = 2": 5 * GIB}
    result = bench.run("a = 1", "b = 2")
    assert result.trials[0].verdict.why.startswith("screened out")
    assert result.trials[0].run_id is None
    assert [r for r in bench.asked() if r == ("cuda", "measure", True)] == [
        ("cuda", "measure", True)
    ]
    assert result.predicted_peak_bytes == 5 * GIB
    assert result.rounds == 1


@pytest.mark.parametrize("trouble", [PrerequisiteError("no"), "timeout", "failed"])
def test_where_nothing_can_be_screened_the_device_decides(bench, trouble):
    bench.peaks = {"a = 1": 5 * GIB}
    real = bench.answer

    def answer(request: RunRequest) -> RunRecord:
        if request.device == "virtual" and isinstance(trouble, PrerequisiteError):
            raise trouble
        record: RunRecord = real(request)
        if request.device == "virtual":
            return record.model_copy(update={"outcome": trouble, "reason": "it did"})
        return record

    bench.sandbox = ScriptedSandbox(answer)
    result = bench.run("a = 1")
    assert (result.verdict, result.target_met) == ("measured", True)
    assert result.predicted_peak_bytes is None


def test_nothing_to_propose_is_said_with_what_fills_the_peak(bench):
    result = bench.run()
    assert (result.verdict, result.target_met, result.rounds) == ("insufficient_evidence", False, 1)
    assert "the largest" in result.why


def test_rounds_end_the_campaign(bench):
    result = bench.run("a = 1", "b = 2", "c = 3", screening=False, budgets=Budgets(rounds=2))
    assert (result.rounds, len(result.trials), result.verdict) == (2, 2, "rejected")


def test_seconds_end_the_campaign_and_what_was_kept_stays(bench, monkeypatch):
    bench.peaks = {"a = 1": 8 * GIB}
    clock = iter(range(0, 100000, 60))
    monkeypatch.setattr("headroom.campaign.runner.time.monotonic", lambda: next(clock))
    result = bench.run("a = 1", "b = 2", screening=False, budgets=Budgets(seconds=270))
    assert result.stopped_by == "the budget of 4 min 30 s is used up"
    assert result.kept is not None and not result.target_met
    assert result.verdict == "measured"


def test_seconds_that_end_before_the_control_leave_no_result(bench, monkeypatch):
    clock = iter(range(0, 100000, 60))
    monkeypatch.setattr("headroom.campaign.runner.time.monotonic", lambda: next(clock))
    with pytest.raises(BudgetError):
        bench.run("a = 1", budgets=Budgets(seconds=30))
    (journal,) = (bench.store.folder / "campaigns").glob("*/journal.jsonl")
    assert [entry["kind"] for entry in read_journal(journal)] == ["sealed", "ended"]


def test_a_program_that_is_edited_meanwhile_ends_the_campaign(bench):
    real = bench.answer

    def answer(request: RunRequest) -> RunRecord:
        record: RunRecord = real(request)
        bench.program.write_text("import torch, os\n")
        return record

    bench.sandbox = ScriptedSandbox(answer)
    with pytest.raises(UserError, match="was changed while"):
        bench.run("a = 1")


def test_a_contract_that_was_tampered_with_runs_nothing(bench):
    forged = bench.contract.model_copy(update={"target": Target(kind="percent", value=0.99)})
    with pytest.raises(UserError, match="contract was changed"):
        run_campaign(
            forged,
            agent=ScriptedAgent(),
            sandbox=bench.sandbox,
            store=bench.store,
            listener=Silent(),
            settings=Settings(),
            screening=False,
        )
    assert bench.sandbox.requests == []


def test_the_journal_holds_every_step(bench):
    bench.peaks = {"a = 1": 5 * GIB}
    result = bench.run("a = 1", screening=False)
    folder = bench.store.campaign_folder(result.campaign_id)
    kinds = [entry["kind"] for entry in read_journal(folder / "journal.jsonl")]
    pair = ["run_started", "run_ended"]
    # The scripted cause states a number that is not the ledger's.
    found = ["claim_not_accepted", "diagnosed", "proposed"]
    assert kinds == ["sealed", *pair, *pair, *found, *pair, "judged", "ended"]
    assert (folder / "packs" / "round-1.md").read_text().startswith("#")
    assert (folder / "patch.diff").read_text() == result.patch
    assert all(record.campaign_id == result.campaign_id for record in bench.store.runs())
