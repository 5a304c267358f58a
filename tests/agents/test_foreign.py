"""Call sites from stacks alone."""

from pathlib import Path

from headroom.agents.foreign import infer_call_sites, outermost_call
from headroom.evidence.analysis import analyse
from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.model import Frame, StackId, StackUse
from headroom.evidence.reading.safe_pickle import read_snapshot_file

MODULE = "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py"
CALL = Frame(filename=MODULE, line=1787, name="_call_impl")
WRAPPED = Frame(filename=MODULE, line=1776, name="_wrapped_call_impl")
BLOCK = Frame(filename="/srv/job/model.py", line=12, name="forward")
NET = Frame(filename="/srv/job/model.py", line=40, name="forward")
STEP = Frame(filename="/srv/job/train.py", line=7, name="step")
MAIN = Frame(filename="/srv/job/train.py", line=20, name="<module>")


def use(*frames: Frame) -> StackUse:
    return StackUse(
        id=StackId("S001"),
        frames=frames,
        user_frames=tuple(frame for frame in frames if "/srv/job" in frame.filename),
        backward=False,
        allocated_bytes=1,
        requested_bytes=1,
        blocks=1,
    )


def test_the_line_that_calls_the_outermost_module_is_the_site() -> None:
    stack = use(BLOCK, CALL, WRAPPED, NET, CALL, WRAPPED, STEP, MAIN)
    assert outermost_call(stack) == STEP


def test_what_no_module_made_has_no_site() -> None:
    assert outermost_call(use(STEP, MAIN)) is None
    other = Frame(filename="/srv/job/module.py", line=1, name="_call_impl")
    assert outermost_call(use(BLOCK, other, STEP)) is None


def device(captures: Path, name: str) -> DeviceAnalysis:
    return analyse(read_snapshot_file(captures / f"{name}.pickle")).main


def test_a_real_training_loop_is_one_trained_site(captures: Path) -> None:
    (site,) = infer_call_sites(device(captures, "full"))
    assert site.function == "step"
    assert site.reached_calls > 0


def test_an_evaluation_that_keeps_its_graph_is_a_site_that_no_gradient_reaches(
    captures: Path,
) -> None:
    sites = {site.function: site for site in infer_call_sites(device(captures, "eval_leak"))}
    assert sites["main"].grad_calls > 0
    assert sites["main"].reached_calls == 0
