"""A pretend training program on the reference allocator: stacks and labels as our recorder would write them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.evidence.reference_allocator import MIB, Allocator, Piece

SITE = "/opt/venv/lib/python3.12/site-packages"


def stack(*frames: tuple[str, int, str]) -> list[dict[str, Any]]:
    """Frames innermost first; each call makes new objects."""
    return [{"filename": name, "line": line, "name": func} for name, line, func in frames]


MAIN = ("/srv/job/train.py", 90, "<module>")
LINEAR = (f"{SITE}/torch/nn/modules/linear.py", 134, "forward")
WRAPPER = (f"{SITE}/torch/nn/modules/module.py", 1790, "_call_impl")


class Program:
    def __init__(self) -> None:
        self.allocator = Allocator()
        self.update, self.call = 0, 0

    def begin_call(self) -> None:
        self.call += 1
        self.label()

    def end_update(self) -> None:
        self.update += 1
        self.label()

    def label(self) -> None:
        self.allocator.label = f"hr:u={self.update},c={self.call}"

    def alloc(self, mebibytes: float, *frames: tuple[str, int, str]) -> Piece:
        self.allocator.frames = stack(*frames)
        return self.allocator.malloc(int(mebibytes * MIB))

    def free(self, *pieces: Piece) -> None:
        for piece in pieces:
            self.allocator.frames = []
            self.allocator.free(piece)

    @contextmanager
    def autograd_thread(self) -> Iterator[None]:
        """Allocations without a label, as those of a backward."""
        label, self.allocator.label = self.allocator.label, ""
        yield
        self.allocator.label = label


def leaking_training(updates: int = 6, program: Program | None = None) -> Program:
    """Parameters, optimizer state, and a list that keeps every loss with its graph."""
    program = program or Program()
    for _ in range(4):
        program.alloc(8, ("/srv/job/model.py", 7, "__init__"), MAIN)
    for _ in range(updates):
        program.begin_call()
        layers = [
            program.alloc(2, LINEAR, WRAPPER, ("/srv/job/model.py", 15, "forward"), MAIN)
            for _ in range(5)
        ]
        program.alloc(3, ("/srv/job/train.py", 41, "step"), MAIN)
        with program.autograd_thread():
            node = ("??", 0, "[backward] AddmmBackward0")
            gradient = program.alloc(2, node, ("/srv/job/model.py", 15, "forward"), MAIN)
        program.free(*layers, gradient)
        if program.update == 0:
            adam = (f"{SITE}/torch/optim/adam.py", 178, "_init_group")
            program.alloc(16, adam, ("/srv/job/train.py", 44, "step"), MAIN)
        program.end_update()
    return program
