"""Runs the program, in one state of its files, under the contract and within its budgets."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headroom.campaign.listener import Listener
from headroom.errors import BudgetError, UserError
from headroom.journal import Journal
from headroom.records.contract import Contract
from headroom.records.run import Device, Pass, RunRecord
from headroom.sandbox.collect import INTERRUPTED
from headroom.sandbox.protocol import Limits, RunRequest, Sandbox, Terminal
from headroom.store import Store
from headroom.units import format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to run, apart from what the contract says: nothing here can change a verdict."""

    keep_environment: tuple[str, ...] = ()
    memory_limit_bytes: int | None = None
    card: str | None = None


class Runner:
    """Spends the campaign's seconds. Every run is in the store and the journal before its record is used."""

    def __init__(
        self,
        *,
        campaign_id: str,
        contract: Contract,
        sandbox: Sandbox,
        store: Store,
        journal: Journal,
        listener: Listener,
        settings: Settings,
    ) -> None:
        self.campaign_id = campaign_id
        self.contract = contract
        self._sandbox, self._store, self._journal = sandbox, store, journal
        self._listener, self._settings = listener, settings
        self._started = time.monotonic()
        self.gpu_seconds = 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds of the budget that are not spent."""
        return self.contract.budgets.seconds - self.elapsed_seconds

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the campaign began."""
        return time.monotonic() - self._started

    def run(
        self,
        what: str,
        purpose: Pass,
        files: Mapping[str, bytes],
        *,
        device: Device | None = None,
        whole_card: bool = False,
        at_most_seconds: float | None = None,
    ) -> RunRecord:
        """Run the program with changed `files`.

        Args:
            what: The run's part in the campaign, for journal and listener.
            purpose: The pass.
            files: New contents of changed files, by absolute path.
            device: The contract's device unless this is a screening run.
            whole_card: Leave out the contract's cap; a virtual GPU then never runs out at all.
            at_most_seconds: A limit of this run's own; the record then says `timeout`, and the campaign goes on.

        Raises:
            BudgetError: The seconds are used up, before or during the run.
            UserError: The contract, or a file that it names, was changed after it was sealed.
        """
        self._check_seal()
        left = self._seconds_left()
        seconds = left if at_most_seconds is None else min(left, at_most_seconds)
        run_id, folder = self._store.new_run()
        request = self._request(
            run_id, folder, purpose, files, device or self.contract.device, seconds, whole_card
        )
        self._journal.append(
            "run_started", run=run_id, what=what, purpose=purpose, device=request.device
        )
        self._listener.running(what, seconds)
        record = self._sandbox.run(request, Terminal())
        record = record.model_copy(update={"campaign_id": self.campaign_id})
        self._store.save_run(record)
        if request.device == "cuda":
            self.gpu_seconds += record.wall_seconds
        self._journal.append(
            "run_ended",
            run=run_id,
            outcome=record.outcome,
            peak_allocated_bytes=record.peak_allocated_bytes,
            updates=record.updates,
            wall_seconds=round(record.wall_seconds, 3),
        )
        self._listener.ran(what, record)
        if record.reason == INTERRUPTED:
            raise KeyboardInterrupt
        if record.outcome == "timeout" and seconds == left:
            raise BudgetError(self._out_of_time())
        return record

    def _check_seal(self) -> None:
        contract = self.contract
        if not contract.is_intact():
            raise UserError("the contract was changed after it was sealed", "headroom fix ...")
        for path, digest in contract.sources.items():
            file = Path(path)
            if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                raise UserError(f"{path} was changed while the campaign ran", "headroom fix ...")

    def _seconds_left(self) -> float:
        left = self.seconds_left
        if left <= 0:
            raise BudgetError(self._out_of_time())
        return left

    def _request(
        self,
        run_id: str,
        folder: Path,
        purpose: Pass,
        files: Mapping[str, bytes],
        device: Device,
        seconds: float,
        whole_card: bool,
    ) -> RunRequest:
        contract, settings = self.contract, self._settings
        return RunRequest(
            run_id=run_id,
            folder=folder,
            program=contract.program,
            purpose=purpose,
            device=device,
            card=settings.card,
            capacity_bytes=None if whole_card else contract.capacity_bytes,
            unlimited=whole_card and device == "virtual",
            seed=contract.seed,
            updates=contract.updates_limit,
            limits=Limits(seconds=seconds, memory_bytes=settings.memory_limit_bytes),
            network=contract.network,
            keep_environment=settings.keep_environment,
            changed_files=files,
        )

    def _out_of_time(self) -> str:
        budget = format_seconds(self.contract.budgets.seconds)
        return f"the budget of {budget} is used up"
