"""Evidence written by hand: a small program with marked lines, and a ledger of stacks through those lines.

A program is written as a diff of what the play should make of it: lines start with ` |`, `-|` or `+|`. A mark such as
`#@call` names a line and is removed.
"""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from headroom.agents.edits import apply_patch
from headroom.agents.protocol import Evidence
from headroom.agents.text import source_text
from headroom.evidence.model import (
    Frame,
    Growth,
    GrowthId,
    Ledger,
    LiveBlock,
    Peak,
    StackId,
    StackUse,
    Tick,
)
from headroom.records.patch import Patch
from headroom.records.run import CallSite
from headroom.units import MIB

PATH = "/app/train.py"
_MARK = re.compile(r"[ \t]*#@(\w+)[ \t]*$")
NOW = Tick(update=5, call=40)


@dataclass(frozen=True)
class Written:
    """A program before and after, and the lines that were marked."""

    before: str
    after: str
    lines: dict[str, int]

    def function_at(self, line: int) -> str:
        try:
            tree = ast.parse(self.before)
        except SyntaxError:
            return "<module>"
        found = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.lineno <= line <= (node.end_lineno or 0)
        ]
        return max(found, key=lambda node: node.lineno).name if found else "<module>"


@dataclass(frozen=True)
class Stack:
    """Memory at the peak, allocated at marked lines, innermost first.

    `name:function` gives a frame another function name. `ticks` above 1 makes the stack grow.
    """

    at: Sequence[str]
    mib: float = 100
    ticks: int = 1
    backward: bool = False
    born: Tick | None = NOW
    inner: tuple[Frame, ...] = ()
    frames: tuple[Frame, ...] = field(default=())


def read_case(text: str) -> Written:
    before, after, lines = [], [], {}
    for line in text.strip("\n").split("\n"):
        sign, _, rest = line.partition("|")
        sign = sign.strip()
        assert sign in {"", "-", "+"}, f"no sign on {line!r}"
        mark = _MARK.search(rest)
        rest = _MARK.sub("", rest)
        if sign != "+":
            before.append(rest)
            if mark:
                lines[mark[1]] = len(before)
        if sign != "-":
            after.append(rest)
    return Written("\n".join(before) + "\n", "\n".join(after) + "\n", lines)


def site(program: Written, name: str, **counts: Any) -> CallSite:
    mark, _, function = name.partition(":")
    line = program.lines[mark]
    defaults: dict[str, Any] = {"calls": 8, "eval_calls": 0, "reached_calls": 0, "rows": 32}
    values = {**defaults, **counts}
    values.setdefault("grad_calls", values["calls"])
    module = values.pop("module", "Net")
    return CallSite(
        file=PATH,
        line=line,
        function=function or program.function_at(line),
        module=module,
        **values,
    )


def ledger_of(program: Written, stacks: Sequence[Stack], *, rest_mib: float = 50) -> Ledger:
    uses, blocks, growth = [], [], []
    for number, stack in enumerate(stacks, 1):
        name = StackId(f"S{number:03}")
        frames = []
        for place in stack.at:
            mark, _, function = place.partition(":")
            line = program.lines[mark]
            frames.append(
                Frame(filename=PATH, line=line, name=function or program.function_at(line))
            )
        own = (*stack.inner, *frames)
        size = int(stack.mib * MIB)
        uses.append(
            StackUse(
                id=name,
                frames=stack.frames or own,
                user_frames=own,
                backward=stack.backward,
                allocated_bytes=size,
                requested_bytes=size,
                blocks=stack.ticks,
            )
        )
        blocks += [
            LiveBlock(
                stack=name,
                allocated_bytes=size // stack.ticks,
                requested_bytes=size // stack.ticks,
                born=stack.born,
            )
        ] * stack.ticks
        if stack.ticks > 1:
            growth.append(
                Growth(
                    id=GrowthId(f"G{number}"),
                    stack=name,
                    kind="call",
                    ticks=stack.ticks,
                    bytes_per_tick=size // stack.ticks,
                    allocated_bytes=size,
                )
            )
    total = sum(use.allocated_bytes for use in uses) + int(rest_mib * MIB)
    return Ledger(
        device=0,
        peak=Peak(allocated_bytes=total, requested_bytes=total, entry=0, tick=NOW),
        live_allocated_bytes=total,
        live_requested_bytes=total,
        reserved_bytes=total,
        peak_reserved_bytes=total,
        complete=True,
        entries=1000,
        stacks=tuple(uses),
        blocks=tuple(blocks),
        unattributed={"before recording": int(rest_mib * MIB)} if rest_mib else {},
        growth=tuple(growth),
        failure=None,
    )


def evidence_of(
    program: Written,
    sites: Sequence[CallSite],
    stacks: Sequence[Stack],
    *,
    rest_mib: float = 50,
    files: dict[str, str] | None = None,
) -> Evidence:
    return Evidence(
        ledger=ledger_of(program, stacks, rest_mib=rest_mib),
        call_sites=tuple(sites),
        sources={PATH: source_text(program.before.encode()), **(files or {})},
        parameters_bytes=0,
        pack="",
        roots=("/app",),
    )


def patched(evidence: Evidence, patch: Patch) -> str:
    """The program after a patch; checks that it applies and compiles."""
    applied = apply_patch(patch, evidence.files())
    assert applied.relocated == ()
    data = applied.files[PATH]
    compile(data, PATH, "exec")
    return data.decode()


class Writer:
    """What tests get: the helpers above in one object."""

    path = PATH
    now = NOW

    @staticmethod
    def frame(filename: str, line: int, name: str) -> Frame:
        return Frame(filename=filename, line=line, name=name)

    Stack = Stack
    read = staticmethod(read_case)
    site = staticmethod(site)
    evidence = staticmethod(evidence_of)
    ledger = staticmethod(ledger_of)
    patched: Callable[[Evidence, Patch], str] = staticmethod(patched)


@pytest.fixture
def writer() -> type[Writer]:
    return Writer
