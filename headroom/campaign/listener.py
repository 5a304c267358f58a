"""What a campaign tells while it works. The terminal shows it; tests and other front ends may listen too."""

from typing import Protocol

from headroom.records.contract import Contract
from headroom.records.diagnosis import Candidate, Diagnosis
from headroom.records.run import RunRecord
from headroom.records.trial import Trial


class Listener(Protocol):
    """Called in order; nothing is asked of it."""

    def planned(self, contract: Contract, sandbox: str) -> None:
        """The contract is sealed; nothing has run yet."""

    def running(self, what: str, limit_seconds: float) -> None:
        """A run begins."""

    def ran(self, what: str, record: RunRecord) -> None:
        """A run has ended."""

    def diagnosed(self, round_number: int, diagnosis: Diagnosis) -> None:
        """The causes of the peak, as the agent sees them."""

    def trying(self, round_number: int, candidate: Candidate) -> None:
        """A candidate is about to be tried."""

    def judged(self, trial: Trial) -> None:
        """A candidate has its verdict."""


class Silent:
    """Listens and says nothing."""

    def planned(self, contract: Contract, sandbox: str) -> None:
        """Nothing."""

    def running(self, what: str, limit_seconds: float) -> None:
        """Nothing."""

    def ran(self, what: str, record: RunRecord) -> None:
        """Nothing."""

    def diagnosed(self, round_number: int, diagnosis: Diagnosis) -> None:
        """Nothing."""

    def trying(self, round_number: int, candidate: Candidate) -> None:
        """Nothing."""

    def judged(self, trial: Trial) -> None:
        """Nothing."""
