"""The source in a pack: windows around the lines that hold memory first, then the rest of the files, in pieces.

Windows are numbered before anybody knows which of them fit, so an ID means the same lines at every budget.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from headroom.evidence.model import Failure, Frame
from headroom.evidence.pack.facts import fraction
from headroom.evidence.pack.groups import StackGroup
from headroom.evidence.pack.items import Cut, Item
from headroom.evidence.reading.stacks import user_frames
from headroom.evidence.source import SourceWindow, source_windows
from headroom.evidence.text import clean_line, quoted

_FRAMES_WITH_SOURCE: Final = 3
_LINE_LIMIT: Final = 240
_WINDOW_LINES: Final = 40
# Far more than fits into the largest budget.
_MOST_WINDOWS: Final = 4000

# A window is worth a part of the bytes that pass through its lines; the innermost line says most.
_WORTH: Final = (0.3, 0.1, 0.05)
_WORTH_FAILURE: Final = 0.1
# What names no memory comes last, in its order.
_WORTH_REST: Final = 1e-9


class Windows:
    """All windows of the sources with their IDs, those that the largest stacks need first."""

    def __init__(
        self, groups: Sequence[StackGroup], failure: Failure | None, sources: Mapping[str, str]
    ) -> None:
        self._worth: dict[tuple[str, int], int] = {}
        failing = user_frames(failure.stack) if failure is not None else ()
        wanted: dict[tuple[str, int], None] = {}
        for frames in (*(group.user_frames for group in groups), failing):
            for frame in frames[:_FRAMES_WITH_SOURCE]:
                wanted.setdefault((frame.filename, frame.line))
        near = _in_order_of_need(wanted, _pieces(_near(sources, wanted)))
        self._named = len(near)
        windows = [*near, *_rest(sources, near)][:_MOST_WINDOWS]
        self._windows = [(f"L{number:02d}", one) for number, one in enumerate(windows, start=1)]
        self._by_path: dict[str, list[tuple[str, SourceWindow]]] = {}
        for number, window in self._windows:
            self._by_path.setdefault(window.path, []).append((number, window))
        self._groups, self._failing = groups, failing

    def code(self, frame: Frame | None) -> str:
        """The text of a frame's line; empty where no source is known."""
        if frame is None:
            return ""
        window = self._holding(frame)
        return window[1].lines[frame.line - window[1].first_line] if window else ""

    def showing(self, frames: Sequence[Frame]) -> tuple[str, ...]:
        """IDs of the windows that show the innermost frames of a stack."""
        found = (self._holding(frame) for frame in frames[:_FRAMES_WITH_SOURCE])
        return tuple(dict.fromkeys(window[0] for window in found if window))

    def items(self, peak_bytes: int) -> Iterator[Item]:
        """A piece for each window."""
        worth = self._worths(peak_bytes)
        for place, (number, window) in enumerate(self._windows):
            text = [
                f"{line_number:5d} | {clean_line(line, _LINE_LIMIT)}".rstrip()
                for line_number, line in enumerate(window.lines, start=window.first_line)
            ]
            fence = _fence(text)
            name = _place(window)
            yield Item(
                key=number,
                section="source",
                place=(place,),
                value=worth.get(number, 0.0) or _WORTH_REST,
                cut=Cut(noun="source window|s"),
                lines=("", f"### {number} {name}", f"{fence}text", *text, fence),
                index=f"{number} {_place(window, full=False)}" if place < self._named else "",
                ids=(number,),
            )

    def _worths(self, peak_bytes: int) -> dict[str, float]:
        worth: dict[str, float] = {}
        for group in self._groups:
            part = fraction(group.allocated_bytes, peak_bytes)
            for frame, weight in zip(group.user_frames, _WORTH, strict=False):
                window = self._holding(frame)
                if window:
                    worth[window[0]] = worth.get(window[0], 0.0) + weight * part
        for frame in self._failing[:1]:
            window = self._holding(frame)
            if window:
                worth[window[0]] = worth.get(window[0], 0.0) + _WORTH_FAILURE
        return worth

    def _holding(self, frame: Frame) -> tuple[str, SourceWindow] | None:
        for number, window in self._by_path.get(frame.filename, ()):
            if window.holds(frame.filename, frame.line):
                return number, window
        return None


def _near(sources: Mapping[str, str], wanted: Iterable[tuple[str, int]]) -> Iterable[SourceWindow]:
    lines: dict[str, set[int]] = {}
    for path, line in wanted:
        lines.setdefault(path, set()).add(line)
    return source_windows(sources, lines)


def _pieces(windows: Iterable[SourceWindow]) -> Iterator[SourceWindow]:
    """Windows of a bounded number of lines, so that none is too large to be shown at all."""
    for window in windows:
        count = -(-len(window.lines) // _WINDOW_LINES)
        size = -(-len(window.lines) // max(count, 1))
        for start in range(0, len(window.lines), max(size, 1)):
            yield SourceWindow(
                path=window.path,
                first_line=window.first_line + start,
                lines=window.lines[start : start + size],
            )


def _in_order_of_need(
    wanted: Iterable[tuple[str, int]], windows: Iterable[SourceWindow]
) -> list[SourceWindow]:
    by_path: dict[str, list[SourceWindow]] = {}
    for window in windows:
        by_path.setdefault(window.path, []).append(window)
    needed = dict.fromkeys(
        window
        for path, line in wanted
        for window in by_path.get(path, ())
        if window.holds(path, line)
    )
    # What lies between two pieces that are needed belongs to them.
    needed.update(dict.fromkeys(window for path in by_path for window in by_path[path]))
    return list(needed)


def _rest(sources: Mapping[str, str], near: Sequence[SourceWindow]) -> Iterator[SourceWindow]:
    """All other lines: of the files that hold memory first, then of the others."""
    named = dict.fromkeys(window.path for window in near)
    covered: dict[str, set[int]] = {}
    for window in near:
        covered.setdefault(window.path, set()).update(
            range(window.first_line, window.last_line + 1)
        )
    for path in (*named, *sorted(set(sources) - set(named))):
        lines = source_lines(sources[path])
        start = 0
        for number in range(1, len(lines) + 2):
            if number > len(lines) or number in covered.get(path, ()):
                if start:
                    text = tuple(lines[start - 1 : number - 1])
                    yield from _pieces([SourceWindow(path=path, first_line=start, lines=text)])
                start = 0
            elif not start:
                start = number


def source_lines(text: str) -> list[str]:
    """The lines of a file as Python counts them: form feeds and the like end none."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return lines


def _place(window: SourceWindow, *, full: bool = True) -> str:
    path = window.path if full else PurePosixPath(window.path).name
    return f"{quoted(path)} lines {window.first_line} to {window.last_line}"


def _fence(lines: Iterable[str]) -> str:
    """A fence that is longer than any run of backticks in the lines."""
    runs = (len(run) for line in lines for run in re.findall("`+", line))
    return "`" * max(3, max(runs, default=0) + 1)
