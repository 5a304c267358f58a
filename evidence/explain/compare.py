"""What changed between the peaks of two snapshots, line by line, through the patch between them.

Bytes count for the user's innermost line of their stack. Library stacks without a line of the user's count for the
innermost library frame that says anything, and what has no stack for the reason: so the changes close to the difference
of the peaks. Files are the same by path; else by path below a root of each; else by the longest end of
their paths, since a patched program runs in a copy and another machine has other folders.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from headroom.evidence.analysis_model import Difference, LineChange
from headroom.evidence.explain.line_map import LineMap, closest
from headroom.evidence.model import Frame, Ledger, StackUse
from headroom.evidence.reading.stacks import BACKWARD_PREFIX, display_frames
from headroom.evidence.text import clean_text
from headroom.units import format_bytes

# File, line (None for what has none), and the name where there is no line.
Place: TypeAlias = tuple[str, int | None, str]

_NO_FILES: Final = frozenset({"", "??"})
# The lines named in a headline have to explain this part of it, and are at most so many.
_MOST: Final = 0.9
_NAMED: Final = 3
_NAME_LIMIT: Final = 60
# Only a made-up file has more of one name, and comparing each with each would take hours.
_MOST_ALIKE: Final = 500
_WORDS: Final = {
    "before recording": "blocks older than the recording",
    "lost by the ring": "blocks whose owner the ring has lost",
    "no stack": "blocks without a stack",
    "private pool": "private pools",
}


@dataclass(slots=True)
class _Sums:
    """Bytes of one place on both sides."""

    name: str = ""
    before_bytes: int = 0
    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Side:
    """Bytes of one peak by place, and the function of each place."""

    sizes: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    names: dict[Place, str] = field(default_factory=dict)

    def add(self, place: Place, name: str, size_bytes: int) -> None:
        self.sizes[place] += size_bytes
        self.names.setdefault(place, name)


def compare(
    before: Ledger,
    after: Ledger,
    *,
    line_map: LineMap | None = None,
    roots: Sequence[str] = (),
) -> Difference:
    """Compare two peaks.

    Args:
        before: The ledger before the change.
        after: The ledger after it.
        line_map: Where lines are after the change; by default every line has kept its number.
        roots: Folders of the program on either side.

    Returns:
        The places that hold more or less than before, the largest change first, by the files' names before the change.
        A file of "" is for what belongs to none: `name` is then a C++ function or a reason why there is no stack.
    """
    old, new = _side(before), _side(after)
    same_file = _same_files(_files(old), _files(new), roots)
    rows: dict[tuple[str, int | None, int | None, str], _Sums] = defaultdict(_Sums)
    for place, size_bytes in old.sizes.items():
        file, line, unlined = place
        moved = line_map.after(file, line) if line_map is not None and line is not None else line
        sums = rows[(file, line, moved, unlined)]
        sums.before_bytes += size_bytes
        sums.name = old.names[place]
    for place, size_bytes in new.sizes.items():
        after_file, line, unlined = place
        file = same_file.get(after_file, after_file)
        was = line_map.before(file, line) if line_map is not None and line is not None else line
        sums = rows[(file, was, line, unlined)]
        sums.after_bytes += size_bytes
        sums.name = new.names[place]
    changes = [
        LineChange(
            file=file,
            name=sums.name,
            before_line=before_line,
            after_line=after_line,
            before_bytes=sums.before_bytes,
            after_bytes=sums.after_bytes,
        )
        for (file, before_line, after_line, _), sums in rows.items()
        if sums.before_bytes != sums.after_bytes
    ]
    return Difference(
        before_bytes=before.peak.allocated_bytes,
        after_bytes=after.peak.allocated_bytes,
        changes=tuple(sorted(changes, key=_order)),
    )


def _order(change: LineChange) -> tuple[int, str, int, int, str]:
    lines = (change.before_line or 0, change.after_line or 0)
    return (-abs(change.saved_bytes), change.file, *lines, change.name)


def _side(ledger: Ledger) -> _Side:
    side = _Side()
    for use in ledger.stacks:
        frame = _frame_of(use)
        file = "" if frame.filename in _NO_FILES else frame.filename
        line = frame.line or None if file else None
        side.add((file, line, frame.name if line is None else ""), frame.name, use.allocated_bytes)
    for reason, size_bytes in ledger.unattributed.items():
        side.add(("", None, reason), reason, size_bytes)
    return side


def _frame_of(use: StackUse) -> Frame:
    """The user's innermost line, or the innermost frame of a library, with a file rather than without."""
    if use.site is not None:
        return use.site
    shown = [one for one in display_frames(use.frames) if not one.name.startswith(BACKWARD_PREFIX)]
    filed = [one for one in shown if one.filename not in _NO_FILES]
    return (filed or shown or [Frame(filename="", line=0, name="no named frame")])[0]


