"""The variables of frames that are being executed, read without a trace.

Up to Python 3.12, `frame.f_locals` of a function fills a dictionary that lives as long as the frame: it would keep
tensors alive that the program has let go, and it is the program's own `locals()` if that was called. So the values are
read where the interpreter keeps them; code object and frame are compared first, and nothing is read if they differ.
"""

import ctypes
import inspect
import struct
import sys
from types import CellType, FrameType
from typing import Any

_HEAD = object.__basicsize__
_READABLE = (
    sys.implementation.name == "cpython" and _HEAD == 16 and not hasattr(sys, "gettotalrefcount")
)
_WORD = 8
_VALUES_310 = 352
"""`f_localsplus` in `PyFrameObject` of Python 3.10; `f_code` is its second member (`Include/cpython/frameobject.h`)."""
_INNER = {(3, 11): (32, 40, 72), (3, 12): (0, 48, 72)}
"""Offsets of `f_code`, `frame_obj` and `localsplus` in `_PyInterpreterFrame` (`Include/internal/pycore_frame.h`)."""


def variables(frame: FrameType) -> "list[tuple[str, Any]]":
    """Names and values of a frame's variables; empty where this interpreter cannot be read."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED or sys.version_info >= (3, 13):
        return list(frame.f_locals.items())
    place = _values_at(frame) if _READABLE else None
    if place is None:
        return []
    names = _names(frame)
    cells = {*code.co_cellvars, *code.co_freevars}
    found = []
    pointers = struct.unpack(f"<{len(names)}Q", ctypes.string_at(place, len(names) * _WORD))
    for name, pointer in zip(names, pointers, strict=True):
        if pointer:
            value = ctypes.cast(pointer, ctypes.py_object).value
            if name in cells and type(value) is CellType:
                value = contents(value)
            found.append((name, value))
    return found


def contents(cell: CellType) -> Any:
    """What a cell holds; None if nothing yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(frame: FrameType) -> "list[str]":
    code = frame.f_code
    cells = code.co_cellvars
    if sys.version_info >= (3, 11):
        cells = tuple(name for name in cells if name not in code.co_varnames)
    return [*code.co_varnames, *cells, *code.co_freevars]


def _values_at(frame: FrameType) -> "int | None":
    """The address of a frame's values, if everything around it is where it should be."""
    if sys.version_info < (3, 11):
        found = _word(id(frame) + _HEAD + 2 * _WORD) == id(frame.f_code)
        return id(frame) + _VALUES_310 if found else None
    offsets = _INNER.get(sys.version_info[:2])
    if offsets is None:
        return None
    code, owner, values = offsets
    inner = _word(id(frame) + _HEAD + _WORD)
    if _word(inner + code) != id(frame.f_code):
        return None
    # A frame that has returned owns its values, and has no owner itself.
    if _word(inner + owner) not in (id(frame), 0):
        return None
    return inner + values


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
