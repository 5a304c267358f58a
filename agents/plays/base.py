"""What a play is, and the arithmetic all plays share: bytes of the peak, by stack.

A play proposes only where its bytes are in the ledger: text that looks like a mistake, but holds nothing at the peak,
gives no cause.
"""

import os.path
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from headroom.agents.protocol import Evidence
from headroom.evidence.model import Frame, Ledger, StackUse
from headroom.records.diagnosis import Cause, Numerics
from headroom.records.patch import Patch
from headroom.records.run import CallSite
from headroom.units import MIB, format_bytes

# Below either limit a cure is not worth a trial: a trial costs a run, and its gain drowns in the allocator's rounding.
MIN_SHARE = 0.02
MIN_BYTES = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause with the patches against it, the most probable first, and what they might save.

    `numerics` is what these patches do to results, where that is not what the play does in general.
    """

    cause: Cause
    patches: tuple[Patch, ...]
    saving_bytes: int
    numerics: Numerics | None = None


class Play(Protocol):
    """One cure: recognise its cause in evidence and syntax tree, and write the edits.

    Subclasses give `findings`; a finding without patches is reported and nothing is proposed for it.
    """

    name: str
    numerics: Numerics

    def findings(self, evidence: Evidence) -> tuple[Finding, ...]:
        """The causes of this kind that hold bytes of the peak."""
        ...

    def detect(self, evidence: Evidence) -> tuple[Cause, ...]:
        """The causes alone."""
        return tuple(finding.cause for finding in self.findings(evidence))

    def edits(self, evidence: Evidence, cause: Cause) -> tuple[Patch, ...]:
        """The patches against a cause that `detect` gave for the same evidence, the most probable first."""
        found = (item.patches for item in self.findings(evidence) if item.cause == cause)
        return next(found, ())


def is_large(ledger: Ledger, size_bytes: int) -> bool:
    """Whether bytes are worth a trial: at least `MIN_SHARE` of the peak and `MIN_BYTES`."""
    return size_bytes >= MIN_BYTES and size_bytes >= MIN_SHARE * ledger.peak.allocated_bytes


def share(ledger: Ledger, size_bytes: int) -> str:
    """`3.17 GiB (61 % of the peak)`."""
    part = size_bytes / ledger.peak.allocated_bytes if ledger.peak.allocated_bytes else 0.0
    return f"{format_bytes(size_bytes)} ({part:.0%} of the peak)".replace("%", " %")


def total_bytes(stacks: Iterable[StackUse]) -> int:
    """Allocated bytes at the peak of stacks, each counted once."""
    return sum({stack.id: stack.allocated_bytes for stack in stacks}.values())


def forward_stacks(ledger: Ledger) -> tuple[StackUse, ...]:
    """Stacks with memory at the peak that the forward pass or the program itself allocated."""
    return tuple(stack for stack in ledger.stacks if not stack.backward and stack.user_frames)


def is_at(frame: Frame, site: CallSite) -> bool:
    """Whether a frame stands at a call site."""
    return frame.filename == site.file and frame.line == site.line


def sites_of(stack: StackUse, sites: Iterable[CallSite]) -> tuple[CallSite, ...]:
    """The call sites that a stack passes through."""
    return tuple(site for site in sites if any(is_at(frame, site) for frame in stack.user_frames))


def shown_path(path: str, evidence: Evidence) -> str:
    """A path for people: relative to the program's root that holds it, else the file's name."""
    for root in evidence.roots:
        relative = os.path.relpath(path, root)
        if not relative.startswith(".."):
            return relative
    return os.path.basename(path)  # noqa: PTH119 - text only; the file need not exist here
