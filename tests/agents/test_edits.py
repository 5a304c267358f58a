"""Edits apply where their text is, or not at all; and they survive the way through git."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.agents.edits import (
    Relocated,
    apply_patch,
    combine,
    edits_between,
    patch_between,
    sha256,
    unified_diff,
)
from headroom.agents.text import Change, read_text
from headroom.errors import PatchError
from headroom.records.patch import Edit, Patch

SOURCE = b"import torch\n\n\ndef f(x):\n    y = x\n    return y\n\n\ndef g(x):\n    y = x\n    return y\n"


def edit(start: int, old: list[str], new: list[str], **changes: Any) -> Edit:
    values: dict[str, Any] = {
        "path": "/app/a.py",
        "sha256": sha256(SOURCE),
        "start": start,
        "end": start + len(old) - 1,
        "old_lines": tuple(old),
        "new_lines": tuple(new),
    }
    return Edit(**{**values, **changes})


def patch(*edits: Edit) -> Patch:
    return Patch(title="t", reason="r", edits=edits)


def failure(*edits: Edit, source: bytes = SOURCE) -> PatchError:
    with pytest.raises(PatchError) as caught:
        apply_patch(patch(*edits), {"/app/a.py": source})
    return caught.value


def test_edits_apply_together_to_the_same_original() -> None:
    applied = apply_patch(
        patch(
            edit(9, ["def g(x):"], ["@cached", "def g(x):"]),
            edit(4, ["def f(x):", "    y = x"], ["def f(x):"]),
            edit(6, ["    return y"], ["    return x"]),
        ),
        {"/app/a.py": SOURCE, "/app/b.py": b"other"},
    )
    expected = b"import torch\n\n\ndef f(x):\n    return x\n\n\n@cached\ndef g(x):\n    y = x\n    return y\n"
    assert applied.files == {"/app/a.py": expected}
    assert applied.relocated == ()


def test_wrong_numbers_are_corrected_where_the_text_is_unique() -> None:
    applied = apply_patch(patch(edit(7, ["def g(x):"], ["def h(x):"])), {"/app/a.py": SOURCE})
    assert b"def h(x):" in applied.files["/app/a.py"]
    assert applied.relocated == (Relocated(path="/app/a.py", stated_start=7, actual_start=9),)


def test_a_number_beyond_the_file_is_corrected_too() -> None:
    applied = apply_patch(patch(edit(999, ["def g(x):"], ["def h(x):"])), {"/app/a.py": SOURCE})
    assert applied.relocated[0].actual_start == 9


def test_the_stated_line_decides_among_equal_lines() -> None:
    applied = apply_patch(patch(edit(10, ["    y = x"], ["    y = -x"])), {"/app/a.py": SOURCE})
    assert applied.files["/app/a.py"].split(b"\n")[4:10:5] == [b"    y = x", b"    y = -x"]
    assert applied.relocated == ()


def test_equal_lines_elsewhere_are_never_guessed_at() -> None:
    error = failure(edit(1, ["    y = x"], ["    y = -x"]))
    assert error.code == "ambiguous"
    assert "lines 5, 10" in error.message


def test_missing_text_is_answered_with_the_nearest_lines() -> None:
    error = failure(edit(1, ["    return yy"], ["    return 1"]))
    assert error.code == "no_match"
    assert "    6 |     return y" in error.message


def test_wrong_indentation_is_named_as_such() -> None:
    error = failure(edit(9, ["def g(x):", "  y = x"], ["def g(x):", "  y = 1"]))
    assert error.code == "no_match"
    assert "line 9 differs only in spaces" in error.message
    assert "   10 |     y = x" in error.message


def test_the_nearest_lines_start_where_the_old_lines_would() -> None:
    error = failure(edit(1, ["x", "    return  y  # result"], ["pass"]))
    assert (
        "line 5 is the most similar place:\n    5 |     y = x\n    6 |     return y"
        in error.message
    )


def test_nothing_similar() -> None:
    error = failure(edit(2, ["@@@@@@@@@@"], ["1"]))
    assert error.code == "no_match"
    assert "nothing there is similar" in error.message


def test_another_version_of_the_file() -> None:
    error = failure(edit(1, ["import torch"], ["import jax"], sha256="0" * 64))
    assert error.code == "hash_mismatch"
    assert sha256(SOURCE)[:12] in error.message
    assert "    1 | import torch" in error.message


def test_a_file_that_is_not_the_programs() -> None:
    error = failure(edit(1, ["import torch"], ["import jax"], path="/app/A.py"))
    assert error.code == "missing_file"
    assert "did you mean /app/a.py?" in error.message


@pytest.mark.parametrize("second", [4, 5])
def test_overlap(second: int) -> None:
    lines = SOURCE.decode().split("\n")
    error = failure(
        edit(4, lines[3:5], ["def f(y):", "    pass"]), edit(second, [lines[second - 1]], ["x"])
    )
    assert error.code == "overlap"
    assert "    4 | def f(x):" in error.message


def test_no_change() -> None:
    error = failure(edit(4, ["def f(x):"], ["def f(x):"]))
    assert error.code == "no_change"


def test_an_edit_without_change_beside_one_with_change_is_harmless() -> None:
    same, other = edit(4, ["def f(x):"], ["def f(x):"]), edit(9, ["def g(x):"], ["def h(x):"])
    assert b"def h" in apply_patch(patch(same, other), {"/app/a.py": SOURCE}).files["/app/a.py"]


def test_a_result_that_would_not_compile() -> None:
    error = failure(edit(4, ["def f(x):"], ["def f(x:"]))
    assert error.code == "syntax"
    assert "    4 | def f(x:" in error.message


def test_nothing_is_applied_when_one_file_fails() -> None:
    files = {"/app/a.py": SOURCE, "/app/b.py": b"x = 1\n"}
    good = edit(4, ["def f(x):"], ["def ff(x):"])
    bad = edit(1, ["x = 1"], ["x = ("], path="/app/b.py", sha256=sha256(b"x = 1\n"))
    with pytest.raises(PatchError):
        apply_patch(patch(good, bad), files)
    assert files == {"/app/a.py": SOURCE, "/app/b.py": b"x = 1\n"}


def test_only_new_errors_count() -> None:
    # A program may be newer than the Python that Headroom runs on.
    source = b"x = t'{y}' ??\nz = 1\n"
    change = edit(2, ["z = 1"], ["z = 2"], sha256=sha256(source))
    assert apply_patch(patch(change), {"/app/a.py": source}).files["/app/a.py"].endswith(b"z = 2\n")


def test_json_has_to_stay_json() -> None:
    source = b'{\n "a": 1\n}\n'
    change = edit(2, [' "a": 1'], [' "a": 1,'], path="/app/a.json", sha256=sha256(source))
    with pytest.raises(PatchError, match="not be well-formed"):
        apply_patch(patch(change), {"/app/a.json": source})


def test_other_files_are_not_compiled() -> None:
    source = b"lr: 1\n"
    change = edit(1, ["lr: 1"], ["lr: ((("], path="/app/a.yaml", sha256=sha256(source))
    assert apply_patch(patch(change), {"/app/a.yaml": source}).files == {
        "/app/a.yaml": b"lr: (((\n"
    }


def test_a_line_break_inside_a_line() -> None:
    error = failure(edit(4, ["def f(x):"], ["def f(x):\n    pass"]))
    assert error.code == "syntax"
    assert "line break" in error.message


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"a = 1\r\nb = 2\r\n", b"a = 1\r\nc = 3\r\nd = 4\r\n"),
        (b"a = 1\nb = 2", b"a = 1\nc = 3\nd = 4"),
        (b"a = 1\r\nb = 2", b"a = 1\r\nc = 3\r\nd = 4"),
        (b"a = 1\rb = 2\r", b"a = 1\rc = 3\rd = 4\r"),
        (b"\xef\xbb\xbfa = 1\nb = 2\n", b"\xef\xbb\xbfa = 1\nc = 3\nd = 4\n"),
        (b"a = '\x0c\x1c'\nb = 2\n", b"a = '\x0c\x1c'\nc = 3\nd = 4\n"),
        ("a = '\u2028\x85'\nb = 2\n".encode(), "a = '\u2028\x85'\nc = 3\nd = 4\n".encode()),
    ],
    ids=[
        "crlf",
        "unterminated",
        "crlf unterminated",
        "cr",
        "bom",
        "form feed",
        "unicode separators",
    ],
)
def test_line_ends_and_byte_order_mark_stay(source: bytes, expected: bytes) -> None:
    first = source.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").split("\n")[1]
    change = edit(2, [first], ["c = 3", "d = 4"], sha256=sha256(source))
    assert apply_patch(patch(change), {"/app/a.py": source}).files["/app/a.py"] == expected


def test_a_mixed_file_keeps_each_line_end() -> None:
    source = b"a = 1\r\nb = 2\nc = 3\r\n"
    change = edit(1, ["a = 1", "b = 2"], ["A = 1", "B = 2"], sha256=sha256(source))
    applied = apply_patch(patch(change), {"/app/a.py": source})
    assert applied.files["/app/a.py"] == b"A = 1\r\nB = 2\nc = 3\r\n"


def test_the_encoding_cookie_is_obeyed() -> None:
    source = "# -*- coding: latin-1 -*-\nname = 'é'\n".encode("latin-1")
    change = edit(2, ["name = 'é'"], ["name = 'ü'"], sha256=sha256(source))
    assert (
        apply_patch(patch(change), {"/app/a.py": source}).files["/app/a.py"].endswith(b"'\xfc'\n")
    )
    error = failure(edit(2, ["name = 'é'"], ["name = '€'"], sha256=sha256(source)), source=source)
    assert error.code == "syntax"
    assert "iso-8859-1" in error.message


@pytest.mark.parametrize("source", [b"# coding: nonsense\nx = 1\n", b"x = '\xff'\n"])
def test_a_file_that_is_no_text(source: bytes) -> None:
    error = failure(edit(2, ["x = 1"], ["x = 2"], sha256=sha256(source)), source=source)
    assert error.code == "syntax"
    assert "cannot be read as text" in error.message


def test_deleting_the_last_line_of_an_unterminated_file() -> None:
    source = b"a = 1\nb = 2"
    change = edit(2, ["b = 2"], [], sha256=sha256(source))
    assert apply_patch(patch(change), {"/app/a.py": source}).files["/app/a.py"] == b"a = 1"


def test_edits_are_minimal() -> None:
    after = SOURCE.replace(b"def g", b"@cached\ndef g").replace(
        b"import torch\n", b"import torch as t\n"
    )
    first, second = edits_between(SOURCE, after, "/app/a.py")
    assert (first.start, first.end, first.old_lines, first.new_lines) == (
        1,
        1,
        ("import torch",),
        ("import torch as t",),
    )
    assert (second.start, second.end, second.new_lines) == (9, 9, ("@cached", "def g(x):"))
    assert edits_between(SOURCE, SOURCE, "/app/a.py") == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b"a\n"), (b"a\n", b"a"), (b"a\n", b"a\r\n"), (b"a", b"\xef\xbb\xbfa")],
)
def test_what_line_edits_cannot_say(before: bytes, after: bytes) -> None:
    with pytest.raises(ValueError, match=r"lines"):
        edits_between(before, after, "/app/a.txt")


def test_kept_patches_become_one_against_the_originals() -> None:
    files = {"/app/a.py": SOURCE, "/app/b.py": b"x = 1\n"}
    one = patch_between(
        files, {"/app/a.py": SOURCE.replace(b"def g", b"@c\ndef g")}, title="1", reason=""
    )
    after_one = {**files, **apply_patch(one, files).files}
    both = {"/app/a.py": after_one["/app/a.py"].replace(b"@c\n", b"@d\n"), "/app/b.py": b"x = 2\n"}
    two = patch_between(after_one, both, title="2", reason="")
    joined = combine([one, two], files, title="both", reason="")
    assert apply_patch(joined, files).files == both
    assert len(joined.edits) == 2


def test_patches_that_undo_each_other_leave_nothing() -> None:
    files = {"/app/a.py": SOURCE}
    changed = {"/app/a.py": SOURCE.replace(b"def g", b"def h")}
    there = patch_between(files, changed, title="1", reason="")
    back = patch_between(changed, files, title="2", reason="")
    with pytest.raises(PatchError) as caught:
        combine([there, back], files, title="both", reason="")
    assert caught.value.code == "no_change"


@pytest.mark.parametrize("order", [1, -1])
def test_an_insertion_goes_before_the_line_that_is_replaced(order: int) -> None:
    text = read_text(b"a\nb\nc\n", "/app/a.txt")
    changes = [Change(1, 2, ("B",)), Change(1, 0, ("new",)), Change(0, 0, ("top",))][::order]
    assert text.changed(changes).to_bytes() == b"top\na\nnew\nB\n"


def test_insertions_at_one_place_keep_their_order() -> None:
    text = read_text(b"a\n", "/app/a.txt")
    changes = [Change(0, 0, ("first",)), Change(0, 0, ("second",))]
    assert text.changed(changes).lines == ("first", "second", "a")


@st.composite
def versions(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Two versions of a text that differ in lines only."""
    line = st.sampled_from(["", "a", "b", "  a", "é", "x = 1", "\t# b", "a\x0cb"])
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    terminated = draw(st.booleans())

    def text(lines: list[str]) -> bytes:
        if not terminated and lines and not lines[-1]:
            lines = [*lines, "a"]
        return (end.join(lines) + (end if terminated and lines else "")).encode()

    # One unterminated line shows no line end, which new lines could take.
    lines = draw(st.lists(line, min_size=1 if terminated else 2, max_size=12))
    other = draw(st.lists(line, max_size=12))
    # Neighbours of the first version, too: small changes are the usual case.
    at = draw(st.integers(0, len(lines)))
    mixed = [*lines[:at], *other[:2], *lines[at:]]
    return text(lines), text(draw(st.sampled_from([other, mixed])))


