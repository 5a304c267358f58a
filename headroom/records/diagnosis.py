"""Ranked causes of a peak, each bound to bytes and IDs of the evidence pack."""

from typing import Literal

from pydantic import Field

from headroom.records.base import Part, Record
from headroom.records.patch import Patch

CauseKind = Literal[
    "evaluation_with_graph",
    "retained_graph",
    "collected_tensors",
    "growth",
    "kept_activations",
    "fragmentation",
    "outside_torch",
    "other",
]
Numerics = Literal["exact", "exact_if_replayed", "rounding", "semantic"]


class Cause(Part):
    """One cause: `peak_bytes` of the peak are due to it, shown by the stacks in `stack_ids`."""

    kind: CauseKind
    play: str
    summary: str
    peak_bytes: int = Field(ge=0)
    stack_ids: tuple[str, ...]
    file: str | None = None
    line: int | None = None


class Diagnosis(Record):
    """What an agent makes of an evidence pack; `causes` come largest first."""

    agent: str
    causes: tuple[Cause, ...]
    largest: str = Field(
        description="one sentence on what fills the peak, also when no cause is known"
    )


class Candidate(Record):
    """A patch that an agent proposes, before anything has been measured."""

    play: str
    numerics: Numerics
    expected_saving_bytes: int
    cause: Cause
    patch: Patch
