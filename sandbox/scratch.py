"""Where the sandbox keeps its layers while a program runs, and that nothing of it stays behind."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headroom.errors import SandboxError

_PREFIX: Final = "headroom-"


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
        sweep(base)
        return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-{run_id}-", dir=base))
    raise SandboxError(
        "no writable folder outside the program's own for the sandbox's layers",
        "TMPDIR=/some/other/folder headroom ...",
    )


def sweep(base: Path) -> None:
    """Remove the scratch folders of Headrooms that were killed: their process is gone."""
    for folder in base.glob(f"{_PREFIX}[0-9]*-*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a scratch folder; the kernel leaves the work folder of an overlay without permissions."""
    for here, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(here) / name
            if not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
