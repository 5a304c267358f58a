"""Allocation stacks: interned by content, and filtered to what the user wrote.

Frames come innermost first. Release wheels name C++ frames `??` or by a source file of torch; module calls add two
wrapper frames each; allocations of a backward carry, where our recorder ran, a frame `[backward] NodeName` before the
frames of the forward line that made the node.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from headroom.evidence.model import Frame
from headroom.evidence.text import NAME_LIMIT, PATH_LIMIT, clean_text

RawFrames: TypeAlias = list[Any]

BACKWARD_PREFIX: Final = "[backward] "

# More frames than this say nothing more about the owner; recursion can make tens of thousands.
MAX_FRAMES: Final = 256
_MAX_ALIKE: Final = 8
# A program has some thousand distinct frames, and each stands on hundreds of stacks.
_CACHED: Final = 65_536

NO_STACK: Final = -1
"""In place of a stack number: there are no frames."""

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

    torch makes one list of frames per traceback and one dictionary per distinct frame. So a list is first looked up by
    its own identity, then by the identity of a few of its frames and comparison with the lists found there, which costs
    a fraction of hashing all frames, and only then by content. Identities hold as long as the loaded file is alive:
    `forget_identities` ends that.
    """

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._frame_numbers: dict[Frame, int] = {}
        self._frame_identities: dict[int, tuple[Any, int]] = {}
        self._lists: dict[int, int] = {}
        self._alike: dict[tuple[int, ...], list[tuple[RawFrames, int]]] = {}
        self._stacks: list[tuple[int, ...]] = []
        self._stack_numbers: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._stacks)

    def intern(self, raw: RawFrames) -> int:
        """The number of a stack, NO_STACK for an empty one. Frames that are no dictionaries are left out."""
        return self.intern_all((raw,))[0]

    def intern_all(self, raws: Iterable[RawFrames]) -> list[int]:
        """The numbers of many stacks: a million are looked up here, so nothing is called for one that is known."""
        lists, groups = self._lists, self._alike
        numbers: list[int] = []
        for raw in raws:
            number = lists.get(id(raw)) if raw else NO_STACK
            if number is None:
                length = len(raw)
                quarter = length >> 2
                # Stacks that differ mostly do so in one of these places.
                key = (
                    id(raw[0]),
                    id(raw[quarter]),
                    id(raw[length >> 1]),
                    id(raw[-1 - quarter]),
                    length,
                )
                for frames, known in groups.get(key, ()):
                    if frames == raw:
                        number = known
                        break
                else:
                    number = self._remember(raw, key)
            numbers.append(number)
        return numbers

    def _remember(self, raw: RawFrames, key: tuple[int, ...]) -> int:
        number = self._intern_content(raw)
        alike = self._alike.setdefault(key, [])
        # Beyond some, comparing costs more than hashing: only a made-up file has so many.
        if len(alike) < _MAX_ALIKE:
            alike.append((raw, number))
        self._lists[id(raw)] = number
        return number

    def _intern_content(self, raw: RawFrames) -> int:
        numbers = (self._frame_number(frame) for frame in raw[:MAX_FRAMES])
        key = tuple(number for number in numbers if number >= 0)
        number = self._stack_numbers.get(key)
        if number is None:
            number = self._stack_numbers[key] = len(self._stacks)
            self._stacks.append(key)
        return number

    def forget_identities(self) -> None:
        """Let the loaded file go: whatever is interned from here on is compared by content."""
        self._frame_identities, self._lists, self._alike = {}, {}, {}

    def frames(self, number: int) -> tuple[Frame, ...]:
        """The cleaned frames of a stack, innermost first."""
        return tuple(self._frames[frame] for frame in self._stacks[number])

    def _frame_number(self, raw: Any) -> int:
        known = self._frame_identities.get(id(raw))
        if known is not None:
            return known[1]
        number = -1
        if isinstance(raw, dict):
            frame = _frame(raw)
            number = self._frame_numbers.setdefault(frame, len(self._frames))
            if number == len(self._frames):
                self._frames.append(frame)
        self._frame_identities[id(raw)] = (raw, number)
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


@lru_cache(maxsize=_CACHED)
def _under(filename: str, roots: tuple[str, ...]) -> bool:
    path = filename.replace("\\", "/")
    for root in roots:
        folder = root.replace("\\", "/").rstrip("/") + "/"
        if path.startswith(folder) and _LIBRARY.search("/" + path[len(folder) :]) is None:
            return True
    return False


def is_library(filename: str) -> bool:
    """Whether a file belongs to torch, to an installed package or to the standard library."""
    return _LIBRARY.search("/" + filename.replace("\\", "/")) is not None


@lru_cache(maxsize=_CACHED)
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
        if _is_told(frame.filename, frame.name) and (not shown or shown[-1] != frame):
            shown.append(frame)
    return tuple(shown)


@lru_cache(maxsize=_CACHED)
def _is_told(filename: str, name: str) -> bool:
    """Whether a frame says something to people: it is no wrapper of torch's and no noise of the interpreter."""
    if name in _WRAPPERS and _LIBRARY.search("/" + filename) is not None:
        return False
    return _PYTHON_FILE.search(filename) is not None or _NOISE.search(name) is None
