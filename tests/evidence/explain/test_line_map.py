import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.evidence.explain.line_map import LineMap, closest
from headroom.records.patch import Edit, Patch

BEFORE = """\
import torch
a = 1
b = 2
loss_sum = 0
for x in data:
    loss_sum += loss(x)
print(loss_sum)
"""
AFTER = """\
import torch
import math

a = 1
loss_sum = 0
for x in data:
    loss_sum += loss(x).item()
print(loss_sum)
"""


def patch() -> Patch:
    lines = BEFORE.splitlines()
    return Patch(
        title="Count numbers",
        reason="a graph hangs on each loss",
        edits=(
            edit(6, lines[5:6], ["    loss_sum += loss(x).item()"]),
            edit(1, lines[:3], ["import torch", "import math", "", "a = 1"]),
        ),
    )


def edit(start: int, old: list[str], new: list[str]) -> Edit:
    return Edit(
        path="/srv/job/train.py",
        sha256="0" * 64,
        start=start,
        end=start + len(old) - 1,
        old_lines=tuple(old),
        new_lines=tuple(new),
    )


def unified() -> str:
    body = difflib.unified_diff(
        BEFORE.splitlines(), AFTER.splitlines(), "a/train.py", "b/train.py", n=1, lineterm=""
    )
    return "diff --git a/train.py b/train.py\nindex 1..2 100644\n" + "\n".join(body) + "\n"


MAPS = [
    LineMap.from_patch(patch()),
    LineMap.from_diff(unified()),
    LineMap.from_texts({"/srv/job/train.py": BEFORE}, {"/srv/job/train.py": AFTER}),
]


@pytest.mark.parametrize("lines", MAPS, ids=["patch", "diff", "texts"])
def test_lines_that_only_moved_are_the_same_lines(lines: LineMap) -> None:
    file = "/srv/job/train.py"
    assert [lines.after(file, line) for line in range(1, 8)] == [1, 4, None, 5, 6, 7, 8]
    assert [lines.before(file, line) for line in range(1, 9)] == [1, None, None, 2, 4, 5, 6, 7]


def test_a_file_in_another_folder_is_found_by_the_end_of_its_path() -> None:
    assert MAPS[0].after("/tmp/copy/job/train.py", 7) == 8
    assert MAPS[1].after("/tmp/copy/job/train.py", 7) == 8
    assert MAPS[0].after("/srv/job/model.py", 7) == 7


def test_files_that_share_as_much_with_two_are_not_guessed() -> None:
    assert closest("/x/train.py", ["/a/train.py", "/b/train.py"]) is None
    assert closest("/x/a/train.py", ["/a/train.py", "/b/train.py"]) == "/a/train.py"
    assert closest("/x/retrain.py", ["/a/train.py"]) is None


def test_hunks_of_several_files_new_ones_and_markers_without_a_line_end() -> None:
    text = """\
--- a/one.py
+++ b/one.py
@@ -0,0 +1,2 @@
+first
+second
--- a/two.py\t2024-01-01
+++ b/two.py\t2024-01-02
@@ -3 +2,0 @@ def f():
-gone
\\ No newline at end of file
--- /dev/null
+++ b/new.py
@@ -0,0 +1 @@
+x
"""
    lines = LineMap.from_diff(text)
    assert lines.after("one.py", 1) == 3
    assert lines.before("one.py", 2) is None
    assert [lines.after("two.py", line) for line in (2, 3, 4)] == [2, None, 3]
    assert lines.before("new.py", 1) is None


def test_a_removed_line_that_looks_like_a_header_stays_within_its_hunk() -> None:
    text = "\n".join(["--- a/x.py", "+++ b/x.py", "@@ -1,3 +1,2 @@", " a", "--- b", "+++ c", "-d"])
    assert LineMap.from_diff(text).changes.keys() == {"x.py"}
    assert LineMap.from_diff(text).after("x.py", 2) is None


TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "    d"]), max_size=12)


@given(before=TEXTS, after=TEXTS)
def test_there_and_back_is_the_same_line(before: list[str], after: list[str]) -> None:
    lines = LineMap.from_texts({"f.py": "\n".join(before)}, {"f.py": "\n".join(after)})
    old, new = "\n".join(before).splitlines(), "\n".join(after).splitlines()
    for line in range(1, len(old) + 1):
        moved = lines.after("f.py", line)
        if moved is not None:
            assert 1 <= moved <= len(new)
            assert lines.before("f.py", moved) == line
    for line in range(1, len(new) + 1):
        was = lines.before("f.py", line)
        if was is not None:
            assert lines.after("f.py", was) == line


@given(before=TEXTS, after=TEXTS, context=st.integers(0, 3))
def test_a_diff_tells_the_same_as_the_texts(
    before: list[str], after: list[str], context: int
) -> None:
    old, new = "\n".join(before).splitlines(), "\n".join(after).splitlines()
    body = difflib.unified_diff(old, new, "f.py", "f.py", n=context, lineterm="")
    lines = LineMap.from_diff("\n".join(body))
    kept = [lines.after("f.py", line) for line in range(1, len(old) + 1)]
    for line, moved in zip(range(1, len(old) + 1), kept, strict=True):
        if moved is not None and lines.changes:
            assert lines.before("f.py", moved) == line
    gone = sum(moved is None for moved in kept)
    fresh = sum(lines.before("f.py", line) is None for line in range(1, len(new) + 1))
    assert len(old) - gone == len(new) - fresh
