"""What an agent gets and gives: evidence in, a diagnosis and candidate patches out."""

from dataclasses import dataclass
from typing import Protocol

from headroom.agents.text import source_bytes
from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.model import Ledger
from headroom.records.diagnosis import Candidate, Diagnosis
from headroom.records.run import CallSite
from headroom.records.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything an agent may look at.

    `sources` holds the program's own files by absolute path, as the run read them; their text comes from
    `agents.text.source_text`, which keeps every byte, because edits are bound to the hash of the bytes. `roots` are
    the folders that the program's own files lie under. `device` is the whole analysis that the ledger is part of.
    """

    ledger: Ledger
    call_sites: tuple[CallSite, ...]
    sources: dict[str, str]
    parameters_bytes: int
    pack: str
    roots: tuple[str, ...]
    device: DeviceAnalysis | None = None

    def files(self) -> dict[str, bytes]:
        """The program's own files as bytes."""
        return {path: source_bytes(text) for path, text in self.sources.items()}


class Agent(Protocol):
    """Explains a peak and proposes patches; whoever asks measures them."""

    def diagnose(self, evidence: Evidence) -> Diagnosis:
        """Rank the causes of the peak, largest first."""
        ...

    def propose(
        self, evidence: Evidence, diagnosis: Diagnosis, tried: tuple[Trial, ...]
    ) -> tuple[Candidate, ...]:
        """Candidate patches, the most promising first, without any that `tried` holds already."""
        ...
