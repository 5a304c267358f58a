from pathlib import Path

import pytest

from headroom.errors import UserError
from headroom.files import check_output, write_atomically


def test_a_file_is_written_whole_in_utf8(tmp_path: Path) -> None:
    write_atomically(tmp_path / "out", "ü…")
    assert (tmp_path / "out").read_bytes() == "ü…".encode()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_was_read_is_never_written_over(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot.pickle"
    snapshot.touch()
    link = tmp_path / "link"
    link.symlink_to(snapshot)
    for out in (snapshot, link):
        with pytest.raises(UserError, match="is the snapshot itself"):
            check_output(out, "headroom scrub", inputs=[snapshot], force=True)


def test_other_files_are_written_over_on_demand_only(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    check_output(out, "headroom", force=False)
    out.touch()
    with pytest.raises(UserError, match="exists already") as caught:
        check_output(out, "headroom analyze x --html", force=False)
    assert caught.value.next_command == f"headroom analyze x --html {out} --force"
    check_output(out, "headroom", force=True)
    with pytest.raises(UserError, match="is a folder"):
        check_output(tmp_path, "headroom", force=True)
    with pytest.raises(UserError, match="is not a folder"):
        check_output(tmp_path / "no" / "x", "headroom", force=True)
