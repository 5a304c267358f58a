"""What is known of a code object whose frames are met again and again, and calls that stand where their caller stands.

A call of torch's that passes through a Python function of ours would change what warnings say (they name the calling
line). So it is made by a function that is compiled anew for the calling line: same file, same line, same globals.
"""

import os
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from .launch import own_frame

STAND_IN = "<headroom call>"
"""The name of our functions that stand in for a calling line."""
LINES_KEPT = 100_000
DEPTH_KEPT = 256

_TEMPLATE: CodeType = next(
    constant
    for constant in compile("lambda f, a, k: f(*a, **k)", "", "eval").co_consts
    if isinstance(constant, CodeType)
)
_NAMES: dict[str, Any] = {"co_name": STAND_IN}
if sys.version_info >= (3, 11):
    _NAMES["co_qualname"] = STAND_IN


class Kind(IntEnum):
    """What a frame of a code object is to us."""

    SHOWN = 0
    HIDDEN = 1
    MODULE_CALL = 2
    OVERRIDE = 3
    RUNPY = 4


class Code:
    """A code object: its kind, and the stand-ins for its lines, by bytecode offset."""

    __slots__ = ("code", "kind", "stand_ins")

    def __init__(self, code: CodeType, kind: Kind) -> None:
        self.code, self.kind = code, kind
        self.stand_ins: dict[int, CodeType] = {}


class Frames:
    """Knows every code object by its id. It is kept alive, so that an id is never used twice."""

    def __init__(self, torch_folder: Path, module_call: CodeType) -> None:
        self._overrides = str(torch_folder / "overrides.py")
        self.module_call = module_call
        self._codes: dict[int, Code] = {}
        self._lines = 0

    def of(self, code: CodeType) -> Code:
        """What is known of a code object."""
        known = self._codes.get(id(code))
        if known is None:
            known = self._codes[id(code)] = Code(code, self._kind(code))
        return known

    def by_id(self, place: int) -> CodeType:
        """The code object that `of` has met, by its id."""
        return self._codes[place].code

    def _kind(self, code: CodeType) -> Kind:
        name = code.co_filename
        if own_frame(name) or code.co_name == STAND_IN:
            return Kind.HIDDEN
        if code is self.module_call:
            return Kind.MODULE_CALL
        if name == "<frozen runpy>" or name.endswith(os.sep + "runpy.py"):
            return Kind.RUNPY
        if name == self._overrides and code.co_name == "handle_torch_function":
            return Kind.OVERRIDE
        return Kind.SHOWN

    def stand_in(self, frame: FrameType) -> Callable[..., Any]:
        """A function `call(f, args, kwargs)` whose frame looks like the calling line's.

        Only its code is kept: its globals are the caller's, which are not ours to keep alive.
        """
        code = frame.f_code
        known = self._codes.get(id(code)) or self.of(code)
        if known.kind is Kind.OVERRIDE and frame.f_back and frame.f_back.f_back:
            # Called for a function of torch's written in Python: the line is the one that called that function.
            frame = frame.f_back.f_back
            known = self.of(frame.f_code)
        stand_in = known.stand_ins.get(frame.f_lasti)
        if stand_in is None:
            stand_in = _TEMPLATE.replace(
                co_filename=known.code.co_filename,
                co_firstlineno=frame.f_lineno or known.code.co_firstlineno,
                **_NAMES,
            )
            if self._lines < LINES_KEPT:
                self._lines += 1
                known.stand_ins[frame.f_lasti] = stand_in
        return FunctionType(stand_in, frame.f_globals)

    def stack(self, frame: "FrameType | None") -> "tuple[int, ...]":
        """A stack without our frames, innermost first: pairs of (id of a code object, bytecode offset)."""
        found: list[int] = []
        kinds = self._codes
        while frame is not None and len(found) < 2 * DEPTH_KEPT:
            code = frame.f_code
            known = kinds.get(id(code)) or self.of(code)
            if known.kind is Kind.HIDDEN:
                # What lies between the program's first frame and ours is how we started it.
                while found and kinds[found[-2]].kind is Kind.RUNPY:
                    del found[-2:]
            else:
                found += (id(code), frame.f_lasti)
            frame = frame.f_back
        return tuple(found)

    def shown(self, stack: "tuple[int, ...]") -> "list[dict[str, Any]]":
        """A stack as torch's snapshots show it."""
        frames = []
        for place, offset in zip(stack[::2], stack[1::2], strict=True):
            code = self._codes[place].code
            frames.append(
                {"filename": code.co_filename, "line": line_of(code, offset), "name": code.co_name}
            )
        return frames


def line_of(code: CodeType, offset: int) -> int:
    """The source line of a bytecode offset."""
    for start, end, line in code.co_lines():
        if line is not None and start <= offset < end:
            return line
    return code.co_firstlineno
