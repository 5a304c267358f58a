"""The recorder's output: one JSON object a line, each complete as soon as it is written."""

import fcntl
import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

VERSION = 1

Hook = TypeVar("Hook", bound=Callable[..., Any])


HIGH_DESCRIPTOR = 200
"""Programs that turn into daemons close the low descriptors, and reuse them."""


class Lines:
    """Appends events to a file, straight through to the kernel: what was written survives a SIGKILL.

    A forked worker of the program inherits this object; it stays silent there. A full disk ends the recording, not the
    program.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._open()
        self._identity = self._identify()
        self._owner = os.getpid()
        self._noted: set[str] = set()

    def _open(self) -> None:
        low = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)
        os.close(low)

    def _identify(self) -> "tuple[int, int] | None":
        try:
            status = os.fstat(self._file)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    @property
    def owned(self) -> bool:
        """Whether this is the process that is recorded, not one that it forked."""
        return os.getpid() == self._owner

    def write(self, kind: str, **fields: Any) -> None:
        """Write one event. NaN and infinity are written as Python's json does, and read back so."""
        if not self.owned:
            return
        text = json.dumps({"v": VERSION, "kind": kind, **fields}, ensure_ascii=False)
        # File names and messages may hold bytes that are no text: JSON has no place for lone surrogates.
        line = text.encode("utf-8", "replace") + b"\n"
        try:
            if self._identify() != self._identity:
                self._open()  # the program closed our descriptor, and may have opened a file of its own there
            os.write(self._file, line)
        except OSError:
            return

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
