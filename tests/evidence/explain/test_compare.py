from pathlib import Path

import pytest

from headroom.evidence.analysis_model import Difference, LineChange
from headroom.evidence.explain.compare import compare, headline
from headroom.evidence.explain.line_map import LineMap
from headroom.evidence.ledger import build_ledger
from headroom.evidence.model import Ledger
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from headroom.units import GIB, MIB
from tests.evidence.programs import LINEAR, Program
from tests.evidence.test_ledger import NAMES

TRAIN = "/srv/job/train.py"


def ledger(*parts: tuple[float, list[tuple[str, int, str]]], dropped: int = 0) -> Ledger:
    program = Program()
    for mebibytes, frames in parts:
        program.alloc(mebibytes, *frames)
    if dropped:
        for region in program.allocator.regions:
            for piece in region.pieces:
                piece.frames = []
    return build_ledger(parse_snapshot(program.allocator.snapshot(dropped)))


def line(number: int, file: str = TRAIN, name: str = "step") -> list[tuple[str, int, str]]:
    return [(file, number, name)]


def capture(captures: Path, name: str) -> Ledger:
    return build_ledger(read_snapshot_file(captures / f"{name}.pickle"))


@pytest.mark.parametrize("after", NAMES)
@pytest.mark.parametrize("before", ["full", "all_stacks", "ring"])
def test_changes_close_to_the_difference_of_the_peaks(
    captures: Path, before: str, after: str
) -> None:
    found = compare(capture(captures, before), capture(captures, after))
    assert sum(change.saved_bytes for change in found.changes) == found.saved_bytes
    sizes = [abs(change.saved_bytes) for change in found.changes]
    assert sizes == sorted(sizes, reverse=True)
    assert 0 not in sizes
    back = compare(capture(captures, after), capture(captures, before))
    assert back.saved_bytes == -found.saved_bytes
    assert len(back.changes) == len(found.changes)


def test_the_same_peak_has_no_changes(captures: Path) -> None:
    found = compare(capture(captures, "full"), capture(captures, "labels"))
    assert found.changes == ()
    assert headline(found) == "The peak is the same, line by line"


def test_lines_are_mapped_through_a_patch() -> None:
    before = ledger((32, line(212)), (8, line(300)), (6, line(20)))
    after = ledger((2, line(214)), (8, line(302)), (6, line(20)))
    texts = ["\n".join(f"line {number}" for number in range(400))]
    edited = texts[0].splitlines()
    edited[100:100] = ["new", "new too"]
    lines = LineMap.from_texts({TRAIN: texts[0]}, {TRAIN: "\n".join(edited)})
    found = compare(before, after, line_map=lines)
    (change,) = found.changes
    assert (change.file, change.before_line, change.after_line) == (TRAIN, 212, 214)
    assert (change.before_bytes, change.after_bytes) == (32 * MIB, 2 * MIB)
    assert headline(found) == "30.00 MiB saved, all at train.py:214, nothing grew elsewhere"
    # Without the patch every line seems to be another.
    assert len(compare(before, after).changes) == 4


def test_lines_that_only_one_version_has() -> None:
    lines = LineMap.from_texts({TRAIN: "a\nb\nc"}, {TRAIN: "a\nc\nd"})
    found = compare(ledger((8, line(2))), ledger((6, line(3))), line_map=lines)
    assert {(change.before_line, change.after_line) for change in found.changes} == {
        (2, None),
        (None, 3),
    }


