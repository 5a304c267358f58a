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
    assert overlay.program_roots({repo, scripts}, tops) == (repo,)
    assert overlay.program_roots({other, scripts}, tops) == (other, repo)
    assert overlay.program_roots({tmp_path, scripts}, {}) == (tmp_path,)


def test_system_folders_are_never_a_root() -> None:
    assert overlay.program_roots({Path("/")}, {}) == ()


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


def test_mounts_below_a_root_get_layers_of_their_own(tmp_path: Path) -> None:
    root = tmp_path / "proj"
    data, deep = root / "my data", root / "my data" / "deep"
    deep.mkdir(parents=True)
    (root / "proc").mkdir()
    escaped = str(data).replace(" ", "\\040")
    lines = [
        f"36 35 98:0 / {escaped} rw,noatime - ext4 /dev/sda1 rw",
        f"37 35 98:0 / {escaped}/deep rw - tmpfs tmpfs rw",
        f"38 35 98:0 / {root}/proc rw - proc proc rw",
        f"39 35 98:0 / {tmp_path} rw - ext4 /dev/sdb rw",
        f"40 35 98:0 / {root} rw - ext4 /dev/sdc rw",
    ]
    assert overlay.with_mounts_below([root], "\n".join(lines)) == (root, data, deep)
