"""The label of a thread's allocations: where the program stands, in one line without spaces.

    hr:u=<updates>,c=<calls>,p=<phase>[,m=<module path>]
    hr:u=<updates>,c=<calls>,p=backward,n=<node>[,s=<site>][,g=<parameter>|,m=<module path>]

Phases: `forward` (inside an outermost module call that trains), `evaluation` (inside any other), `backward`,
`optimizer`, `other`. What may hold a comma comes last.
"""

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from .progress import Progress

OTHER, FORWARD, EVALUATION = "other", "forward", "evaluation"
BACKWARD, OPTIMIZER = "backward", "optimizer"
IN_MODULES = (FORWARD, EVALUATION)
TEXT_LIMIT = 500
_STEP_FILE = "/torch/optim/optimizer.py"


class _Thread(threading.local):
    """What one thread is doing. A thread that never entered a phase has none, and is not labelled."""

    phase: "str | None" = None
    root: Any = None
    text = ""
    path: "str | None" = ""
    """The module that the label names; an empty one if something else was labelled since."""

    def __init__(self) -> None:
        self.saved: dict[str, tuple[str | None, Any, str]] = {}


class Labels:
    """Sets the label when something that it says has changed.

    Args:
        progress: Updates and calls so far.
        set_metadata: The allocator's own function; called once CUDA is there.
    """

    def __init__(self, progress: Progress, set_metadata: Callable[[str], None]) -> None:
        self._progress, self._set_metadata = progress, set_metadata
        self.thread = _Thread()
        self.enabled = False

    def enable(self) -> None:
        """CUDA is initialised, and its allocations are recorded from now on."""
        self.enabled = True
        if self.thread.phase is None:
            self.thread.phase = OTHER
        self.show()

    def stand(self) -> str:
        """The part that all labels begin with."""
        return f"hr:u={self._progress.updates},c={self._progress.calls}"

    def show(self, path: "str | None" = None) -> None:
        """Label this thread's next allocations with its phase, and the module that it is in."""
        phase = self.thread.phase
        if phase is None or not self.enabled:
            return
        text = f"{self.stand()},p={phase}"
        self.put(f"{text},m={clean(path)}" if path else text)
        self.thread.path = path

    def put(self, text: str) -> None:
        """Set this label on this thread."""
        thread = self.thread
        thread.path = ""
        if thread.text != text and self.enabled:
            thread.text = text
            self._set_metadata(text)

    def clear(self) -> None:
        """Take the label off this thread."""
        self.put("")

    def enter(self, phase: str, root: Any = None) -> None:
        """A phase begins on this thread; `leave` brings back what was before."""
        thread = self.thread
        kind = _kind(phase)
        if thread.phase == OPTIMIZER and _steps_under_way() < (2 if phase == OPTIMIZER else 1):
            thread.phase = OTHER  # a step that failed has no end
        thread.saved[kind] = (thread.phase, thread.root, thread.text)
        thread.phase, thread.root = phase, root if root is not None else thread.root
        self.show()

    def leave(self, phase: str) -> None:
        """A phase is over, if it had begun."""
        thread = self.thread
        before = thread.saved.pop(_kind(phase), None)
        if before is None:
            return
        thread.phase, thread.root, text = before
        if thread.phase in (None, BACKWARD):
            self.put(text)  # a node's, inside of which this happened
        else:
            self.show()


def _kind(phase: str) -> str:
    return "call" if phase in IN_MODULES else phase


def _steps_under_way() -> int:
    """How many frames of this thread are `Optimizer.step`'s own wrapper."""
    count = 0
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        count += code.co_name == "wrapper" and code.co_filename.endswith(_STEP_FILE)
        frame = frame.f_back
    return count


def clean(name: str) -> str:
    """A name that fits on a label's line."""
    if name.isprintable():
        return name[:TEXT_LIMIT]
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:TEXT_LIMIT]
