"""Stacks, without torch: a stand-in answers for autograd."""

import threading

from headroom.sandbox.virtual.stacks import Stacks

HERE = __file__


class Node:
    def __init__(self, number: int) -> None:
        self.number = number

    def name(self) -> str:
        return "MulBackward0"

    def _sequence_nr(self) -> int:
        return self.number


class Autograd:
    def __init__(self) -> None:
        self.node: Node | None = None
        self.made = 0

    def current_node(self) -> Node | None:
        return self.node

    def next_sequence_number(self) -> int:
        return self.made


def shown(stacks: Stacks) -> list[str]:
    """Takes a stack one call below the package's own code, as the device does."""
    return [frame["name"] for frame in stacks.frames(take(stacks))]


def take(stacks: Stacks) -> tuple[object, ...]:
    return stacks.take()


def multiply(stacks: Stacks, autograd: Autograd) -> list[str]:
    autograd.made += 1
    return shown(stacks)


def test_innermost_first_with_lines() -> None:
    stacks = Stacks(Autograd(), lambda filename: False)
    frame = stacks.frames(take(stacks))[0]
    assert frame == {"filename": HERE, "line": take.__code__.co_firstlineno + 1, "name": "take"}
    assert shown(stacks)[1:3] == ["shown", "test_innermost_first_with_lines"]


def test_the_same_stack_is_one_object() -> None:
    stacks = Stacks(Autograd(), lambda filename: False)
    first, second = (take(stacks) for _ in range(2))
    assert first is second and stacks.frames(first) is stacks.frames(second)


def test_hidden_files_and_how_the_program_was_started() -> None:
    stacks = Stacks(Autograd(), lambda filename: filename == "ours.py")
    program = compile("def work(): return take()\nresult = work()", "program.py", "exec")
    runpy = compile("exec(program, space)", "/usr/lib/python3/runpy.py", "exec")
    ours = compile("exec(runpy, globals())", "ours.py", "exec")
    space = {"take": lambda: stacks.take()}
    exec(ours, {"runpy": runpy, "program": program, "space": space})
    frames = stacks.frames(space["result"])  # type: ignore[arg-type]
    files = [frame["filename"] for frame in frames]
    assert files[:3] == [HERE, "program.py", "program.py"]
    assert "ours.py" not in files and "/usr/lib/python3/runpy.py" not in files


def test_backward_carries_the_forward_stack() -> None:
    autograd = Autograd()
    stacks = Stacks(autograd, lambda filename: False)
    multiply(stacks, autograd)
    autograd.node = Node(0)
    names: list[str] = []
    engine = threading.Thread(target=lambda: names.extend(shown(stacks)))
    engine.start()
    engine.join()
    assert names[0] == "[backward] MulBackward0"
    assert "multiply" in names and names.index("multiply") > names.index("run")


def test_several_forward_threads_are_ambiguous() -> None:
    autograd = Autograd()
    stacks = Stacks(autograd, lambda filename: False)
    multiply(stacks, autograd)
    other = threading.Thread(target=lambda: multiply(stacks, autograd))
    other.start()
    other.join()
    autograd.node = Node(0)
    names: list[str] = []
    engine = threading.Thread(target=lambda: names.extend(shown(stacks)))
    engine.start()
    engine.join()
    assert names[0] == "[backward] MulBackward0" and "multiply" not in names


def test_views_are_remembered_without_an_allocation() -> None:
    autograd = Autograd()
    stacks = Stacks(autograd, lambda filename: False)

    def view() -> None:
        autograd.made += 1
        stacks.note_forward()

    view()
    autograd.node = Node(0)
    names: list[str] = []
    engine = threading.Thread(target=lambda: names.extend(shown(stacks)))
    engine.start()
    engine.join()
    assert "view" in names
