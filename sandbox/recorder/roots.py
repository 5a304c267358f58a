"""Where a walk over the program's objects begins: variables of frames, exceptions, globals."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from types import FrameType, TracebackType
from typing import Any

from .config import Config
from .frames import STAND_IN
from .launch import own_frame
from .stacks import is_library
from .variables import variables

EXCEPTION, GLOBAL = "exception", "global"
FRAMES_READ = 2_000


@dataclass(frozen=True)
class Place:
    """Where a variable stands; `kind` overrides how what it leads to is held."""

    file: "str | None" = None
    line: "int | None" = None
    function: "str | None" = None
    kind: "str | None" = None


NOWHERE = Place()
Root = tuple[Any, str, Place]
"""An object, its variable's name, and where that stands."""


class Roots:
    """The program's own variables first, then its globals, then those of the libraries that it calls."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def all(self) -> "Iterator[Root]":
        """Every root, in the order in which they are to name what they hold."""
        own: list[FrameType] = []
        foreign: list[FrameType] = []
        for frame in _frames():
            name = frame.f_code.co_filename
            if not own_frame(name) and frame.f_code.co_name != STAND_IN:
                (foreign if is_library(name) else own).append(frame)
        for frame in own:
            yield from self._variables(frame, frame.f_lineno, None)
        for error in _exceptions():
            yield from self.of_exception(error)
        yield from self._globals()
        for frame in foreign:
            yield from self._variables(frame, frame.f_lineno, None)

    def _variables(
        self, frame: FrameType, line: "int | None", kind: "str | None"
    ) -> "Iterator[Root]":
        code = frame.f_code
        if kind is None and not code.co_flags & CO_OPTIMIZED:
            kind = GLOBAL  # the variables of a module that is being executed
        place = Place(self._config.original(code.co_filename), line, code.co_name, kind)
        for name, value in variables(frame):
            yield value, name, place

    def of_exception(self, error: BaseException) -> "Iterator[Root]":
        """Variables of the frames that an exception keeps, its causes' included."""
        seen: set[int] = set()
        waiting: list[BaseException | None] = [error]
        while waiting:
            link = waiting.pop()
            if link is None or id(link) in seen:
                continue
            seen.add(id(link))
            trace: TracebackType | None = _get(BaseException, "__traceback__", link)
            while trace is not None:
                if not own_frame(trace.tb_frame.f_code.co_filename):
                    yield from self._variables(trace.tb_frame, trace.tb_lineno, EXCEPTION)
                trace = trace.tb_next
            waiting += [_get(BaseException, name, link) for name in ("__cause__", "__context__")]

    def _globals(self) -> "Iterator[Root]":
        for module in list(sys.modules.values()):
            space = getattr(module, "__dict__", None) if type(module) is type(sys) else None
            file = space.get("__file__") if type(space) is dict else None
            if space is None or type(file) is not str or is_library(file):
                continue
            place = Place(self._config.original(file), None, "<module>", GLOBAL)
            for name, value in list(space.items()):
                if not name.startswith("__"):
                    yield value, name, place


def _get(kind: type, name: str, value: Any) -> Any:
    return kind.__dict__[name].__get__(value)


def _frames() -> "list[FrameType]":
    """The frames of all threads, this thread's first, innermost first."""
    found: list[FrameType] = []
    mine = sys._getframe(2)
    for frame in (mine, *sys._current_frames().values()):
        link: FrameType | None = frame
        while link is not None and len(found) < FRAMES_READ:
            found.append(link)
            link = link.f_back
    return found


def _exceptions() -> "list[BaseException]":
    """Exceptions that are being handled, and the last one that an interactive session printed."""
    held: list[Any] = []
    current = getattr(sys, "_current_exceptions", None)
    for value in current().values() if current is not None else ():
        held.append(value[1] if isinstance(value, tuple) else value)
    held += [getattr(sys, name, None) for name in ("last_exc", "last_value")]
    return [value for value in held if isinstance(value, BaseException)]
