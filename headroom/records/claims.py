"""What somebody says about a peak, in a form that can be recomputed, and what came of recomputing it."""

from typing import Literal

from pydantic import Field

from headroom.records.base import Part

CLAIMS_VERSION = 1
"""Version of the fields below; later versions only add fields."""

Status = Literal["accepted", "corrected", "refused"]

Metric = Literal["peak", "demand", "reserved", "non_torch", "free_in_segments", "unusable"]

Size = int | str
"""Bytes, or a size as it was read, such as `3.17 GiB`."""


class Subject(Part):
    """What a claim is about. Each field that is given narrows it; several IDs are taken together.

    `stack_ids` and `growth_ids` are IDs of the evidence pack. `file` is a path or the end of one; with `line` it means
    what was allocated at or below that line. `module` is a module path, with the modules inside it; `holder` the name
    of what keeps the memory alive. Growth IDs stand alone, and so does `metric`, a figure of the device as a whole:
    `reserved` and `non_torch` at the moment of the balance, `free_in_segments` and the `unusable` part of it at the
    failure.
    """

    stack_ids: tuple[str, ...] = ()
    growth_ids: tuple[str, ...] = ()
    category: str | None = None
    module: str | None = None
    holder: str | None = None
    file: str | None = None
    line: int | None = Field(default=None, ge=1)
    metric: Metric | None = None


class Claim(Part):
    """What is said of the subject; a field that is not given is not claimed.

    `size_bytes` are its allocated bytes at the peak, or those of its metric; `share_percent` their part of the peak.
    `earlier_bytes` are those that earlier updates or calls left behind, `bytes_per_tick` what each update or call
    adds. `line` is a line of the program, `train.py:41`, that most of the bytes were allocated at or below.
    """

    version: int = CLAIMS_VERSION
    subject: Subject
    size_bytes: Size | None = None
    share_percent: float | None = None
    earlier_bytes: Size | None = None
    bytes_per_tick: Size | None = None
    growing: bool | None = None
    lifetime: str | None = None
    category: str | None = None
    line: str | None = None


class Checked(Part):
    """A claim and what the ledger says of it.

    `accepted`: everything claimed is right, within what a reader can read off a pack. `corrected`: the subject is
    there, the fields named in `wrong` are not right, and `right` is the claim with the ledger's values in their place.
    `refused`: there is nothing to compare with; `reason` says why.
    """

    version: int = CLAIMS_VERSION
    status: Status
    claim: Claim
    right: Claim | None = None
    wrong: tuple[str, ...] = ()
    reason: str = ""
