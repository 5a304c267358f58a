"""Which frames are the program's own."""

import functools
import os
import site
import sys
import sysconfig
from pathlib import Path
from types import FrameType


@functools.cache
def is_library(filename: str) -> bool:
    """Whether a file belongs to an installed package, the standard library, the recorder, or is none at all."""
    if filename.startswith("<") or not filename:
        return True
    path = os.path.realpath(filename)
    return path.startswith(_library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    folders = {
        str(Path(__file__).resolve().parent),
        str(Path(__file__).resolve().parent.parent / "virtual"),
    }
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        folders.add(sysconfig.get_paths()[name])
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    folders.add(site.getusersitepackages())
    folders.add(os.path.join(sys.prefix, "lib"))  # noqa: PTH118
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


def user_frame(frame: "FrameType | None") -> "FrameType | None":
    """The innermost frame, from `frame` outwards, that is the program's own."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
