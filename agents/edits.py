"""Line edits: apply them, derive them from two versions of a file, join a sequence of them into one patch.

Text is the proof and line numbers are a hint: an edit applies only where the file's hash and its old lines match.
"""

import difflib
import hashlib
import itertools
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from headroom.agents import feedback
from headroom.agents.diff import unified_diff
from headroom.agents.text import Change, SourceText, read_text
from headroom.errors import PatchError
from headroom.records.patch import Edit, Patch

__all__ = [
    "Applied",
    "Relocated",
    "apply_patch",
    "combine",
    "edits_between",
    "patch_between",
    "sha256",
    "syntax_error",
    "unified_diff",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocated:
    """An edit whose line numbers were off: its old lines occur once, at `actual_start`."""

    path: str
    stated_start: int
    actual_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The files that a patch changed, by path, as they are after it; no other files."""

    files: dict[str, bytes]
    relocated: tuple[Relocated, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
    """An edit with the index of its first old line in the file."""

    start: int
    edit: Edit

    @property
    def stop(self) -> int:
        return self.start + len(self.edit.old_lines)


def sha256(data: bytes) -> str:
    """SHA-256 in hex, as edits carry it."""
    return hashlib.sha256(data).hexdigest()


def apply_patch(patch: Patch, files: Mapping[str, bytes]) -> Applied:
    """Apply every edit of a patch to the same originals, or none.

    Edits whose old and new lines are equal are left out as long as another edit changes something.

    Raises:
        PatchError: With the code `missing_file`, `hash_mismatch`, `no_match`, `ambiguous`, `overlap`, `no_change` or
            `syntax`, and a sentence that shows the real lines.
    """
    by_path: dict[str, list[Edit]] = {}
    for edit in patch.edits:
        by_path.setdefault(edit.path, []).append(edit)
    changed: dict[str, bytes] = {}
    relocated: list[Relocated] = []
    for path, edits in by_path.items():
        data = files.get(path)
        if data is None:
            raise PatchError("missing_file", feedback.missing_file(path, tuple(files)))
        after, moved = _apply_to_file(path, data, edits)
        relocated += moved
        if after != data:
            changed[path] = after
    if not changed:
        raise PatchError(
            "no_change", "every edit's new lines equal its old lines, so nothing would change"
        )
    for path, after in changed.items():
        _check_syntax(path, files[path], after)
    return Applied(files=changed, relocated=tuple(relocated))


def _apply_to_file(path: str, data: bytes, edits: Sequence[Edit]) -> tuple[bytes, list[Relocated]]:
    text = read_text(data, path)
    digest = sha256(data)
    placed = [_place(edit, text, digest) for edit in edits]
    placed.sort(key=lambda item: item.start)
    for first, second in itertools.pairwise(placed):
        if second.start < first.stop:
            raise PatchError("overlap", feedback.overlap(path, first.start, second.start, text))
    changes = [Change(item.start, len(item.edit.old_lines), item.edit.new_lines) for item in placed]
    result = text.changed(changes)
    moved = [
        Relocated(path=path, stated_start=item.edit.start, actual_start=item.start + 1)
        for item in placed
        if item.start + 1 != item.edit.start
    ]
    try:
        return result.to_bytes(), moved
    except UnicodeEncodeError as error:
        message = f"{path} is encoded in {text.encoding}, which cannot hold the new lines: {error}"
        raise PatchError("syntax", message) from error


def _place(edit: Edit, text: SourceText, digest: str) -> _Placed:
    """Where an edit applies: at its stated line, or at the only other place that has its old lines."""
    if edit.sha256 != digest:
        raise PatchError("hash_mismatch", feedback.hash_mismatch(edit, digest, text))
    for line in edit.new_lines:
        if "\n" in line or "\r" in line:
            raise PatchError("syntax", feedback.line_break(edit, line))
    wanted = edit.old_lines
    if text.lines[edit.start - 1 : edit.start - 1 + len(wanted)] == wanted:
        return _Placed(edit.start - 1, edit)
    last = len(text.lines) - len(wanted)
    places = [at for at in range(last + 1) if text.lines[at : at + len(wanted)] == wanted]
    if len(places) == 1:
        return _Placed(places[0], edit)
    if places:
        raise PatchError("ambiguous", feedback.ambiguous(edit, places))
    raise PatchError("no_match", feedback.no_match(edit, text))


def _check_syntax(path: str, before: bytes, after: bytes) -> None:
    """Raise when an edit broke a file that was well-formed: only new errors count.

    A program may be written for a newer Python than ours; then its original does not compile here either, and the
    result is not judged.
    """
    error = syntax_error(path, after)
    if error is not None and syntax_error(path, before) is None:
        raise PatchError("syntax", feedback.syntax(path, error, after))


def syntax_error(path: str, data: bytes) -> Exception | None:
    """What is wrong with a file, as far as its kind can be checked here; None when nothing is."""
    suffix = PurePath(path).suffix
    try:
        if suffix == ".py":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(data, path, "exec", dont_inherit=True)
        elif suffix == ".json":
            json.loads(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return error
    return None


def edits_between(before: bytes, after: bytes, path: str) -> tuple[Edit, ...]:
    """The smallest line edits that turn one version of a file into another; none when they are equal.

    Raises:
        ValueError: The versions differ in what line edits cannot say: line ends, a missing final line end, encoding,
            or anything at all when `before` has no lines.
    """
    old, new = read_text(before, path), read_text(after, path)
    digest = sha256(before)
    edits = []
    for start, stop, new_start, new_stop in _changed_spans(old.lines, new.lines):
        edits.append(
            Edit(
                path=path,
                sha256=digest,
                start=start + 1,
                end=stop,
                old_lines=old.lines[start:stop],
                new_lines=new.lines[new_start:new_stop],
            )
        )
    result = old.changed(
        Change(edit.start - 1, len(edit.old_lines), edit.new_lines) for edit in edits
    )
    if result.to_bytes() != after:
        raise ValueError(f"the versions of {path} differ in more than the text of their lines")
    return tuple(edits)


def _changed_spans(old: tuple[str, ...], new: tuple[str, ...]) -> list[tuple[int, int, int, int]]:
    """Spans `old[a:b] -> new[c:d]`, none of them empty in `old`: an insertion takes a neighbouring line along."""
    spans: list[tuple[int, int, int, int]] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            continue
        span = (a, b, c, d)
        if tag == "insert" and a < len(old):
            span = (a, b + 1, c, d + 1)
        elif tag == "insert" and a > 0:
            span = (a - 1, b, c - 1, d)
        elif tag == "insert":
            raise ValueError("a file without lines has no line that an edit could be bound to")
        if spans and span[0] < spans[-1][1]:
            first = spans.pop()
            span = (first[0], span[1], first[2], span[3])
        spans.append(span)
    return spans


def patch_between(
    before: Mapping[str, bytes], after: Mapping[str, bytes], *, title: str, reason: str
) -> Patch:
    """The patch that turns `before` into `after`; files missing in `after` stay as they are.

    Raises:
        PatchError: `no_change`, when the two are equal.
        ValueError: As `edits_between`.
    """
    edits = [
        edit
        for path, data in sorted(after.items())
        if data != before[path]
        for edit in edits_between(before[path], data, path)
    ]
    if not edits:
        raise PatchError("no_change", "the versions are equal, so there is nothing to patch")
    return Patch(title=title, reason=reason, edits=tuple(edits))


def combine(
    patches: Sequence[Patch], originals: Mapping[str, bytes], *, title: str, reason: str
) -> Patch:
    """One patch against `originals` that does what `patches` do one after another.

    Raises:
        PatchError: A patch does not apply after those before it, or together they change nothing.
    """
    current = dict(originals)
    for patch in patches:
        current.update(apply_patch(patch, current).files)
    return patch_between(originals, current, title=title, reason=reason)
