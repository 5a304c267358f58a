from pathlib import Path

from headroom.evidence.analysis import analyse
from headroom.evidence.analysis_model import Analysis
from headroom.evidence.model import Frame
from headroom.evidence.reading.snapshot import parse_snapshot
from headroom.snapshots.sources import find_sources, misfits
from headroom.units import MIB
from tests.evidence.reference_allocator import Allocator

TRAIN = """import torch


def step(batch):
    return [torch.empty(2**20) for _ in batch]


step(range(3))
"""


def analysis_of(*places: tuple[str, int, str]) -> Analysis:
    allocator = Allocator()
    for filename, line, name in places:
        allocator.frames = [{"filename": filename, "line": line, "name": name}]
        allocator.malloc(MIB)
    return analyse(parse_snapshot(allocator.snapshot()))


def test_a_file_is_found_by_the_end_of_its_path(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(TRAIN)
    analysis = analysis_of(("/srv/job/a/train.py", 5, "step"))
    found = find_sources(analysis, tmp_path)
    assert found.files == {"/srv/job/a/train.py": tmp_path / "a" / "train.py"}
    assert found.texts["/srv/job/a/train.py"] == TRAIN
    assert found.notes == ()


def test_of_two_files_that_fit_as_well_neither_is_taken(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(TRAIN)
    found = find_sources(analysis_of(("/srv/job/train.py", 5, "step")), tmp_path)
    assert found.texts == {}
    assert "none of the files" in found.notes[0]


def test_another_version_of_the_file_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("# a new first line\n" * 3 + TRAIN)
    found = find_sources(analysis_of(("/srv/job/train.py", 5, "step")), tmp_path)
    assert found.texts == {}
    assert "another version" in found.notes[0]
    assert "line 5 is not in step" in found.notes[0]


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("password = 'x'\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    found = find_sources(analysis_of((str(secret), 1, "<module>")), inside)
    assert found.texts == {}


def test_frames_fit_where_their_function_is() -> None:
    frames = [
        Frame(filename="t", line=4, name="step"),
        Frame(filename="t", line=8, name="<module>"),
        Frame(filename="t", line=5, name="<listcomp>"),
        Frame(filename="t", line=8, name="step"),
        Frame(filename="t", line=5, name="other"),
        Frame(filename="t", line=99, name="<module>"),
    ]
    assert misfits(TRAIN, frames) == [frames[4], frames[3], frames[5]]
