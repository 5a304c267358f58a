"""The variables of frames that are being executed, read without a trace.

Up to Python 3.12, `frame.f_locals` of a function fills a dictionary that lives as long as the frame: it would keep
tensors alive that the program has let go, and it is the program's own `locals()` if that was called. So the values are
read where the interpreter keeps them; code object and frame are compared first, and nothing is read if they differ.
"""

import ctypes
import inspect
import sys
from types import CellType, CodeType, FrameType
from typing import Any, cast

_HEAD = object.__basicsize__
_READABLE = (
    sys.implementation.name == "cpython" and _HEAD == 16 and not hasattr(sys, "gettotalrefcount")
)
_WORD = 8
MOST_VARIABLES = 10_000
_VALUES_310 = 352
"""`f_localsplus` in `PyFrameObject` of Python 3.10; `f_code` is its second member (`Include/cpython/frameobject.h`)."""
_INNER = {(3, 11): (32, 40, 72), (3, 12): (0, 48, 72)}
"""Offsets of `f_code`, `frame_obj` and `localsplus` in `_PyInterpreterFrame` (`Include/internal/pycore_frame.h`)."""
_OWN_VALUES = 48
"""Offset of `_f_frame_data` in `PyFrameObject` of 3.11 and 3.12: the values of a frame that has returned."""


def variables(frame: FrameType, *, stands: bool) -> "list[tuple[str, Any]]":
    """Names and values of a frame's variables; empty where this interpreter cannot be read.

    Args:
        frame: Any frame.
        stands: Whether the frame surely does not go on meanwhile, as one that called us. What others' frames hold may
            be freed while it is read, so of them only those are read that have returned.
    """
    code = frame.f_code
    if sys.version_info >= (3, 13) or not code.co_flags & inspect.CO_OPTIMIZED:
        return _of_mapping(frame) if stands or getattr(sys, "_is_gil_enabled", _yes)() else []
    place = _values_at(frame, stands=stands) if _READABLE else None
    if place is None:
        return []
    cells = {*code.co_cellvars, *code.co_freevars}
    found = []
    for index, name in enumerate(slots(code)):
        try:
            value = _value(place, index)
        except ValueError:  # not set
            continue
        if name in cells and type(value) is CellType:
            value = contents(value)
        found.append((name, value))
    return found


def variable(frame: FrameType, name: str, indices: "tuple[int, ...]") -> Any:
    """One variable of a frame that called us; None if it is not set or cannot be read.

    Args:
        frame: A frame of this thread.
        name: The variable's name.
        indices: Where `slots` of the frame's code has that name.
    """
    if sys.version_info >= (3, 13):
        return frame.f_locals.get(name)
    place = _values_at(frame, stands=True) if _READABLE else None
    for index in indices if place is not None else ():
        try:
            value = _value(cast(int, place), index)
        except ValueError:
            continue
        return contents(value) if type(value) is CellType else value
    return None


def _of_mapping(frame: FrameType) -> "list[tuple[str, Any]]":
    """Variables of a module or class body, and from Python 3.13 of every frame; a program may have made the mapping."""
    space: Any = frame.f_locals
    if type(space) is not dict and not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return []
    return list(space.items()) if len(space) <= MOST_VARIABLES else []


def _value(place: int, index: int) -> Any:
    """Read in one step, so that no other thread gets in between the pointer and what it points to."""
    return ctypes.py_object.from_address(place + index * _WORD).value


def _yes() -> bool:
    """Up to Python 3.12 there is no interpreter without its lock."""
    return True


def contents(cell: CellType) -> Any:
    """What a cell holds; None if nothing yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def slots(code: CodeType) -> "list[str]":
    """The names of a frame's values, in the order in which the interpreter keeps them."""
    cells = code.co_cellvars
    if sys.version_info >= (3, 11):
        cells = tuple(name for name in cells if name not in code.co_varnames)
    return [*code.co_varnames, *cells, *code.co_freevars]


def _values_at(frame: FrameType, *, stands: bool) -> "int | None":
    """The address of a frame's values, if everything around it is where it should be."""
    if sys.version_info < (3, 11):
        found = _word(id(frame) + _HEAD + 2 * _WORD) == id(frame.f_code)
        return id(frame) + _VALUES_310 if found else None
    offsets = _INNER.get(sys.version_info[:2])
    if offsets is None:
        return None
    code, owner, values = offsets
    inner = _word(id(frame) + _HEAD + _WORD)
    if not stands and inner != id(frame) + _OWN_VALUES:
        return (
            None  # it has not returned: its values are where its thread or its generator keeps them
        )
    if _word(inner + code) != id(frame.f_code):
        return None
    # A frame that has returned owns its values, and has no owner itself.
    if _word(inner + owner) not in (id(frame), 0):
        return None
    return inner + values


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value
