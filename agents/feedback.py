"""What to tell the author of an edit that does not apply: one sentence, and the real lines with their numbers."""

import difflib
from collections.abc import Sequence

from headroom.agents.text import SourceText
from headroom.records.patch import Edit

# Enough to recognise the place; a longer excerpt crowds out the rest of a prompt.
_EXCERPT_LINES = 12
# difflib's ratio from which a line counts as a misquotation rather than another line; difflib's own default is 0.6.
_SIMILAR = 0.5


def excerpt(text: SourceText, start: int, count: int) -> str:
    """Numbered lines from index `start`, as `  12 | code`."""
    first = max(0, min(start, len(text.lines) - 1))
    shown = text.lines[first : first + min(max(count, 1), _EXCERPT_LINES)]
    return "\n".join(f"{first + at:5d} | {line}" for at, line in enumerate(shown, 1))


def missing_file(path: str, known: Sequence[str]) -> str:
    """The patch names a file that is not part of the program."""
    close = difflib.get_close_matches(path, known, n=1, cutoff=_SIMILAR)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{path} is not one of the program's files{hint}"


def hash_mismatch(edit: Edit, digest: str, text: SourceText) -> str:
    """The file is another version than the one that the edit was written for."""
    now = excerpt(text, edit.start - 1, len(edit.old_lines))
    return (
        f"{edit.path} is not the version that the edit was written for (its SHA-256 starts {digest[:12]}, the edit "
        f"says {edit.sha256[:12]}); at line {edit.start} it now reads:\n{now}"
    )


def line_break(edit: Edit, line: str) -> str:
    """A new line holds a line break."""
    return (
        f"a new line for {edit.path} at line {edit.start} holds a line break, and each line has to be a string of its "
        f"own: {line!r}"
    )


def ambiguous(edit: Edit, places: Sequence[int]) -> str:
    """The old lines are not at the stated place, and occur more than once."""
    numbers = ", ".join(str(place + 1) for place in places)
    return (
        f"the old lines are not at line {edit.start} of {edit.path} and occur {len(places)} times, at lines {numbers}; "
        f"give the right line number:\n"
        + "\n".join(f"      | {line}" for line in edit.old_lines[:_EXCERPT_LINES])
    )


def overlap(path: str, first: int, second: int, text: SourceText) -> str:
    """Two edits of a patch touch the same line."""
    return (
        f"two edits of {path} overlap, at lines {first + 1} and {second + 1}; make them one edit:\n"
        f"{excerpt(text, first, second - first + 1)}"
    )


def no_match(edit: Edit, text: SourceText) -> str:
    """The old lines occur nowhere; shows the most similar place."""
    at = _nearest(edit.old_lines, text.lines)
    if at is None:
        return (
            f"the old lines occur nowhere in {edit.path}, and nothing there is similar; line {edit.start} reads:\n"
            f"{excerpt(text, edit.start - 1, len(edit.old_lines))}"
        )
    there = text.lines[at : at + len(edit.old_lines)]
    only_spaces = [line.strip() for line in there] == [line.strip() for line in edit.old_lines]
    what = (
        "differs only in spaces at the start or end of lines"
        if only_spaces
        else "is the most similar place"
    )
    return (
        f"the old lines occur nowhere in {edit.path}; line {at + 1} {what}:\n"
        f"{excerpt(text, at, len(edit.old_lines))}"
    )


def _nearest(wanted: Sequence[str], lines: Sequence[str]) -> int | None:
    """Index where the most similar window starts, found by the longest wanted line."""
    stripped = [line.strip() for line in lines]
    anchor = max(range(len(wanted)), key=lambda at: len(wanted[at].strip()))
    close = difflib.get_close_matches(wanted[anchor].strip(), stripped, n=1, cutoff=_SIMILAR)
    return max(0, stripped.index(close[0]) - anchor) if close else None


def syntax(path: str, error: Exception, after: bytes) -> str:
    """The patched file would not compile."""
    if not isinstance(error, SyntaxError) or error.lineno is None:
        return f"the patched {path} would not be well-formed: {error}"
    # Decoded leniently: the excerpt is only shown, and the encoding itself may be what is wrong.
    lines = after.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    text = SourceText(lines=tuple(lines), ends=("\n",) * len(lines), encoding="utf-8")
    return (
        f"the patched {path} would not compile: {error.msg} at line {error.lineno}:\n"
        f"{excerpt(text, error.lineno - 2, 3)}"
    )
