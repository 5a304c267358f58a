"""Causes with the drafts of patches against them, as lines of a diff."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from headroom.records.diagnosis import Candidate, Cause
from headroom.records.patch import Edit, Patch
from headroom.report.page.limits import Cutter
from headroom.report.page.names import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """A line of a diff; `kind` is `head`, `add`, `remove` or `same`."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A patch that nobody has run yet."""

    title: str
    reason: str
    saving_bytes: int
    numerics: str
    lines: Sequence[DiffLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCause:
    """A cause with where it is and the best draft against it, if there is one."""

    cause: Cause
    where: str
    kind: str
    draft: Draft | None


def shown_causes(
    causes: Sequence[Cause], candidates: Sequence[Candidate], names: Names, cutter: Cutter
) -> list[ShownCause]:
    """Causes in their given order, each with the first candidate that names it."""
    chosen = cutter.cut(causes, cutter.limits.causes, "diagnoses")
    return [
        ShownCause(
            cause=cause,
            where=place_of(cause, names),
            kind=cause.kind.replace("_", " "),
            draft=_draft_for(cause, candidates, names, cutter),
        )
        for cause in chosen
    ]


def place_of(cause: Cause, names: Names) -> str:
    """`train.py:41`; empty where the cause names no file."""
    if cause.file is None:
        return ""
    return names.path(cause.file) + (f":{cause.line}" if cause.line else "")


def _draft_for(
    cause: Cause, candidates: Sequence[Candidate], names: Names, cutter: Cutter
) -> Draft | None:
    for candidate in candidates:
        if candidate.cause == cause:
            lines = diff_lines(candidate.patch, names)
            return Draft(
                title=candidate.patch.title,
                reason=candidate.patch.reason,
                saving_bytes=candidate.expected_saving_bytes,
                numerics=candidate.numerics.replace("_", " "),
                lines=cutter.cut(
                    lines, cutter.limits.diff_lines, f"lines of the draft for {cause.kind}"
                ),
            )
    return None


def diff_lines(patch: Patch, names: Names) -> list[DiffLine]:
    """The edits as a unified diff for reading; it has no context beyond what the edits hold."""
    found: list[DiffLine] = []
    path = ""
    for edit in sorted(patch.edits, key=lambda one: (one.path, one.start)):
        if edit.path != path:
            path = edit.path
            found.append(DiffLine(kind="head", text=names.path(path)))
        found += _hunk(edit)
    return found


def _hunk(edit: Edit) -> list[DiffLine]:
    context = max(len(edit.old_lines), len(edit.new_lines))
    body = list(difflib.unified_diff(edit.old_lines, edit.new_lines, n=context, lineterm=""))[3:]
    head = f"@@ -{edit.start},{len(edit.old_lines)} +{edit.start},{len(edit.new_lines)} @@"
    kinds = {"+": "add", "-": "remove"}
    return [
        DiffLine(kind="head", text=head),
        *(DiffLine(kind=kinds.get(line[:1], "same"), text=line) for line in body),
    ]
