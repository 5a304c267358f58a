"""Shows a campaign while it works: a line for each thing done, a spinner for the run under way."""

from rich.console import Console
from rich.status import Status

from headroom.campaign.target import describe_target
from headroom.records.contract import Contract
from headroom.records.diagnosis import Candidate, Diagnosis
from headroom.records.run import RunRecord
from headroom.records.trial import Trial
from headroom.report.text import plain
from headroom.units import format_bytes, format_seconds


class Live:
    """A `Listener` for the terminal. On anything else than a terminal it prints plain lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def close(self) -> None:
        """Stop the spinner, whatever happens next."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(plain(text, style))

    def planned(self, contract: Contract, sandbox: str) -> None:
        """See `Listener`."""
        program = contract.program
        cap = (
            f", capped at {format_bytes(contract.capacity_bytes)}"
            if contract.capacity_bytes
            else ""
        )
        virtual = " (virtual)" if contract.device == "virtual" else ""
        self._say("This will run; your files stay as they are until you apply a patch:", "bold")
        self._say(f"  program    {' '.join((program.label, *program.args))}")
        self._say(f"  under      {program.python}")
        self._say(f"  on         {contract.card}{virtual}{cap}")
        self._say(f"  in         {sandbox}")
        self._say(f"  target     {describe_target(contract.target)}")
        self._say(
            f"  at most    {contract.budgets.rounds} rounds, {format_seconds(contract.budgets.seconds)}"
        )
        self._say(f"  contract   {(contract.sealed or '')[:12]}, sealed")

    def running(self, what: str, limit_seconds: float) -> None:
        """See `Listener`."""
        if self._console.is_terminal:
            self._status = self._console.status(f"{what}: running")
            self._status.start()

    def ran(self, what: str, record: RunRecord) -> None:
        """See `Listener`."""
        self.close()
        peak = ""
        if record.peak_allocated_bytes is not None:
            bound = "at least " if record.peak_is_lower_bound else ""
            peak = f", peak {bound}{format_bytes(record.peak_allocated_bytes)}"
        self._say(
            f"{what}: {record.outcome}{peak}, {record.updates} updates, {format_seconds(record.wall_seconds)}"
        )

    def diagnosed(self, round_number: int, diagnosis: Diagnosis) -> None:
        """See `Listener`."""
        self._say(f"round {round_number}: {diagnosis.largest}", "bold")
        for cause in diagnosis.causes[:3]:
            self._say(f"  cause: {cause.summary}")

    def trying(self, round_number: int, candidate: Candidate) -> None:
        """See `Listener`."""
        self._say(f"  trying: {candidate.patch.title}")

    def judged(self, trial: Trial) -> None:
        """See `Listener`."""
        verdict = trial.verdict
        word = f"kept, {verdict.word}" if verdict.kept else verdict.word
        self._say(f"  {word}: {verdict.why}", "green" if verdict.kept else "yellow")
