"""The recorder's output: one JSON object a line, each complete as soon as it is written."""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

VERSION = 1

Hook = TypeVar("Hook", bound=Callable[..., Any])


class Lines:
    """Appends events to a file, straight through to the kernel: what was written survives a SIGKILL.

    A forked worker of the program inherits this object; it stays silent there.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._owner = os.getpid()
        self._noted: set[str] = set()

    def write(self, kind: str, **fields: Any) -> None:
        """Write one event. NaN and infinity are written as Python's json does, and read back so."""
        if os.getpid() != self._owner:
            return
        line = json.dumps({"v": VERSION, "kind": kind, **fields})
        os.write(self._file, line.encode() + b"\n")

    def note(self, text: str) -> None:
        """Write down once that something did not work."""
        if text not in self._noted:
            self._noted.add(text)
            self.write("note", text=text)

    def guarded(self, hook: Hook) -> Hook:
        """The hook, unable to harm the program: what it raises becomes a note.

        Only what is no `Exception` passes through (the stop after the updates asked for, Ctrl-C).
        """

        @functools.wraps(hook)
        def safe(*args: Any, **kwargs: Any) -> Any:
            try:
                return hook(*args, **kwargs)
            except Exception as error:
                name = getattr(hook, "__qualname__", repr(hook))
                self.note(f"{name} failed: {type(error).__name__}: {error}")
                return None

        return safe  # type: ignore[return-value]
