from pathlib import Path

import pytest

from headroom.evidence.model import Frame
from headroom.evidence.reading.history import Action
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.stacks import (
    MAX_FRAMES,
    StackTable,
    display_frames,
    is_backward,
    user_frames,
)


def frame(filename: str, line: int = 1, name: str = "f") -> Frame:
    return Frame(filename=filename, line=line, name=name)


USER = frame("/srv/job/train.py", 10, "step")


@pytest.mark.parametrize(
    "filename",
    [
        "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py",
        "/usr/lib/python3/dist-packages/torch/optim/adam.py",
        "/home/me/pytorch/torch/nn/functional.py",
        "/usr/lib/python3.11/contextlib.py",
        "/opt/conda/lib/python3.10/runpy.py",
        "/tmp/torchinductor_me/ab/cab.py",
        "/opt/tool/headroom/sandbox/recorder/launch.py",
        "<frozen runpy>",
        "<string>",
        "<eval_with_key>.7",
        "??",
        "",
        "CUDACachingAllocator.cpp",
        "/build/aten/src/ATen/RegisterCUDA_0.cpp",
    ],
)
def test_frames_of_libraries_are_not_the_users(filename: str) -> None:
    assert user_frames([frame(filename), USER]) == (USER,)


@pytest.mark.parametrize(
    "filename",
    [
        "/srv/job/model/block.py",
        "train.py",
        "/srv/job/bin/train",
        "/home/me/torch/train.py",
        "C:\\work\\train.py",
        "/tmp/ipykernel_4242/99.py",
        "<ipython-input-3-abc>",
    ],
)
def test_frames_of_programs_are_the_users(filename: str) -> None:
    assert user_frames([frame(filename)]) == (frame(filename),)


def test_roots_decide_first() -> None:
    helper, own = frame("/srv/lib/helper.py"), frame("/srv/job/train.py")
    assert user_frames([helper, own]) == (helper, own)
    assert user_frames([helper, own], roots=("/srv/job",)) == (own,)
    # A name that only begins alike is another folder, and without a frame under a root the rules decide.
    assert user_frames([helper, own], roots=("/srv/jo",)) == (helper, own)


def test_a_program_may_be_installed_and_may_hold_an_environment() -> None:
    installed = frame("/opt/venv/lib/python3.12/site-packages/mytool/train.py")
    root = "/opt/venv/lib/python3.12/site-packages/mytool/"
    assert user_frames([installed]) == ()
    assert user_frames([installed], roots=(root,)) == (installed,)
    environment = frame("/srv/job/.venv/lib/python3.12/site-packages/torch/nn/functional.py")
    assert user_frames([environment, USER], roots=("/srv/job",)) == (USER,)


def test_our_mark_and_autograds_engine_mean_backward() -> None:
    marked = (frame("??", 0, "[backward] MmBackward0"), USER)
    assert is_backward(marked)
    assert user_frames(marked) == (USER,)
    assert is_backward((frame("??", 0, "torch::autograd::Engine::thread_main()"),))
    assert not is_backward((USER, frame("??", 0, "[backward] MmBackward0")))
    assert not is_backward((frame("/srv/job/x.py", 3, "[backward] f"),))
    assert not is_backward(())


def test_cpp_stacks_of_a_real_backward_are_told_apart(captures: Path) -> None:
    snapshot = read_snapshot_file(captures / "all_stacks.pickle")
    history = snapshot.history_of(0)
    stacks = [
        snapshot.stacks.frames(number)
        for action, number in zip(history.actions, history.stacks, strict=True)
        if action == Action.ALLOC
    ]
    backward = sum(is_backward(frames) for frames in stacks)
    # What has no Python frame of the program was allocated on autograd's thread.
    assert backward == sum(not user_frames(frames) for frames in stacks) > 400


def test_wrappers_noise_and_repetition_are_collapsed_for_display() -> None:
    site = "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py"
    call, wrapped = frame(site, 1790, "_call_impl"), frame(site, 1779, "_wrapped_call_impl")
    noise = frame("??", 0, "torch::unwind::unwind()")
    kept = frame("??", 0, "at::native::mm")
    own = frame("/srv/job/model.py", 5, "inner")
    recursion = [frame("/srv/job/model.py", 9, "descend")] * 30
    shown = display_frames((noise, kept, call, wrapped, own, *recursion, USER))
    assert shown == (kept, own, recursion[0], USER)


def test_equal_stacks_get_one_number_whatever_objects_hold_them() -> None:
    table = StackTable()
    raw = {"filename": "a.py", "line": 3, "name": "f"}
    first = table.intern([raw, {"filename": "b.py", "line": 4, "name": "g"}])
    second = table.intern([dict(raw), {"filename": "b.py", "line": 4, "name": "g", "fx": 1}])
    other = table.intern([raw, {"filename": "b.py", "line": 5, "name": "g"}])
    assert first == second != other
    assert table.frames(first) == (frame("a.py", 3, "f"), frame("b.py", 4, "g"))


def test_odd_frames_do_no_harm() -> None:
    table = StackTable()
    hostile = [
        7,
        None,
        {"filename": 3, "line": True, "name": ["x"]},
        {"filename": "a\x1b[2J\n.py", "line": -4, "name": "\u202egnp.exe\u202c\u200b"},
        {},
    ]
    frames = table.frames(table.intern(hostile))
    assert frames == (frame("", 0, ""), frame("a[2J.py", 0, "gnp.exe"), frame("", 0, ""))


def test_recursion_is_cut() -> None:
    table = StackTable()
    raw = {"filename": "a.py", "line": 3, "name": "f"}
    assert len(table.frames(table.intern([raw] * 100_000))) == MAX_FRAMES
