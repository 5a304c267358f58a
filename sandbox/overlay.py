"""Which folders of the program are copy-on-write, and what it wrote there."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headroom.errors import SandboxError
from headroom.units import format_bytes

COPY_LIMIT_BYTES: Final = 2 * 1024**3
"""Without overlays the program's folder is copied for each run; above this that is no longer reasonable."""

WRITTEN_LIMIT: Final = 1000
"""How many written files a record names."""

_NEVER: Final = frozenset(
    map(Path, ("/", "/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev", "/sys"))
)
_NOT_COPIED: Final = shutil.ignore_patterns(
    ".git", ".headroom", ".venv*", "venv", "node_modules", "__pycache__", ".mypy_cache"
)
_NO_FILES_OF_ITS_OWN: Final = frozenset(
    {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "autofs"}
)
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One copy-on-write folder: `upper` holds what differs from `lower`, `work` is the kernel's."""

    lower: Path
    upper: Path
    work: Path


def program_roots(
    folders: Iterable[Path], top_level: Mapping[Path, Path | None]
) -> tuple[Path, ...]:
    """The folders that hold the program: the work trees of its folders, or these themselves; outermost ones only.

    Args:
        folders: The working directory and the script's folder; where the script is a link, its target's as well.
        top_level: For each folder, the top of its Git work tree, or None.
    """
    wanted = {(top_level.get(folder) or folder).resolve() for folder in folders}
    wanted = {root for root in wanted if root not in _NEVER}
    outermost = [
        root
        for root in wanted
        if not any(root != other and root.is_relative_to(other) for other in wanted)
    ]
    return tuple(sorted(outermost))


def with_mounts_below(roots: Iterable[Path], mountinfo: str) -> tuple[Path, ...]:
    """The roots, and the folders below them on which something else is mounted, outer ones first.

    An overlay shows only the file system of its lower folder, so each mount below needs a layer of its own.

    Args:
        roots: Folders to cover.
        mountinfo: Text of `/proc/self/mountinfo` (proc(5)): the fifth field is the mount point, with octal escapes;
            the type is the first field after the separator.
    """
    roots = set(roots)
    found = set(roots)
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        point = Path(_OCTAL.sub(lambda match: chr(int(match.group(1), 8)), left.split()[4]))
        below = any(point != root and point.is_relative_to(root) for root in roots)
        if below and right.split()[0] not in _NO_FILES_OF_ITS_OWN and point.is_dir():
            found.add(point)
    return tuple(sorted(found, key=lambda path: (len(path.parts), path)))


def make_layers(
    roots: Iterable[Path], scratch: Path, changed: Mapping[str, bytes]
) -> tuple[Layer, ...]:
    """Prepare the upper layers, with the changed files already in them."""
    layers = []
    for number, root in enumerate(roots):
        layer = Layer(lower=root, upper=scratch / f"upper{number}", work=scratch / f"work{number}")
        layer.upper.mkdir()
        layer.work.mkdir()
        shutil.copystat(root, layer.upper)
        layers.append(layer)
    for path, content in changed.items():
        _place(Path(path), content, layers)
    return tuple(layers)


def _place(path: Path, content: bytes, layers: list[Layer]) -> None:
    path = path.resolve()
    holding = [layer for layer in layers if path.is_relative_to(layer.lower)]
    if not holding:
        raise SandboxError(
            f"{path} lies outside the program's folders, so it cannot be changed for one run"
        )
    layer = max(holding, key=lambda layer: len(layer.lower.parts))
    folder = layer.upper
    for part in path.parent.relative_to(layer.lower).parts:
        folder = folder / part
        folder.mkdir(exist_ok=True)
        shutil.copystat(layer.lower / folder.relative_to(layer.upper), folder)
    target = folder / path.name
    target.write_bytes(content)
    if path.exists():
        shutil.copymode(path, target)


def copy_into(layers: Iterable[Layer]) -> None:
    """Fill the upper layers with everything else, where the kernel gives no overlay.

    Folders such as virtual environments are left out: `left_out` names them.

    Raises:
        SandboxError: The folders are too large to copy for each run.
    """
    for layer in layers:
        size_bytes = _tree_bytes(layer.lower)
        if size_bytes > COPY_LIMIT_BYTES:
            raise SandboxError(
                f"this machine gives no overlay file system, and {layer.lower} holds {format_bytes(size_bytes)}: "
                "too much to copy for each run",
                "headroom run --in-place ...   (for `run` only: the program then writes into your folder)",
            )
        placed = {
            path.relative_to(layer.upper) for path in layer.upper.rglob("*") if path.is_file()
        }

        def skip(
            folder: str, names: list[str], layer: Layer = layer, placed: set[Path] = placed
        ) -> set[str]:
            here = Path(folder).relative_to(layer.lower)
            return set(_NOT_COPIED(folder, names)) | {n for n in names if here / n in placed}

        shutil.copytree(layer.lower, layer.upper, symlinks=True, ignore=skip, dirs_exist_ok=True)


def left_out(layers: Iterable[Layer]) -> tuple[Path, ...]:
    """What `copy_into` does not copy and the program may still read: environments, repositories, caches."""
    found = []
    for layer in layers:
        for here, folders, _ in os.walk(layer.lower):
            skipped = _NOT_COPIED(here, folders)
            found += [Path(here) / name for name in sorted(skipped)]
            folders[:] = [name for name in folders if name not in skipped]
    return tuple(found)


def _tree_bytes(folder: Path) -> int:
    total = 0
    for here, folders, files in os.walk(folder):
        skipped = _NOT_COPIED(here, folders)
        folders[:] = [name for name in folders if name not in skipped]
        total += sum((Path(here) / name).lstat().st_size for name in files)
    return total


def written_files(
    layers: Iterable[Layer], changed: Mapping[str, bytes], limit: int = WRITTEN_LIMIT
) -> tuple[str, ...]:
    """What the program wrote into its folders, as the paths it used; caches of Python left out."""
    written = []
    for layer in layers:
        for path in sorted(layer.upper.rglob("*")):
            name = str(layer.lower / path.relative_to(layer.upper))
            if path.is_dir() or "__pycache__" in path.parts or name in changed:
                continue
            written.append(name)
            if len(written) >= limit:
                return tuple(written)
    return tuple(written)
