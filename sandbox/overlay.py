"""Which folders of the program are copy-on-write, and what it wrote there."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headroom.errors import SandboxError
from headroom.units import format_bytes

COPY_LIMIT_BYTES: Final = 2 * 1024**3
"""Without overlays the program's folder is copied for each run; above this that is no longer reasonable."""

_NEVER: Final = frozenset(
    map(Path, ("/", "/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev", "/sys"))
)
_NOT_COPIED: Final = shutil.ignore_patterns(
    ".git", ".headroom", ".venv*", "venv", "node_modules", "__pycache__", ".mypy_cache"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One copy-on-write folder: `upper` holds what differs from `lower`, `work` is the kernel's."""

    lower: Path
    upper: Path
    work: Path


def program_roots(
    cwd: Path, script: Path | None, top_level: Mapping[Path, Path | None]
) -> tuple[Path, ...]:
    """The folders that hold the program: the work trees (or bare folders) of its cwd and its script.

    Args:
        cwd: Working directory.
        script: The script, if the program is one.
        top_level: For each folder, the top of its Git work tree, or None.
    """
    folders = [cwd] if script is None else [cwd, script.parent]
    wanted = {(top_level.get(folder) or folder).resolve() for folder in folders}
    wanted = {root for root in wanted if root not in _NEVER}
    outermost = [
        r for r in wanted if not any(r != other and r.is_relative_to(other) for other in wanted)
    ]
    return tuple(sorted(outermost))


def scratch_folder(roots: Iterable[Path], run_id: str) -> Path:
    """A fresh folder outside all roots: an overlay refuses an upper layer inside its lower one.

    Raises:
        SandboxError: No writable place outside the program's folders was found.
    """
    roots = tuple(roots)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for base in (Path(tempfile.gettempdir()), Path("/var/tmp"), home, Path("/dev/shm")):
        resolved = base.resolve()
        if any(resolved.is_relative_to(root) for root in roots) or not os.access(base, os.W_OK):
            continue
        return Path(tempfile.mkdtemp(prefix=f"headroom-{run_id}-", dir=base))
    raise SandboxError(
        "no writable folder outside the program's own for the sandbox's layers",
        "TMPDIR=/some/other/folder headroom ...",
    )


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
    for layer in layers:
        if path.is_relative_to(layer.lower):
            break
    else:
        raise SandboxError(
            f"{path} lies outside the program's folders, so it cannot be changed for one run"
        )
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

    Raises:
        SandboxError: The folders are too large to copy for each run.
    """
    for layer in layers:
        size_bytes = _tree_bytes(layer.lower)
        if size_bytes > COPY_LIMIT_BYTES:
            raise SandboxError(
                f"this machine gives no overlay file system, and {layer.lower} holds {format_bytes(size_bytes)}: "
                "too much to copy for each run",
                "headroom run --in-place ...   (the program then writes into your folder)",
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


def _tree_bytes(folder: Path) -> int:
    total = 0
    for here, folders, files in os.walk(folder):
        skipped = _NOT_COPIED(here, folders)
        folders[:] = [name for name in folders if name not in skipped]
        total += sum((Path(here) / name).lstat().st_size for name in files)
    return total


def written_files(
    layers: Iterable[Layer], changed: Mapping[str, bytes], limit: int = 1000
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
