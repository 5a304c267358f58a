"""Runs a script or module as `__main__`, as `python script.py` and `python -m module` do."""

import builtins
import runpy
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from .config import Program

_HERE = Path(__file__).resolve().parent
_OWN_FOLDERS = (str(_HERE), str(_HERE.parent / "virtual"))


class StopAfterUpdates(BaseException):
    """Ends the program after the number of updates asked for; no `except Exception` of the user's catches it."""


def load(program: Program) -> "tuple[CodeType, dict[str, Any]]":
    """The code to execute and its globals, those of a fresh `__main__`. What is wrong with the program is raised.

    The caller executes it: a frame of ours less is one less in every stack that the allocator's history takes.
    """
    return _load_module(program) if program.kind == "module" else _load_script(program)


def _load_script(program: Program) -> "tuple[CodeType, dict[str, Any]]":
    path = program.target
    sys.argv = [program.typed, *program.args]
    sys.path.insert(0, str(Path(path).resolve().parent))
    loader = SourceFileLoader("__main__", path)
    main = _new_main(__file__=path, __loader__=loader, __spec__=None, __package__=None)
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    return code, main.__dict__


def _load_module(program: Program) -> "tuple[CodeType, dict[str, Any]]":
    """What the interpreter itself calls for `-m`: the same messages, frames and `sys.argv[0]`."""
    sys.argv = ["-m", *program.args]
    sys.path.insert(0, str(Path.cwd()))
    sys.modules["__main__"] = _new_main(__spec__=None)
    run_as_main: Callable[[str], None] = runpy._run_module_as_main  # type: ignore[attr-defined]
    return compile("run(name)", __file__, "exec"), {"run": run_as_main, "name": program.target}


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


def without_leading(traceback: TracebackType | None, count: int) -> TracebackType | None:
    """The traceback without its outermost frames, which are ours.

    An exception that is raised on by a bare `raise` after this is set goes on without them, from Python 3.11 on.
    """
    for _ in range(count):
        traceback = traceback.tb_next if traceback is not None else None
    return traceback


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
    hook = getattr(sys, "excepthook", None)
    if hook is None:
        print("sys.excepthook is missing", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
        return
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as failed:
        strip_own_frames(failed)
        failed.__context__ = None
        print("Error in sys.excepthook:", file=sys.stderr)
        traceback.print_exception(type(failed), failed, failed.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
