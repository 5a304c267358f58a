from pathlib import Path

import pytest

from headroom.errors import SandboxError
from headroom.sandbox import overlay


def test_roots_are_the_work_trees_of_cwd_and_script_outermost_only(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    scripts, other = repo / "scripts", tmp_path / "other"
    for folder in (scripts, other):
        folder.mkdir(parents=True)
    tops = {repo: repo, scripts: repo, other: None}
    assert overlay.program_roots(repo, scripts / "train.py", tops) == (repo,)
    assert overlay.program_roots(other, scripts / "train.py", tops) == (other, repo)
    assert overlay.program_roots(tmp_path, scripts / "train.py", {}) == (tmp_path,)


def test_system_folders_are_never_a_root() -> None:
    assert overlay.program_roots(Path("/"), None, {}) == ()


def test_scratch_lies_outside_the_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    inside = overlay.scratch_folder([], "x")
    assert inside.is_relative_to(tmp_path)
    outside = overlay.scratch_folder([tmp_path], "x")
    assert not outside.is_relative_to(tmp_path)
    outside.rmdir()


def test_changed_files_lie_in_the_upper_layer_with_the_original_mode(tmp_path: Path) -> None:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    (root / "deep").mkdir(parents=True)
    scratch.mkdir()
    original = root / "deep" / "train.py"
    original.write_text("old")
    original.chmod(0o750)
    (layer,) = overlay.make_layers([root], scratch, {str(original): b"new"})
    placed = layer.upper / "deep" / "train.py"
    assert placed.read_bytes() == b"new"
    assert placed.stat().st_mode & 0o777 == 0o750
    assert original.read_text() == "old"


def test_a_changed_file_outside_the_roots_is_refused(tmp_path: Path) -> None:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    root.mkdir()
    scratch.mkdir()
    with pytest.raises(SandboxError, match="outside"):
        overlay.make_layers([root], scratch, {str(tmp_path / "x.py"): b""})


def test_copy_fills_the_layer_but_not_over_changed_files(tmp_path: Path) -> None:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    (root / ".git").mkdir(parents=True)
    (root / "pkg").mkdir()
    scratch.mkdir()
    (root / "train.py").write_text("old")
    (root / "pkg" / "data.txt").write_text("data")
    (root / ".git" / "config").write_text("x")
    layers = overlay.make_layers([root], scratch, {str(root / "train.py"): b"new"})
    overlay.copy_into(layers)
    upper = layers[0].upper
    assert (upper / "train.py").read_text() == "new"
    assert (upper / "pkg" / "data.txt").read_text() == "data"
    assert not (upper / ".git").exists()


def test_too_large_a_folder_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    root.mkdir()
    scratch.mkdir()
    (root / "data.bin").write_bytes(b"0" * 4096)
    monkeypatch.setattr(overlay, "COPY_LIMIT_BYTES", 4095)
    with pytest.raises(SandboxError, match="too much to copy"):
        overlay.copy_into(overlay.make_layers([root], scratch, {}))
