"""What an installed copy holds is exactly what the root folders hold."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PARTS = ("evidence", "agents", "sandbox", "eval", "web")


def files_of(folder: Path, root: Path) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", str(folder.relative_to(root))],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line for line in listed.stdout.splitlines() if (root / line).is_file()}


@pytest.mark.slow
def test_the_wheel_holds_every_part_and_one_top_level_name(root: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "-o", tmp_path, root], check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if ".dist-info/" not in name}
    own = {name for name in files_of(root / "headroom", root) if not (root / name).is_symlink()}
    expected = own | {f"headroom/{name}" for part in PARTS for name in files_of(root / part, root)}
    assert shipped == expected
    assert wheel.name.startswith("headroom_gpu-")


def test_the_links_point_at_the_root_folders(root: Path) -> None:
    for part in PARTS:
        link = root / "headroom" / part
        assert link.is_symlink()
        assert link.resolve() == root / part
        assert str(link.readlink()) == f"../{part}"
