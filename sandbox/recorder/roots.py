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
GLOBALS_READ = 10_000


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
    """The program's own variables first, then its globals, then those of the libraries that it calls.

    Variables are those of the calling thread: another thread's frames go on while they are looked at.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stack: set[int] = set()

    def all(self) -> "Iterator[Root]":
        """Every root, in the order in which they are to name what they hold."""
        own: list[FrameType] = []
        foreign: list[FrameType] = []
        link: FrameType | None = sys._getframe(1)
        while link is not None and len(self._stack) < FRAMES_READ:
            name = link.f_code.co_filename
            # Our own frames would hold these lists, which hold them: a cycle that only a collection ends.
            if not own_frame(name) and link.f_code.co_name != STAND_IN:
                self._stack.add(id(link))
                (foreign if is_library(name) else own).append(link)
            link = link.f_back
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
        for name, value in variables(frame, stands=id(frame) in self._stack):
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
            if type(space) is not dict or type(file) is not str or is_library(file):
                continue
            place = Place(self._config.original(file), None, "<module>", GLOBAL)
            for name, value in list(space.items()) if len(space) <= GLOBALS_READ else ():
                if type(name) is str and not name.startswith("__"):
                    yield value, name, place


def _get(kind: type, name: str, value: Any) -> Any:
    return kind.__dict__[name].__get__(value)


def _exceptions() -> "list[BaseException]":
    """The exception that this thread is handling, and the last one that an interactive session printed."""
    held = [sys.exc_info()[1], *(getattr(sys, name, None) for name in ("last_exc", "last_value"))]
    return [value for value in held if isinstance(value, BaseException)]
