"""Where a line of a program is after a patch: the same line moves when lines before it come or go."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headroom.records.patch import Edit, Patch

_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True, order=True)
class Replaced:
    """`before_count` lines from line `before` on became `after_count` lines; a count of 0 stands before its line.

    Where both counts are equal the lines are the same lines, rewritten in place; otherwise they are others.
    """

    before: int
    before_count: int
    after_count: int


Changes: TypeAlias = tuple[Replaced, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineMap:
    """What was replaced, by file; files that it does not know are unchanged.

    Files are found by their path, or else by
    the longest end of a path that they share with a single known file, since copies lie in other folders.
    """

    changes: Mapping[str, Changes]

    @classmethod
    def from_patch(cls, patch: Patch) -> "LineMap":
        """The map of a patch: each edit says which lines became which."""
        found: dict[str, list[Replaced]] = {}
        for edit in patch.edits:
            found.setdefault(edit.path, []).extend(_of_edit(edit))
        return cls(changes={path: tuple(sorted(parts)) for path, parts in found.items()})

    @classmethod
    def from_diff(cls, text: str) -> "LineMap":
        """The map of a unified diff; what is no part of a hunk is passed over."""
        found: dict[str, list[Replaced]] = {}
        path = ""
        lines = text.splitlines()
        place = 0
        while place < len(lines):
            hunk = _HUNK.match(lines[place])
            if hunk is not None and path:
                place, parts = _of_hunk(lines, place + 1, hunk)
                found.setdefault(path, []).extend(parts)
                continue
            named = lines[place].startswith("--- ") and lines[place + 1 : place + 2]
            if named and named[0].startswith("+++ "):
                path = _diff_path(lines[place])
                path = _diff_path(named[0]) if path == "/dev/null" else path
            place += 1
        return cls(changes={path: tuple(sorted(parts)) for path, parts in found.items()})

    @classmethod
    def from_texts(cls, before: Mapping[str, str], after: Mapping[str, str]) -> "LineMap":
        """The map between two versions of files, by path; a file that only one side has is passed over."""
        return cls(
            changes={
                path: tuple(_replaced(before[path].splitlines(), after[path].splitlines(), 1))
                for path in before
                if path in after
            }
        )

    def after(self, file: str, line: int) -> int | None:
        """Where a line before the patch is after it; None where it is gone."""
        shift = 0
        for part in self._of(file):
            if line < part.before:
                break
            if line < part.before + part.before_count:
                same = part.before_count == part.after_count
                return line + shift if same else None
            shift += part.after_count - part.before_count
        return line + shift

    def before(self, file: str, line: int) -> int | None:
        """Where a line after the patch was before it; None where it is new."""
        shift = 0
        for part in self._of(file):
            start = part.before + shift
            if line < start:
                break
            if line < start + part.after_count:
                same = part.before_count == part.after_count
                return line - shift if same else None
            shift += part.after_count - part.before_count
        return line - shift

    def _of(self, file: str) -> Changes:
        known = self.changes.get(file)
        if known is not None:
            return known
        match = closest(file, self.changes)
        return self.changes[match] if match is not None else ()


def closest(file: str, others: Iterable[str]) -> str | None:
    """The one file that shares the longest end of its path, at least its name; None where none or several do."""
    parts = _parts(file)
    best, found = 0, []
    for other in others:
        shared = _shared_end(parts, _parts(other))
        if shared > best:
            best, found = shared, [other]
        elif shared == best and shared:
            found.append(other)
    return found[0] if len(found) == 1 else None


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part]


def _shared_end(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if left != right:
            break
        count += 1
    return count


def _of_edit(edit: Edit) -> Iterable[Replaced]:
    return _replaced(edit.old_lines, edit.new_lines, edit.start)


def _replaced(old: Sequence[str], new: Sequence[str], first: int) -> Iterable[Replaced]:
    """What changes between two stretches of lines, the first of which has number `first`."""
    for tag, start, stop, new_start, new_stop in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            yield Replaced(first + start, stop - start, new_stop - new_start)


def _diff_path(line: str) -> str:
    path = line[4:].split("\t")[0].strip()
    return path[2:] if path.startswith(("a/", "b/")) else path


def _of_hunk(lines: Sequence[str], place: int, hunk: re.Match[str]) -> tuple[int, list[Replaced]]:
    """Where a hunk ends, and what it replaces: runs of removed and added lines between its context."""
    old_left = int(hunk[2] or 1)
    new_left = int(hunk[4] or 1)
    # A hunk that takes no line names the line before it.
    old_line = int(hunk[1]) + (old_left == 0)
    parts: list[Replaced] = []
    removed = added = 0
    while place < len(lines) and (old_left > 0 or new_left > 0):
        sign = lines[place][:1]
        if sign == "-":
            removed, old_left = removed + 1, old_left - 1
        elif sign == "+":
            added, new_left = added + 1, new_left - 1
        elif sign in (" ", ""):
            if removed or added:
                parts.append(Replaced(old_line, removed, added))
            old_line, removed, added = old_line + removed + 1, 0, 0
            old_left, new_left = old_left - 1, new_left - 1
        elif sign != "\\":
            break
        place += 1
    if removed or added:
        parts.append(Replaced(old_line, removed, added))
    return place, parts
