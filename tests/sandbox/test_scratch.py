import os
import subprocess
import sys
from pathlib import Path

import pytest

from headroom.sandbox.scratch import remove_tree, scratch_folder, sweep


def test_scratch_lies_outside_the_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    inside = scratch_folder([], "x")
    assert inside.is_relative_to(tmp_path)
    outside = scratch_folder([tmp_path], "x")
    assert not outside.is_relative_to(tmp_path)
    outside.rmdir()


def test_what_a_killed_headroom_left_is_swept_away(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead, alive = (
        tmp_path / f"headroom-{gone.pid}-run-x",
        tmp_path / f"headroom-{os.getpid()}-run-y",
    )
    other = tmp_path / "headroom-notes-run-z"
    for folder in (dead / "work0", alive, other):
        folder.mkdir(parents=True)
    (dead / "work0").chmod(0)
    sweep(tmp_path)
    assert not dead.exists()
    assert alive.exists() and other.exists()


def test_folders_without_permissions_are_removed_and_links_not_followed(tmp_path: Path) -> None:
    target, folder = tmp_path / "target", tmp_path / "folder"
    target.mkdir()
    (target / "mine").touch()
    (folder / "work" / "deep").mkdir(parents=True)
    (folder / "link").symlink_to(target)
    (folder / "work").chmod(0)
    remove_tree(folder)
    assert not folder.exists()
    assert (target / "mine").exists()
