"""Short names for files and stacks: what a reader recognises, with the full path kept beside it."""

import os.path
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from headroom.evidence.model import Frame, Ledger, StackUse
from headroom.evidence.reading.stacks import BACKWARD_PREFIX, display_frames

_PACKAGES: Final = ("/site-packages/", "/dist-packages/")
# The largest stacks show where the program lies.
_LOOKED_AT: Final = 200
_NODE: Final = re.compile(r"torch::autograd::generated::(\w+?)(?:_apply_functional|::apply)")
_OPERATOR: Final = re.compile(r"at::_ops::(\w+)::")
# Functions that only pass a call on.
_PASSING: Final = frozenset({"wrapper", "inner", "forward_call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StackName:
    """What a stack is called: `where` (`train.py:41`), the function there, and what else must be said of it.

    `via` is what that line called of a library (`linear.forward`), empty where it called none.
    """

    where: str
    function: str
    path: str
    hint: str = ""
    via: str = ""

    @property
    def text(self) -> str:
        """The line on one line of text."""
        shown = f"{self.where} {self.function}".strip()
        return f"{shown} ({self.hint})" if self.hint else shown

    @property
    def label(self) -> str:
        """The same with the library's function that the line called, which tells stacks of one line apart."""
        return f"{self.text} · {self.via}" if self.via else self.text


class Names:
    """Shortens paths to what differs among the user's own files.

    Args:
        ledgers: Devices whose stacks will be named.
    """

    def __init__(self, ledgers: Iterable[Ledger]) -> None:
        folders = {
            frame.filename.rpartition("/")[0]
            for ledger in ledgers
            for use in ledger.stacks[:_LOOKED_AT]
            for frame in use.user_frames
            if frame.filename.startswith("/")
        }
        common = os.path.commonpath(folders) if folders else ""
        self._base = "" if common in ("", "/") else common + "/"

    def path(self, filename: str) -> str:
        """A file relative to the folder that holds the user's files, or to its package's folder."""
        if self._base and filename.startswith(self._base):
            return filename[len(self._base) :]
        for folder in _PACKAGES:
            _, found, tail = filename.partition(folder)
            if found:
                return tail
        parts = PurePosixPath(filename).parts
        return filename if len(parts) <= 3 else "…/" + "/".join(parts[-2:])

    def line(self, frame: Frame) -> str:
        """`train.py:41`, or the function where the file is not known."""
        if frame.filename in ("", "??"):
            return frame.name or "unnamed frame"
        return self.path(frame.filename) + (f":{frame.line}" if frame.line else "")

    def stack(self, use: StackUse) -> StackName:
        """The user's innermost line and what it called, or else the innermost named frame."""
        place = self.place(use)
        return place if use.site is None else replace(place, via=_called(use.frames, use.site))

    def place(self, use: StackUse) -> StackName:
        """The same without what was called, which takes a look at all frames."""
        if use.site is not None:
            return self._named(use.site, "backward" if use.backward else "")
        hint = "backward, library code" if use.backward else "library code"
        return self.frames(use.frames, hint)

    def path_of(self, frames: tuple[Frame, ...], site: Frame | None) -> StackName:
        """The same for frames that are no stack of the peak."""
        if site is None:
            return self.frames(frames)
        return replace(self._named(site, ""), via=_called(frames, site))

    def frames(self, frames: tuple[Frame, ...], hint: str = "library code") -> StackName:
        """The innermost line of Python; else the node of a backward or the operator; else any frame."""
        shown = [one for one in display_frames(frames) if not one.name.startswith(BACKWARD_PREFIX)]
        python = [one for one in shown if one.filename.endswith(".py")]
        native = "" if python else _native(shown)
        if native:
            # A node or an operator is no line of a library, so only the backward is left to be said.
            return StackName(where=native, function="", path="", hint=hint.partition(", ")[0])
        for frame in (python or shown)[:1]:
            return self._named(frame, hint)
        return StackName(where="no named frame", function="", path="", hint=hint)

    def _named(self, frame: Frame, hint: str) -> StackName:
        known = frame.filename not in ("", "??")
        return StackName(
            where=self.line(frame),
            function=frame.name if known else "",
            path=f"{frame.filename}:{frame.line}" if known else "",
            hint=hint,
        )


def _called(frames: tuple[Frame, ...], site: Frame) -> str:
    """The library's Python function nearest to the user's line: `linear.forward`, `adam.step`, `module.cuda`."""
    inside = []
    for frame in display_frames(frames):
        if frame == site:
            break
        inside.append(frame)
    for frame in reversed(inside):
        passing = frame.name in _PASSING or frame.name.startswith(("_", "<"))
        if frame.filename.endswith(".py") and not passing:
            return f"{PurePosixPath(frame.filename).stem}.{frame.name}"
    return _native(inside)


def _native(frames: Sequence[Frame]) -> str:
    """The node of a backward that a C++ stack is in, else its outermost operator; empty where it names neither."""
    for pattern in (_NODE, _OPERATOR):
        for frame in reversed(frames):
            found = pattern.search(frame.name)
            if found is not None:
                return found[1]
    return ""