def _files(side: _Side) -> list[str]:
    return sorted({file for file, _, _ in side.sizes if file})


def _same_files(old: Sequence[str], new: Sequence[str], roots: Sequence[str]) -> dict[str, str]:
    """The file before the change by the file after it."""
    left = set(old)
    found = {file: file for file in new if file in left}
    left -= found.keys()
    below = {_below(file, roots): file for file in sorted(left)}
    for file in new:
        relative = _below(file, roots)
        if file not in found and relative != file and below.get(relative) in left:
            found[file] = below[relative]
            left.discard(below[relative])
    by_name: dict[str, list[str]] = defaultdict(list)
    for file in sorted(left):
        by_name[_name(file)].append(file)
    # What is found leaves fewer to choose from, so a second look may find what the first could not tell apart.
    for _ in range(2):
        for file in new:
            others = by_name[_name(file)]
            if file not in found and len(others) <= _MOST_ALIKE:
                match = closest(file, others)
                if match is not None:
                    found[file] = match
                    others.remove(match)
    return found


def _below(file: str, roots: Sequence[str]) -> str:
    path = file.replace("\\", "/")
    for root in sorted(roots, key=len, reverse=True):
        folder = root.replace("\\", "/").rstrip("/") + "/"
        if path.startswith(folder):
            return path[len(folder) :]
    return file


def _name(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[2]


def headline(difference: Difference) -> str:
    """One sentence: "3.10 GiB saved, 98 % at train.py:212, nothing grew elsewhere".

    Percentages are of what became less, or more, and are rounded down.
    """
    saved_bytes = difference.saved_bytes
    smaller = [change for change in difference.changes if change.saved_bytes > 0]
    larger = [change for change in difference.changes if change.saved_bytes < 0]
    less = f"{format_bytes(_sum(smaller))} less, {_shares(smaller)}"
    if saved_bytes == 0:
        if not smaller:
            return "The peak is the same, line by line"
        return f"The peak is the same: {less}; as much more, {_shares(larger)}"
    if saved_bytes > 0:
        told = f"{format_bytes(saved_bytes)} saved, {_shares(smaller)}"
        grew = f"; {format_bytes(_sum(larger))} grew, {_shares(larger)}"
        return told + (grew if larger else ", nothing grew elsewhere")
    told = f"{format_bytes(-saved_bytes)} more, {_shares(larger)}"
    return told + (f"; {less}" if smaller else ", nothing shrank")


def _sum(changes: Sequence[LineChange]) -> int:
    return abs(sum(change.saved_bytes for change in changes))


def _shares(changes: Sequence[LineChange]) -> str:
    """The largest of some changes in one direction, as parts of their sum: "98 % at train.py:212"."""
    whole = _sum(changes)
    told: list[str] = []
    reached = 0
    for change in changes[:_NAMED]:
        if reached >= _MOST * whole:
            break
        part = abs(change.saved_bytes)
        reached += part
        share = "all" if part == whole else f"{part * 100 // whole} %"
        told.append(f"{share} {_where(change)}")
    return ", ".join(told)


def _where(change: LineChange) -> str:
    if not change.file:
        return f"in {_WORDS.get(change.name) or clean_text(change.name, _NAME_LIMIT)}"
    line = change.after_line or change.before_line
    return (
        f"at {_name(change.file)}:{line}" if line else f"in {clean_text(change.name, _NAME_LIMIT)}"
    )