@given(versions())
@settings(max_examples=300, deadline=None)
def test_derived_edits_give_the_second_version(both: tuple[bytes, bytes]) -> None:
    before, after = both
    edits = edits_between(before, after, "/app/a.txt")
    if before == after:
        assert edits == ()
        return
    applied = apply_patch(patch(*edits), {"/app/a.txt": before})
    assert applied.files["/app/a.txt"] == after
    assert applied.relocated == ()


def git_apply(folder: Path, before: dict[str, bytes], diff: str) -> dict[str, bytes]:
    for path, data in before.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
    if not (folder / ".git").exists():
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for arguments in (["--check"], []):
        subprocess.run(
            ["git", "apply", *arguments, "-"],
            cwd=folder,
            input=diff.encode("utf-8", "surrogateescape"),
            check=True,
        )
    return {path: Path(path).read_bytes() for path in before}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repository")


@given(versions())
@settings(max_examples=60, deadline=None)
def test_git_applies_the_diff(repository: Path, both: tuple[bytes, bytes]) -> None:
    before, after = both
    path = str(repository / "a.txt")
    diff = unified_diff({path: before}, {path: after}, str(repository))
    if before == after:
        assert diff == ""
        return
    assert git_apply(repository, {path: before}, diff) == {path: after}


@pytest.mark.parametrize(
    "name", ["src/train.py", "my train.py", "überprüfung.py", 'quo"te.py', "tab\tname.py", "-x.py"]
)
def test_git_finds_files_by_any_name(tmp_path: Path, name: str) -> None:
    path, same = str(tmp_path / name), str(tmp_path / "same.py")
    before = {path: b"a = 1\r\nb = 2", same: b"c = 3\n"}
    after = {path: b"a = 1\r\nb = 3", same: b"c = 3\n"}
    diff = unified_diff(before, after, str(tmp_path))
    assert "\\ No newline at end of file\n" in diff
    # As git writes it, so that other tools do not take what follows a space for a date.
    assert (f"--- a/{name}\t\n" in diff) is (" " in name)
    assert git_apply(tmp_path, before, diff) == after


def test_git_applies_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    path = str(tmp_path / "a.py")
    before = {path: b"# coding: latin-1\nname = '\xe9'\nx = 1\n"}
    after = {path: b"# coding: latin-1\nname = '\xe9'\nx = 2\n"}
    assert git_apply(tmp_path, before, unified_diff(before, after, str(tmp_path))) == after


def test_several_files_in_one_diff(tmp_path: Path) -> None:
    before = {str(tmp_path / name): b"x = 1\ny = 2\n" for name in ("a.py", "lib/b.py")}
    after = {path: data.replace(b"1", b"10") for path, data in before.items()}
    diff = unified_diff(before, after, str(tmp_path))
    assert diff.startswith("diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n")
    assert git_apply(tmp_path, before, diff) == after


def test_a_file_outside_the_root_keeps_its_place() -> None:
    diff = unified_diff({"/lib/x.py": b"1\n"}, {"/lib/x.py": b"2\n"}, "/app")
    assert "--- a/lib/x.py\n" in diff
