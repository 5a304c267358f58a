"""What an analysis of a snapshot explains beyond the ledger: composition, timeline, lifetimes, fragmentation, churn.

Frozen dataclasses of plain values, so that the child process that reads a stranger's file can hand them over.
"""

from dataclasses import dataclass, field

from headroom.evidence.model import (
    Category,
    Frame,
    Growth,
    Ledger,
    Lifetime,
    Phase,
    StackId,
    TickKind,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of the peak under one heading. `inferred_bytes` of it were put there by inference."""

    name: str
    allocated_bytes: int
    blocks: int
    inferred_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The peak by category, module and phase, each list closing to the peak, largest first."""

    categories: tuple[Share, ...]
    modules: tuple[Share, ...]
    phases: tuple[Share, ...]
    lifetimes: tuple[Share, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Allocated bytes of one stack (or of the rest) at each point of a timeline."""

    label: str
    stack: StackId | None
    category: Category | None
    allocated_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a timeline, by index of its points, both ends included."""

    first: int
    last: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Memory over the history at a bounded number of points; each is the highest of the entries it stands for.

    `entries[i]` is the entry after which point i holds; `layers` add up to `allocated_bytes` at every point, and
    the device's peak is one of the points. `updates` and `phases` are empty where the recording tells none.
    """

    entries: tuple[int, ...]
    times_us: tuple[int, ...]
    allocated_bytes: tuple[int, ...]
    reserved_bytes: tuple[int, ...]
    layers: tuple[Layer, ...]
    updates: tuple[Span, ...]
    phases: tuple[Span, ...]
    peak_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePeak:
    """Peak and end of one update: `live_bytes` is allocated when the update is complete."""

    update: int
    peak_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeKey:
    """Free memory of one (stream, pool, size class) inside segments at the moment looked at.

    A free piece serves only requests of its own key. `usable` says whether the failing request has this key.
    """

    stream: int
    pool: tuple[int, int]
    small: bool
    free_bytes: int
    largest_bytes: int
    pieces: int
    usable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """Free memory inside segments at the failure, or else at the end of the history.

    `unusable_bytes` is what the request could not use though it was free: other keys, or pieces that are too small.
    `whole` says whether the request would have fitted if that were one piece.
    """

    entry: int
    request_bytes: int | None
    free_bytes: int
    unusable_bytes: int
    largest_usable_bytes: int
    whole: bool
    keys: tuple[FreeKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HotPath:
    """A stack that allocates much over the history, whatever of it is live at the peak.

    `stack` is its ID where it holds bytes of the peak. `per_tick` is allocations per `kind` of tick, None where the
    recording tells neither updates nor calls.
    """

    id: str
    stack: StackId | None
    site: Frame | None
    frames: tuple[Frame, ...]
    allocations: int
    requested_bytes: int
    longest_us: int
    per_tick: float | None
    bytes_per_tick: float | None
    kind: TickKind | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """All allocations of the history, and the paths with the most of them by bytes."""

    allocations: int
    requested_bytes: int
    paths: tuple[HotPath, ...]
    segment_allocations: int
    segment_frees: int
    cache_flushes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnalysis:
    """Everything about one device of a snapshot."""

    ledger: Ledger
    composition: Composition
    timeline: Timeline
    updates: tuple[UpdatePeak, ...]
    settled_growth: tuple[Growth, ...]
    fragmentation: Fragmentation
    churn: Churn


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Everything about a snapshot. `notes` are sentences on what the file does not tell or what was passed over."""

    devices: tuple[DeviceAnalysis, ...]
    settings: dict[str, str]
    file_bytes: int
    notes: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def main(self) -> DeviceAnalysis:
        """The device with the highest peak."""
        return max(
            self.devices,
            key=lambda one: (one.ledger.peak.allocated_bytes, -one.ledger.device),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """One line of the program before and after: bytes at the two peaks.

    `before_line` and `after_line` are None where the line exists in one version only.
    """

    file: str
    name: str
    before_line: int | None
    after_line: int | None
    before_bytes: int
    after_bytes: int

    @property
    def saved_bytes(self) -> int:
        """What the line no longer holds at the peak; negative where it holds more."""
        return self.before_bytes - self.after_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What changed between the peaks of two snapshots; `changes` close to the difference of the peaks."""

    before_bytes: int
    after_bytes: int
    changes: tuple[LineChange, ...]

    @property
    def saved_bytes(self) -> int:
        """By how much the peak fell."""
        return self.before_bytes - self.after_bytes


__all__ = [
    "Analysis",
    "Category",
    "Churn",
    "Composition",
    "DeviceAnalysis",
    "Difference",
    "Fragmentation",
    "FreeKey",
    "HotPath",
    "Layer",
    "Lifetime",
    "LineChange",
    "Phase",
    "Share",
    "Span",
    "Timeline",
    "UpdatePeak",
]
