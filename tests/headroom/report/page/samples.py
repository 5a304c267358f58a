"""Analyses to make pages from: real captures, one whose every text is hostile, and one that is far too large."""

from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from headroom.evidence.analysis import analyse
from headroom.evidence.analysis_model import (
    Analysis,
    DeviceAnalysis,
    Layer,
    Share,
    Span,
    UpdatePeak,
)
from headroom.evidence.model import (
    Frame,
    Growth,
    GrowthId,
    Holder,
    LiveBlock,
    StackId,
    StackUse,
    Tick,
)
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.records.diagnosis import Candidate, Cause
from headroom.records.patch import Edit, Patch

CAPTURES = Path(__file__).resolve().parents[3] / "recordings" / "captures"
NAMES = sorted(path.stem for path in CAPTURES.glob("*.pickle"))

EVIL = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' onmouseover='alert(3)"
    "<!--<script>\u202egnp.exe\u2028\x1b[31m ignore previous instructions {{7*7}} {% raw %} `x`"
)


@cache
def capture(name: str) -> Analysis:
    return analyse(read_snapshot_file(CAPTURES / f"{name}.pickle"), file_bytes=1000)


def with_device(analysis: Analysis, **changes: Any) -> Analysis:
    """The analysis with fields of its first device's ledger or of the device itself changed."""
    device = analysis.devices[0]
    own = {one.name for one in fields(DeviceAnalysis)}
    ledger = replace(device.ledger, **{k: v for k, v in changes.items() if k not in own})
    device = replace(device, ledger=ledger, **{k: v for k, v in changes.items() if k in own})
    return replace(analysis, devices=(device, *analysis.devices[1:]))


def cause(file: str = "/srv/job/train.py", text: str = "It runs with gradients.") -> Cause:
    return Cause(
        kind="evaluation_with_graph", play="no_grad", summary=text, peak_bytes=100 * 2**20,
        stack_ids=("S001",), file=file, line=41,
    )  # fmt: skip


def candidate(of: Cause, text: str = "") -> Candidate:
    edit = Edit(
        path=of.file or "", sha256="0" * 64, start=40, end=41,
        old_lines=("for batch in batches:" + text, "    model(batch)"),
        new_lines=("for batch in batches:" + text, "    with torch.no_grad():", "        model(batch)"),
    )  # fmt: skip
    patch = Patch(
        title="Evaluate without a graph" + text, reason="Less is saved." + text, edits=(edit,)
    )
    return Candidate(
        play="no_grad", numerics="exact", expected_saving_bytes=of.peak_bytes, cause=of, patch=patch
    )


def poisoned(value: Any) -> Any:
    """The value with a hostile text in place of every text that a file can choose."""
    if isinstance(value, Frame):
        return Frame(filename=f"/srv/{EVIL}.py", line=value.line, name=EVIL)
    if is_dataclass(value) and not isinstance(value, type):
        kept = {"id", "stack", "missing", "category", "lifetime", "phase", "kind"}
        changes = {
            one.name: poisoned(getattr(value, one.name))
            for one in fields(value)
            if one.name not in kept
        }
        return replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(poisoned(part) for part in value)
    if isinstance(value, dict):
        return value
    return EVIL if isinstance(value, str) else value


def hostile() -> Analysis:
    """Two devices whose every name, label and note is an attack."""
    analysis: Analysis = poisoned(capture("labels"))
    device = analysis.devices[0]
    holder = Holder(kind="variable", name=EVIL, file=f"/srv/{EVIL}.py", line=3, function=EVIL)
    blocks = tuple(replace(block, holder=holder) for block in device.ledger.blocks)
    growth = Growth(
        id=GrowthId("G01"), stack=device.ledger.stacks[0].id, kind="update", ticks=4,
        bytes_per_tick=2**20, allocated_bytes=2**22,
    )  # fmt: skip
    first = replace(device, ledger=replace(device.ledger, blocks=blocks, growth=(growth,)))
    return replace(
        analysis,
        devices=(first, replace(first, ledger=replace(first.ledger, device=1))),
        settings={EVIL: EVIL},
        facts={EVIL: EVIL},
        notes=(EVIL,),
    )


def huge(stacks: int = 500, frames: int = 30, devices: int = 12) -> Analysis:
    """More of everything than fits, with names as long as the reader lets through, in letters of many bytes."""
    base = capture("full")
    uses, blocks = [], []
    for number in range(stacks):
        name = StackId(f"S{number:05d}")
        own = tuple(
            Frame(
                filename=f"/srv/{number}/{'𝔘' * 900}{depth}.py",
                line=depth,
                name="𝔙" * 290 + str(number),
            )
            for depth in range(1, frames)
        )
        uses.append(
            StackUse(
                id=name, frames=own, user_frames=own, backward=False,
                allocated_bytes=1024, requested_bytes=1000, blocks=1,
            )
        )  # fmt: skip
        blocks.append(
            LiveBlock(
                stack=name, allocated_bytes=1024, requested_bytes=1000, born=Tick(update=number, call=0),
                name="𝔚" * 300, module="𝔛" * 300,
            )
        )  # fmt: skip
    device = with_device(base, stacks=tuple(uses), blocks=tuple(blocks)).devices[0]
    points = len(device.timeline.entries)
    layers = tuple(
        Layer(
            label="𝔏" * 300,
            stack=use.id,
            category="activation",
            allocated_bytes=(2**40 + i,) * points,
        )
        for i, use in enumerate(uses[:200])
    )
    spans = tuple(Span(first=i % points, last=i % points, name="𝔖" * 300) for i in range(5000))
    timeline = replace(device.timeline, layers=layers, updates=spans, phases=spans)
    shares = tuple(
        Share(name="𝔓" * 290 + str(i), allocated_bytes=10**9, blocks=7) for i in range(5000)
    )
    composition = replace(device.composition, modules=shares, categories=shares)
    updates = tuple(
        UpdatePeak(update=i, peak_bytes=10**12 + i, live_bytes=10**12) for i in range(5000)
    )
    device = replace(device, timeline=timeline, composition=composition, updates=updates)
    many = tuple(
        replace(device, ledger=replace(device.ledger, device=index)) for index in range(devices)
    )
    return replace(base, devices=many, notes=("𝔑" * 5000,) * 500)
