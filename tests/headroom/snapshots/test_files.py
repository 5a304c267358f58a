import gzip
import os
from pathlib import Path

import pytest
import zstandard

from headroom.errors import SnapshotError, UserError
from headroom.snapshots.files import plain_file, rank_files
from headroom.snapshots.reader import read_analysis


def test_compressed_captures_give_the_same_analysis(captures: Path, tmp_path: Path) -> None:
    plain = captures / "fragment.pickle"
    data = plain.read_bytes()
    packed = {"a.pickle.gz": gzip.compress(data), "b.pickle.zst": zstandard.compress(data)}
    expected = read_analysis(plain)
    for name, content in packed.items():
        path = tmp_path / name
        path.write_bytes(content)
        with plain_file(path) as file:
            assert read_analysis(file) == expected
        assert not file.exists()


def test_a_plain_file_is_used_where_it_lies(captures: Path) -> None:
    path = captures / "fragment.pickle"
    with plain_file(path) as file:
        assert file == path


@pytest.mark.parametrize("head", [b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd"])
def test_damaged_archives_end_in_a_sentence(head: bytes, tmp_path: Path) -> None:
    path = tmp_path / "torn.pickle"
    path.write_bytes(head + b"\x00\x01nonsense")
    with pytest.raises(SnapshotError, match="compressed data cannot be read"), plain_file(path):
        pass


def test_a_missing_file_ends_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="No such file"), plain_file(tmp_path / "none.pickle"):
        pass


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["rank0.pickle", "rank10.pickle", "rank2.pickle"], [0, 2, 10]),
        (["host3_rank1.pickle.gz", "host3_rank0.pickle.gz"], [0, 1]),
        (["snapshot_7.pkl", "snapshot_5.pkl"], [5, 7]),
        (["a.pickle", "b.pickle"], [0, 1]),
        (["run1_a.pickle", "run1_b.pickle"], [0, 1]),
    ],
)
def test_ranks_come_from_the_names_where_these_tell_them(
    names: list[str], ranks: list[int], tmp_path: Path
) -> None:
    for name in [*names, "notes.txt"]:
        (tmp_path / name).touch()
    assert [file.rank for file in rank_files(tmp_path)] == ranks


def test_a_folder_without_snapshots_ends_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no snapshot"):
        rank_files(tmp_path)


def test_a_torn_gzip_and_a_pipe_end_in_a_sentence(captures: Path, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress((captures / "fragment.pickle").read_bytes()))
    packed[200:260] = bytes(60)
    torn = tmp_path / "torn.pickle.gz"
    torn.write_bytes(packed)
    with pytest.raises(SnapshotError, match="compressed data cannot be read"), plain_file(torn):
        pass
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SnapshotError, match="not a regular file"), plain_file(tmp_path / "pipe"):
        pass
