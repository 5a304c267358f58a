import pytest

from headroom.evidence.explain.origins import Origin, origin_of
from headroom.evidence.model import Frame

TORCH = "/opt/venv/lib/python3.12/site-packages/torch"
CALL = (f"{TORCH}/nn/modules/module.py", 1790, "_call_impl")
FORWARD = ("/srv/job/model.py", 15, "forward")
MAIN = ("/srv/job/train.py", 90, "<module>")
CLOSURE = ("/srv/job/train.py", 52, "closure")
LIGHTNING = ("/opt/venv/lib/python3.12/site-packages/lightning/closure.py", 131, "__call__")
WRAPPER = (f"{TORCH}/optim/optimizer.py", 533, "wrapper")
ADAM_STEP = (f"{TORCH}/optim/adam.py", 238, "step")
MARK = ("??", 0, "[backward] AddmmBackward0")
ENGINE = (
    "??",
    0,
    "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
)
APPLY = (f"{TORCH}/autograd/function.py", 311, "apply")
RECOMPUTE = (f"{TORCH}/utils/checkpoint.py", 1100, "recompute_fn")


@pytest.mark.parametrize(
    ("frames", "origin"),
    [
        ([], Origin.UNTOLD),
        ([("??", 0, "at::native::empty_cuda()")], Origin.UNTOLD),
        ([MAIN], Origin.LINE),
        ([("/srv/job/model.py", 7, "__init__"), MAIN], Origin.BUILD),
        ([(f"{TORCH}/nn/modules/module.py", 965, "_apply"), MAIN], Origin.SETUP),
        ([(f"{TORCH}/nn/modules/linear.py", 106, "__init__"), MAIN], Origin.SETUP),
        ([(f"{TORCH}/nn/init.py", 40, "uniform_"), MAIN], Origin.SETUP),
        ([("/opt/hf/modeling.py", 40, "from_pretrained"), MAIN], Origin.SETUP),
        ([(f"{TORCH}/utils/data/_utils/pin_memory.py", 40, "pin_memory"), MAIN], Origin.INPUT),
        ([FORWARD, CALL, MAIN], Origin.FORWARD),
        ([(f"{TORCH}/nn/functional.py", 3504, "cross_entropy"), MAIN], Origin.FORWARD),
        # A module that is built within the call of another is setup, not activation.
        ([(f"{TORCH}/nn/modules/linear.py", 106, "__init__"), FORWARD, CALL, MAIN], Origin.SETUP),
        ([MARK, FORWARD, CALL, MAIN], Origin.BACKWARD),
        ([("??", 0, "[backward] AccumulateGrad"), FORWARD, CALL, MAIN], Origin.GRADIENT),
        ([("??", 0, "at::native::empty_cuda()"), ENGINE], Origin.BACKWARD),
        ([(f"{TORCH}/autograd/__init__.py", 231, "_make_grads"), MAIN], Origin.BACKWARD),
        ([FORWARD, CALL, RECOMPUTE], Origin.RECOMPUTED),
        ([MARK, FORWARD, CALL, RECOMPUTE], Origin.RECOMPUTED),
        # The user's own autograd function: Python runs its backward on autograd's thread, and its forward in a module.
        ([("/srv/job/op.py", 9, "backward"), APPLY], Origin.BACKWARD),
        ([("/srv/job/op.py", 4, "forward"), APPLY, FORWARD, CALL, MAIN], Origin.FORWARD),
        ([(f"{TORCH}/optim/adam.py", 178, "_init_group"), ADAM_STEP, WRAPPER, MAIN], Origin.STATE),
        ([(f"{TORCH}/optim/adam.py", 791, "_multi_tensor_adam"), ADAM_STEP, WRAPPER, MAIN], Origin.OPTIMIZER),
        # An optimizer of the user's own: torch wraps its `step`.
        ([("/srv/job/lion.py", 30, "step"), WRAPPER, MAIN], Origin.OPTIMIZER),
        # What an optimizer's closure does is the program's own work, and a scheduler is no optimizer.
        ([FORWARD, CALL, CLOSURE, ADAM_STEP, WRAPPER, MAIN], Origin.FORWARD),
        ([CLOSURE, ADAM_STEP, WRAPPER, MAIN], Origin.LINE),
        ([CLOSURE, LIGHTNING, ADAM_STEP, WRAPPER, MAIN], Origin.LINE),
        ([LIGHTNING, ADAM_STEP, WRAPPER], Origin.LINE),
        ([("train.py", 3, "main")], Origin.LINE),
        ([("C:\\job\\torch\\nn\\modules\\module.py", 3, "_call_impl")], Origin.FORWARD),
        ([("/srv/job/train.py", 3, "warm"), (f"{TORCH}/optim/lr_scheduler.py", 9, "step"), MAIN], Origin.LINE),
        ([FORWARD, CALL, (f"{TORCH}/utils/_contextlib.py", 120, "decorate_context"), MAIN], Origin.EVALUATION),
        ([FORWARD, CALL, ("/srv/job/train.py", 70, "run_validation"), MAIN], Origin.EVALUATION),
        ([FORWARD, CALL, ("/srv/job/train.py", 70, "devaluate"), MAIN], Origin.FORWARD),
        ([("??", 0, "at::cuda::getCUDABlasLtWorkspace()"), FORWARD, CALL, MAIN], Origin.WORKSPACE),
        ([("??", 0, "at::cuda::setWorkspaceForHandle(cublasContext*)"), ENGINE], Origin.WORKSPACE),
    ],
)  # fmt: skip
def test_the_innermost_frame_that_says_anything_decides(
    frames: list[tuple[str, int, str]], origin: Origin
) -> None:
    stack = tuple(Frame(filename=file, line=line, name=name) for file, line, name in frames)
    assert origin_of(stack) is origin
