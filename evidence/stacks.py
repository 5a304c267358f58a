"""Allocation stacks: interned by content, and filtered to what the user wrote.

Frames come innermost first. Release wheels name C++ frames `??` or by a source file of torch; module calls add two
wrapper frames each; allocations of a backward carry, where our recorder ran, a frame `[backward] NodeName` before the
frames of the forward line that made the node.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from headroom.evidence.model import Frame
from headroom.evidence.snapshot import RawFrames
from headroom.evidence.text import NAME_LIMIT, PATH_LIMIT, clean_text

BACKWARD_PREFIX: Final = "[backward] "

# More frames than this say nothing more about the owner; recursion can make tens of thousands.
MAX_FRAMES: Final = 256

_LIBRARY: Final = re.compile(
    r"/(?:site|dist)-packages/"
    r"|/torch/(?:_|nn/|optim/|utils/|autograd/|cuda/|amp/|distributed/|overrides\.py|tensor\.py)"
    r"|/lib(?:64)?/python3[^/]*/|/torchinductor_|/sandbox/(?:recorder|virtual)/"
)
# A Python file, a script without an extension, or a cell of a notebook.
_PYTHON_FILE: Final = re.compile(r"\.pyw?$|^/(?:[^/]+/)*[^/.]+$|^<ipython-input|/ipykernel_\d+/")
_WRAPPERS: Final = frozenset(
    {"_call_impl", "_wrapped_call_impl", "decorate_context", "_fn", "inner"}
)
# What torch's own viewer omits (`_frame_filter` in torch/cuda/_memory_viz.py), and boxing and allocation glue.
_NOISE: Final = re.compile(
    r"unwind::unwind|CapturedTraceback::gather|gather_with_cpp|_start$|__libc_start_main|PyEval_|PyObject_|PyFunction_|"
    r"BoxedKernel|wrap_kernel_functor|make_boxed_from|CachingAllocator|StorageImpl|_empty_generic|empty_strided"
)
_AUTOGRAD_ENGINE: Final = "torch::autograd::Engine::"


class StackTable:
    """Numbers for stacks that are equal in content, whatever objects hold them.

    torch makes one list of frames per traceback and one dictionary per distinct frame, so both are remembered by
    identity as well; the table keeps what it has seen alive.
    """

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._frame_numbers: dict[Frame, int] = {}
        self._by_identity: dict[int, tuple[Any, int]] = {}
        self._stacks: list[tuple[int, ...]] = []
        self._stack_numbers: dict[tuple[int, ...], int] = {}

    def intern(self, raw: RawFrames) -> int:
        """The number of a stack. Frames that are no dictionaries are left out."""
        numbers = (self._frame_number(frame) for frame in raw[:MAX_FRAMES])
        key = tuple(number for number in numbers if number >= 0)
        number = self._stack_numbers.get(key)
        if number is None:
            number = self._stack_numbers[key] = len(self._stacks)
            self._stacks.append(key)
        return number

    def frames(self, number: int) -> tuple[Frame, ...]:
        """The cleaned frames of a stack, innermost first."""
        return tuple(self._frames[frame] for frame in self._stacks[number])

    def _frame_number(self, raw: Any) -> int:
        known = self._by_identity.get(id(raw))
        if known is not None:
            return known[1]
        number = -1
        if isinstance(raw, dict):
            frame = _frame(raw)
            number = self._frame_numbers.setdefault(frame, len(self._frames))
            if number == len(self._frames):
                self._frames.append(frame)
        self._by_identity[id(raw)] = (raw, number)
        return number


def _frame(raw: dict[str, Any]) -> Frame:
    line = raw.get("line")
    return Frame(
        filename=clean_text(raw.get("filename"), PATH_LIMIT),
        line=line if type(line) is int and 0 <= line < 2**31 else 0,
        name=clean_text(raw.get("name"), NAME_LIMIT),
    )


def user_frames(frames: Iterable[Frame], roots: tuple[str, ...] = ()) -> tuple[Frame, ...]:
    """Frames of the user's own code, innermost first.

    Args:
        frames: A stack.
        roots: Folders of the program. Where any frame lies under one (and not in an environment inside it), those
            frames are the user's and no others; else, as without roots, all that belongs to no library.
    """
    stack = tuple(frames)
    inside = tuple(frame for frame in stack if _under(frame.filename, roots)) if roots else ()
    return inside or tuple(frame for frame in stack if _is_user_file(frame.filename))


def _under(filename: str, roots: tuple[str, ...]) -> bool:
    path = filename.replace("\\", "/")
    for root in roots:
        folder = root.replace("\\", "/").rstrip("/") + "/"
        if path.startswith(folder) and _LIBRARY.search("/" + path[len(folder) :]) is None:
            return True
    return False


def _is_user_file(filename: str) -> bool:
    path = filename.replace("\\", "/")
    return _PYTHON_FILE.search(path) is not None and _LIBRARY.search("/" + path) is None


def is_backward(frames: tuple[Frame, ...]) -> bool:
    """Whether the allocation happened in a backward: our recorder's mark, or autograd's engine on a C++ stack."""
    if frames and frames[0].filename == "??" and frames[0].name.startswith(BACKWARD_PREFIX):
        return True
    return any(_AUTOGRAD_ENGINE in frame.name for frame in frames)


def display_frames(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A stack for people: without wrappers of module calls and interpreter noise, repetitions told once."""
    shown: list[Frame] = []
    for frame in frames:
        wrapper = frame.name in _WRAPPERS and _LIBRARY.search("/" + frame.filename) is not None
        noise = not _PYTHON_FILE.search(frame.filename) and _NOISE.search(frame.name)
        if not wrapper and not noise and (not shown or shown[-1] != frame):
            shown.append(frame)
    return tuple(shown)
