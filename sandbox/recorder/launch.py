"""Runs a script or module as `__main__`, as `python script.py` and `python -m module` do."""

import builtins
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from .config import Program

_HERE = Path(__file__).resolve().parent
_OWN_FOLDERS = (str(_HERE), str(_HERE.parent / "virtual"))


class StopAfterUpdates(BaseException):
    """Ends the program after the number of updates asked for; no `except Exception` of the user's catches it."""


def run(program: Program) -> None:
    """Execute the program in a fresh `__main__`. What it raises comes through."""
    code, main = _script(program) if program.kind == "script" else _module(program)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _script(program: Program) -> tuple[CodeType, ModuleType]:
    path = program.target
    sys.argv = [program.typed, *program.args]
    sys.path.insert(0, str(Path(path).resolve().parent))
    main = _new_main(__file__=path, __loader__=SourceFileLoader("__main__", path), __spec__=None)
    main.__package__ = None
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), main


def _module(program: Program) -> tuple[CodeType, ModuleType]:
    sys.argv = ["-m", *program.args]
    sys.path.insert(0, str(Path.cwd()))
    spec = importlib.util.find_spec(program.target)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(program.target + ".__main__")
    loader: Any = spec.loader if spec is not None else None
    code = loader.get_code(spec.name) if spec is not None and hasattr(loader, "get_code") else None
    if spec is None or code is None:
        # The words that python itself uses.
        sys.exit(f"{sys.executable}: No module named {program.target}")
    sys.argv[0] = spec.origin or program.target
    main = _new_main(__file__=spec.origin, __cached__=spec.cached, __loader__=loader, __spec__=spec)
    main.__package__ = spec.parent
    return code, main


def _new_main(**attributes: Any) -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__.update(attributes, __builtins__=builtins, __annotations__={})
    return main


def own_frame(frame_file: str) -> bool:
    """Whether a frame's file is part of the recorder or the virtual GPU."""
    return frame_file.startswith(_OWN_FOLDERS)


def without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback as it would have been without us."""
    kept = []
    while traceback is not None:
        if not own_frame(traceback.tb_frame.f_code.co_filename):
            kept.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for entry in reversed(kept):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def strip_own_frames(error: BaseException) -> None:
    """Take our frames out of an exception and of all it was raised from or while handling."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = without_own_frames(link.__traceback__)
        link = link.__cause__ or link.__context__


def show(error: BaseException) -> None:
    """Print an uncaught exception as the interpreter would, through the program's own excepthook."""
    sys.excepthook(type(error), error, error.__traceback__)
