"""The loop: diagnose, propose, screen, run, judge, keep or revert."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headroom.agents.checked import check_diagnosis
from headroom.agents.edits import apply_patch
from headroom.agents.protocol import Agent, Evidence
from headroom.campaign.control import Control
from headroom.campaign.gather import gather
from headroom.campaign.listener import Listener
from headroom.campaign.runner import Runner
from headroom.errors import PatchError, SnapshotError
from headroom.files import write_atomically
from headroom.journal import Journal
from headroom.records.diagnosis import Candidate, Diagnosis
from headroom.records.run import RunRecord
from headroom.records.trial import Trial, Verdict
from headroom.screen import Screen, Screened
from headroom.store import Store
from headroom.verify.verdict import Originals, judge


@dataclass(slots=True, kw_only=True)
class State:
    """The best state of the program so far, and everything that was tried.

    Args:
        control: The unchanged program's runs.
        target_bytes: Bytes to reach; None to fit.
        best: The run whose peak counts for this state.
        traced: The run with the allocator's history for this state; None when it has not been made yet.
        files: Changed files of this state; empty while it is the original.
    """

    control: Control
    target_bytes: int | None
    best: RunRecord
    traced: RunRecord | None
    files: dict[str, bytes] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    kept: list[Trial] = field(default_factory=list)
    rounds: int = 0
    predicted_peak_bytes: int | None = None
    largest: str = ""

    @property
    def target_met(self) -> bool:
        """Whether the last kept trial met the target."""
        return bool(self.kept) and self.kept[-1].verdict.target_met


class Rounds:
    """Runs rounds on a state until the target is met, nothing is left to try, or a budget ends them."""

    def __init__(
        self,
        *,
        runner: Runner,
        agent: Agent,
        screen: Screen,
        store: Store,
        journal: Journal,
        listener: Listener,
    ) -> None:
        self._runner, self._agent, self._screen = runner, agent, screen
        self._store, self._journal, self._listener = store, journal, listener
        self._folder = store.campaign_folder(runner.campaign_id)

    def work(self, state: State) -> None:
        """Go on until there is nothing more to do. The state says how far it came, also after an exception.

        Raises:
            BudgetError: The contract's seconds are used up.
            KeyboardInterrupt: The user stopped it.
        """
        while state.rounds < self._runner.contract.budgets.rounds and not state.target_met:
            state.rounds += 1
            if not self._round(state):
                return

    def _round(self, state: State) -> bool:
        """One round; says whether it got anywhere, so that another makes sense."""
        evidence = self._evidence(state)
        if evidence is None:
            return False
        checked = check_diagnosis(self._agent.diagnose(evidence), evidence)
        diagnosis = checked.diagnosis
        for objection in checked.objections:
            self._journal.append(
                "claim_not_accepted", round=state.rounds, claim=objection.model_dump(mode="json")
            )
        state.largest = diagnosis.largest
        self._note_diagnosis(state, evidence, diagnosis)
        candidates = self._agent.propose(evidence, diagnosis, tuple(state.trials))
        self._journal.append(
            "proposed", round=state.rounds, candidates=[c.patch.title for c in candidates]
        )
        if not candidates:
            return False
        if self._runner.contract.device == "cuda":
            self._screen.baseline(state.files)
        return self._try_first_that_passes(state, evidence, candidates)

    def _evidence(self, state: State) -> Evidence | None:
        if state.traced is None:
            state.traced = self._runner.run("traced again", "trace", state.files)
        try:
            folder = self._store.run_folder(state.traced.run_id)
            return gather(state.traced, folder, state.files)
        except SnapshotError as error:
            self._journal.append("no_evidence", round=state.rounds, reason=error.message)
            return None

    def _note_diagnosis(self, state: State, evidence: Evidence, diagnosis: Diagnosis) -> None:
        packs = self._folder / "packs"
        packs.mkdir(exist_ok=True)
        write_atomically(packs / f"round-{state.rounds}.md", evidence.pack)
        self._journal.append(
            "diagnosed", round=state.rounds, diagnosis=diagnosis.model_dump(mode="json")
        )
        self._listener.diagnosed(state.rounds, diagnosis)

    def _try_first_that_passes(
        self, state: State, evidence: Evidence, candidates: tuple[Candidate, ...]
    ) -> bool:
        """Spend the round's one real run on the first candidate that the cheap gates let through."""
        for candidate in candidates:
            self._listener.trying(state.rounds, candidate)
            try:
                files = apply_patch(candidate.patch, evidence.files()).files
            except PatchError as error:
                self._finish(state, candidate, None, _refused(f"does not apply: {error.message}"))
                continue
            changed = {**state.files, **files}
            screened = self._look(changed)
            if screened.rejected is not None:
                verdict = _refused(f"screened out: {screened.rejected}")
                self._finish(state, candidate, None, verdict, screened)
                continue
            self._try(state, candidate, changed, screened)
            return True
        return False

    def _look(self, changed: Mapping[str, bytes]) -> Screened:
        if self._runner.contract.device == "virtual":
            return Screened(peak_bytes=None, rejected=None)  # the trial itself is the prediction
        return self._screen.look(changed)

    def _try(
        self, state: State, candidate: Candidate, changed: dict[str, bytes], screened: Screened
    ) -> None:
        contract = self._runner.contract
        virtual = contract.device == "virtual"
        record = self._runner.run("trial", "trace" if virtual else "measure", changed)
        originals = Originals(
            control=state.control.measured, current=state.best, reference=state.control.reference
        )
        verdict = judge(contract, originals, record, state.target_bytes, screened.checks)
        trial = self._finish(state, candidate, record, verdict, screened)
        if verdict.kept:
            state.files = changed
            state.best = record
            state.traced = record if virtual else None
            state.kept.append(trial)
            state.predicted_peak_bytes = (
                record.peak_allocated_bytes if virtual else screened.peak_bytes
            )

    def _finish(
        self,
        state: State,
        candidate: Candidate,
        record: RunRecord | None,
        verdict: Verdict,
        screened: Screened | None = None,
    ) -> Trial:
        trial = Trial(
            round=state.rounds,
            candidate=candidate,
            screened_peak_bytes=screened.peak_bytes if screened else None,
            run_id=record.run_id if record else None,
            peak_bytes=record.peak_allocated_bytes if record else None,
            step_seconds=median_step(record) if record else None,
            verdict=verdict,
        )
        state.trials.append(trial)
        self._journal.append("judged", trial=trial.model_dump(mode="json"))
        self._listener.judged(trial)
        return trial


def median_step(record: RunRecord) -> float | None:
    """Median step time, the first updates (warm-up) left out where there are enough others."""
    steps = [seconds for seconds in record.step_seconds if seconds is not None]
    steps = sorted(steps[2:] if len(steps) > 4 else steps)
    return steps[len(steps) // 2] if steps else None


def _refused(why: str) -> Verdict:
    return Verdict(word="rejected", target_met=False, equivalence="unproven", kept=False, why=why)
