"""What a campaign promised before it spent any compute."""

import json
import re
from typing import Literal

from pydantic import Field

from headroom.records.base import Part, Record, digest
from headroom.records.run import Device, Program

Level = Literal["predicted", "measured", "verified"]


class Target(Part):
    """Bytes of the peak to reach.

    `auto` is `fit` when the control runs out of memory and 70 % of the control's peak otherwise.
    """

    kind: Literal["auto", "fit", "bytes", "percent"]
    value: float | None = None


class Policy(Part):
    """What a kept patch may do to the numbers, and how strong its evidence must be."""

    numerics: Literal["bitwise", "rounding"] = "rounding"
    require: Level = "predicted"


class Budgets(Part):
    """Where a campaign stops, whatever it has found."""

    rounds: int = Field(6, ge=1, le=6)
    seconds: float = Field(3600, gt=0)


class Contract(Record):
    """Target, policy, invariants and budgets, with everything that identifies what they are about.

    Sealed by `seal`: the digest covers all other fields, and is recomputed before each trial.
    """

    program: Program
    sources: dict[str, str] = Field(description="SHA-256 of the program's entry file, by path")
    device: Device
    card: str = Field(description="the device's name; of the simulated card on a virtual GPU")
    capacity_bytes: int | None = Field(description="cap on the device; null is all of it")
    target: Target
    policy: Policy = Policy()
    invariants: tuple[str, ...] = ("parameters", "updates", "samples", "gradients", "evaluation")
    budgets: Budgets
    seed: int
    updates_limit: int | None = None
    network: bool = False
    sealed: str | None = None

    def expected_seal(self) -> str:
        """SHA-256 over every field but `sealed`."""
        fields = json.loads(self.to_json())
        del fields["sealed"]
        return digest(fields)

    def seal(self) -> "Contract":
        """The same contract with its digest filled in."""
        return self.model_copy(update={"sealed": self.expected_seal()})

    def is_intact(self) -> bool:
        """Whether the digest still fits; a contract that was never sealed is not intact."""
        return (
            self.sealed is not None
            and re.fullmatch(r"[0-9a-f]{64}", self.sealed) is not None
            and (self.sealed == self.expected_seal())
        )
