"""Describes the exception that ended the program."""

import traceback
from types import TracebackType
from typing import Any

from .config import Config
from .launch import own_frame
from .stacks import is_library

TEXT_LIMIT = 20_000


def is_oom(error: BaseException) -> bool:
    """Whether an out-of-memory error ended the program: this exception, or one it was raised from or while handling."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if type(link).__name__ == "OutOfMemoryError":
            return True
        seen.add(id(link))
        link = link.__cause__ or link.__context__
    return False


def message_of(error: BaseException) -> str:
    """The exception's text; its own `__str__` may fail."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def describe(error: BaseException, config: Config) -> "dict[str, Any]":
    """The fields of `ExceptionInfo`: type, message, and the innermost line of the program's own files."""
    file, line, function = _where(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        file, line, function = error.filename, error.lineno, None
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:
        text = ""
    kind = type(error)
    module = kind.__module__
    return {
        "type": kind.__qualname__
        if module in ("builtins", "__main__")
        else f"{module}.{kind.__qualname__}",
        "message": message_of(error)[:TEXT_LIMIT],
        "file": config.original(file) if file else None,
        "line": line,
        "function": function,
        "traceback": text[-TEXT_LIMIT:],
    }


def _where(trace: "TracebackType | None") -> "tuple[str | None, int | None, str | None]":
    found: tuple[str | None, int | None, str | None] = (None, None, None)
    while trace is not None:
        code = trace.tb_frame.f_code
        if not own_frame(code.co_filename) and not is_library(code.co_filename):
            found = (code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return found
