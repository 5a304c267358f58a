"""Python stacks of allocations, and the forward line that owns each backward allocation.

A stack is a flat tuple: an optional marker, then pairs of (id of a code object, last instruction), innermost first. Ids
are cheap to compare and hash; the code objects are kept alive, so that an id is never used twice.

In the backward pass the engine's device threads run no Python. The allocation then carries `[backward] NodeName` and
the stack of the call that made the node, found by autograd's sequence number.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from enum import Enum, auto
from types import CodeType, FrameType
from typing import Any, Protocol

from .blocks import Stack

BACKWARD_MARKER = "[backward] "
MAX_REMEMBERED = 400_000
"""Nodes whose stack is kept per thread; the older half is dropped beyond."""


class Node(Protocol):
    """What is needed of an autograd node."""

    def name(self) -> str:
        """The node's class, `AddmmBackward0`."""

    def _sequence_nr(self) -> int: ...


class Autograd(Protocol):
    """The three questions put to autograd; torch's answers are bound in `install.py`."""

    def current_node(self) -> Node | None:
        """The node that this thread is evaluating."""

    def next_sequence_number(self) -> int:
        """The number that this thread's next node will get."""


class _Kind(Enum):
    SHOWN = auto()
    HIDDEN = auto()
    RUNPY = auto()
    ENGINE = auto()


class Stacks:
    """Takes, interns and renders stacks.

    Args:
        autograd: see `Autograd`.
        hidden: whether a file's frames are left out (ours, and torch's dispatch wrappers around ours).
    """

    def __init__(self, autograd: Autograd, hidden: Callable[[str], bool]) -> None:
        self._autograd = autograd
        self._hidden = hidden
        self._codes: dict[int, CodeType] = {}
        self._kinds: dict[int, _Kind] = {}
        self._interned: dict[Stack, Stack] = {}
        self._rendered: dict[Stack, list[dict[str, Any]]] = {}
        self._made_by: dict[int, dict[int, Stack]] = {}
        self._forward_threads: set[int] = set()

    def take(self) -> Stack:
        """The stack of the allocation at hand."""
        frames, inside_engine = self._walk()
        node = self._autograd.current_node()
        if frames:
            self._remember(self._intern(frames), forward=node is None)
        if node is None:
            return self._intern(frames)
        marker = BACKWARD_MARKER + node.name()
        return self._intern((marker, *frames, *self._owner(node, inside_engine=inside_engine)))

    def note_forward(self) -> None:
        """Remembers where the node that was just made comes from, if it allocates nothing itself (a view)."""
        number = self._autograd.next_sequence_number() - 1
        if number in self._made_by.get(threading.get_ident(), ()):
            return
        frames, _ = self._walk()
        if frames:
            forward = self._autograd.current_node() is None
            self._remember(self._intern(frames), forward=forward)

    def frames(self, stack: Stack) -> list[dict[str, Any]]:
        """The stack as torch's snapshots show it; the same list for the same stack."""
        shown = self._rendered.get(stack)
        if shown is None:
            shown = self._rendered[stack] = list(self._render(stack))
        return shown

    def _walk(self) -> tuple[Stack, bool]:
        """Frames of this thread, and whether one of them is a call into the autograd engine."""
        found: list[int] = []
        inside_engine = False
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(id(code)) or self._classify(code)
            if kind is _Kind.HIDDEN:
                self._drop_runpy(found)
            else:
                inside_engine = inside_engine or kind is _Kind.ENGINE
                found += (id(code), frame.f_lasti)
            frame = frame.f_back
        self._drop_runpy(found)
        return tuple(found), inside_engine

    def _classify(self, code: CodeType) -> _Kind:
        filename = code.co_filename
        if self._hidden(filename):
            kind = _Kind.HIDDEN
        elif filename == "<frozen runpy>" or filename.endswith("/runpy.py"):
            kind = _Kind.RUNPY
        elif code.co_name == "_engine_run_backward":
            kind = _Kind.ENGINE
        else:
            kind = _Kind.SHOWN
        self._codes[id(code)] = code
        self._kinds[id(code)] = kind
        return kind

    def _drop_runpy(self, found: list[int]) -> None:
        # What lies between the program's first frame and ours is how we started it, not the program.
        while found and self._kinds[found[-2]] is _Kind.RUNPY:
            del found[-2:]

    def _intern(self, stack: Stack) -> Stack:
        return self._interned.setdefault(stack, stack)

    def _remember(self, stack: Stack, *, forward: bool) -> None:
        thread = threading.get_ident()
        made = self._made_by.setdefault(thread, {})
        made.setdefault(self._autograd.next_sequence_number() - 1, stack)
        if forward:
            self._forward_threads.add(thread)
        if len(made) > MAX_REMEMBERED:
            for number in list(made)[: MAX_REMEMBERED // 2]:
                del made[number]

    def _owner(self, node: Node, *, inside_engine: bool) -> Stack:
        """The stack of the call that made `node`, or nothing where that is ambiguous.

        Sequence numbers are counted per thread. A backward pass that was started on this thread (`inside_engine`:
        reentrant checkpoints, nodes of the CPU) evaluates this thread's nodes, any other those of the thread that runs
        the model; with several such threads nobody can tell.
        """
        if inside_engine:
            thread = threading.get_ident()
        elif len(self._forward_threads) == 1:
            (thread,) = self._forward_threads
        else:
            return ()
        return self._made_by.get(thread, {}).get(node._sequence_nr(), ())

    def _render(self, stack: Stack) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        items = iter(stack)
        for item in items:
            if isinstance(item, str):
                shown.append({"filename": "??", "line": 0, "name": item})
                continue
            assert isinstance(item, int)
            code, instruction = self._codes[item], next(items)
            assert isinstance(instruction, int)
            shown.append(
                {
                    "filename": code.co_filename,
                    "line": line_of(code, instruction),
                    "name": code.co_name,
                }
            )
        return shown


def line_of(code: CodeType, instruction: int) -> int:
    """The source line of a bytecode offset."""
    for start, end, line in code.co_lines():
        if line is not None and start <= instruction < end:
            return line
    return code.co_firstlineno
