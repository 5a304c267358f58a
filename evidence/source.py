"""Windows of source text around the lines that a stack names. Pure: the texts are given."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

CONTEXT_LINES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWindow:
    """Consecutive lines of a file, without line ends; `first_line` counts from 1."""

    path: str
    first_line: int
    lines: tuple[str, ...]

    @property
    def last_line(self) -> int:
        """Number of the last line."""
        return self.first_line + len(self.lines) - 1

    def holds(self, path: str, line: int) -> bool:
        """Whether a line of a file lies in this window."""
        return path == self.path and self.first_line <= line <= self.last_line


def source_windows(
    sources: Mapping[str, str],
    lines: Mapping[str, Collection[int]],
    *,
    context: int = CONTEXT_LINES,
) -> tuple[SourceWindow, ...]:
    """Cut windows around lines; those that touch or leave out no more than `context` lines become one.

    Args:
        sources: Text of files by path.
        lines: Line numbers of interest by path, from 1; files without text and lines past the end are passed over.
        context: Lines to show before and after.

    Returns:
        Windows in order of path and line.
    """
    windows: list[SourceWindow] = []
    for path in sorted(set(lines) & set(sources)):
        # Not splitlines(): Python counts only these three line ends, and form feeds must not shift the numbers.
        text = sources[path].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if text and text[-1] == "":
            text.pop()
        for first, last in _spans(lines[path], len(text), context):
            windows.append(
                SourceWindow(path=path, first_line=first, lines=tuple(text[first - 1 : last]))
            )
    return tuple(windows)


def _spans(lines: Collection[int], length: int, context: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for line in sorted(number for number in set(lines) if 1 <= number <= length):
        first, last = max(line - context, 1), min(line + context, length)
        if spans and first <= spans[-1][1] + 1 + context:
            spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
        else:
            spans.append((first, last))
    return spans