@pytest.mark.parametrize(
    ("folder", "roots"),
    [("/srv/job", ()), ("/scratch/run 7/job", ()), ("/data/u", ("/srv/job", "/data/u"))],
)
def test_a_copy_in_another_folder_is_the_same_file(folder: str, roots: tuple[str, ...]) -> None:
    before = ledger((8, line(5)), (6, line(9, "/srv/job/net/train.py")))
    after = ledger((7, line(5, f"{folder}/train.py")), (5, line(9, f"{folder}/net/train.py")))
    found = compare(before, after, roots=roots)
    assert [(change.file, change.saved_bytes // MIB) for change in found.changes] == [
        ("/srv/job/net/train.py", 1),
        (TRAIN, 1),
    ]


def test_roots_tell_which_of_two_files_is_meant() -> None:
    before = ledger((8, line(5, "/srv/job/net.py")), (6, line(5, "/srv/job/old/net.py")))
    after = ledger((8, line(5, "/data/u/net.py")))
    found = compare(before, after, roots=("/srv/job", "/data/u"))
    assert [change.file for change in found.changes] == ["/srv/job/old/net.py"]
    # Without them either could be the one, so none is.
    assert len(compare(before, after).changes) == 3


def test_a_file_that_is_found_leaves_the_other_one_for_its_namesake() -> None:
    before = ledger((8, line(5, "/srv/job/net.py")), (6, line(5, "/srv/job/sub/net.py")))
    after = ledger((8, line(5, "/data/u/net.py")), (6, line(5, "/data/u/sub/net.py")))
    assert compare(before, after).changes == ()


def test_two_files_of_one_name_are_not_confused() -> None:
    before = ledger((8, line(5, "/a/one/train.py")))
    after = ledger((8, line(5, "/b/two/train.py")), (8, line(5, "/b/one/train.py")))
    (change,) = compare(before, after).changes
    assert (change.file, change.before_bytes, change.after_bytes) == ("/b/two/train.py", 0, 8 * MIB)


def test_library_stacks_and_blocks_without_a_stack_have_rows_of_their_own() -> None:
    cpp = [("??", 0, "at::native::mm(at::Tensor const&)")]
    before = ledger((8, [LINEAR]), (6, cpp), (5, line(1)))
    after = ledger((4, [LINEAR]), (3, cpp), (5, line(1)), dropped=2)
    found = compare(before, after)
    rows = {(change.file, change.name): change.saved_bytes for change in found.changes}
    assert rows[(LINEAR[0], "forward")] == 8 * MIB
    assert sum(rows.values()) == found.saved_bytes
    assert ("", "before recording") in rows or ("", "lost by the ring") in rows


def test_a_path_of_windows_ends_alike() -> None:
    before = ledger((8, line(5, r"C:\job\net.py")))
    after = ledger((4, line(5, "/home/u/job/net.py")))
    assert len(compare(before, after).changes) == 1


def changed(*changes: tuple[str, int, int]) -> Difference:
    rows = [
        LineChange(
            file=f"/srv/{place.split(':')[0]}" if ":" in place else "",
            name="step" if ":" in place else place,
            before_line=int(place.split(":")[1]) if ":" in place else None,
            after_line=int(place.split(":")[1]) if ":" in place else None,
            before_bytes=before,
            after_bytes=after,
        )
        for place, before, after in changes
    ]
    return Difference(
        before_bytes=sum(row.before_bytes for row in rows),
        after_bytes=sum(row.after_bytes for row in rows),
        changes=tuple(sorted(rows, key=lambda row: -abs(row.saved_bytes))),
    )


@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (
            changed(("train.py:212", 31 * GIB // 10, 0), ("model.py:9", GIB // 20, 0)),
            "3.15 GiB saved, 98 % at train.py:212, nothing grew elsewhere",
        ),
        (
            changed(("a.py:1", 50 * MIB, 0), ("b.py:2", 30 * MIB, 0), ("c.py:3", 20 * MIB, 0), ("d.py:4", 0, 10 * MIB)),
            "90.00 MiB saved, 50 % at a.py:1, 30 % at b.py:2, 20 % at c.py:3; 10.00 MiB grew, all at d.py:4",
        ),
        (
            changed(("a.py:1", 0, 30 * MIB), ("no stack", 10 * MIB, 0)),
            "20.00 MiB more, all at a.py:1; 10.00 MiB less, all in blocks without a stack",
        ),
        (
            changed(("a.py:1", 0, 30 * MIB), ("before recording", 30 * MIB, 0)),
            "The peak is the same: 30.00 MiB less, all in blocks older than the recording; as much more, all at a.py:1",
        ),
        (changed(("a.py:1", 0, 30 * MIB)), "30.00 MiB more, all at a.py:1, nothing shrank"),
    ],
)  # fmt: skip
def test_the_headline(difference: Difference, sentence: str) -> None:
    assert headline(difference) == sentence


def test_a_headline_never_says_all_of_less_than_all() -> None:
    sentence = headline(changed(("a.py:1", GIB, 0), ("b.py:2", 1, 0)))
    assert "99 % at a.py:1" in sentence
