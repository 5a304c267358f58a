"""What a stack says of the block it allocated, decided once for each stack.

The innermost frame that says anything decides, so a forward within an optimizer's closure is a forward, and a
module that is built within a call of another is setup.
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from headroom.evidence.model import Frame
from headroom.evidence.reading.stacks import BACKWARD_PREFIX, StackTable, is_backward, user_frames


class Origin(IntEnum):
    """What part of a program a stack belongs to.

    `GRADIENT` is the recorder's mark of the node that accumulates a gradient; `STATE` an optimizer making its state;
    `BUILD` a constructor of the user's own; `LINE` any other line of the user's own; `UNTOLD` a stack that says
    nothing; `ABSENT` no stack at all.
    """

    ABSENT = 0
    UNTOLD = 1
    LINE = 2
    BUILD = 3
    SETUP = 4
    INPUT = 5
    WORKSPACE = 6
    FORWARD = 7
    EVALUATION = 8
    RECOMPUTED = 9
    BACKWARD = 10
    GRADIENT = 11
    OPTIMIZER = 12
    STATE = 13


class _Sign(IntEnum):
    """What one frame says."""

    NOTHING = 0
    STEP = 1
    WORKSPACE = 2
    ENGINE = 3
    RECOMPUTING = 4
    ROOT_GRADIENTS = 5
    APPLY = 6
    OPTIMIZER = 7
    STATE = 8
    SETUP = 9
    INPUT = 10
    CALL = 11
    EVALUATING = 12
    BACKWARD_METHOD = 13
    CONSTRUCTOR = 14
    LIBRARY = 15
    OWN = 16


# cuBLAS and cuBLASLt: aten/src/ATen/cuda/CublasHandlePool.cpp; cuDNN: aten/src/ATen/native/cudnn (torch 2.11).
_WORKSPACE: Final = re.compile(
    r"getCUDABlasLtWorkspace|setWorkspaceForHandle|getWorkspace|allocate_workspace|::Workspace::"
)
# Workspaces are asked for within a few calls of the allocation.
_NEAR: Final = 16

_OPTIMIZER_FILE: Final = re.compile(
    r"/torch/optim/(?!lr_scheduler\.py|swa_utils\.py)"
    r"|/(?:bitsandbytes/optim|apex/optimizers|deepspeed/ops/(?:adam|lamb|lion)|torchao/optim|timm/optim)/"
    r"|/transformers/optimization\.py$"
)
_STATE_NAMES: Final = frozenset({"_init_group", "_init_state", "init_state"})
_MODULE_FILE: Final = "/torch/nn/modules/module.py"
_CALL_NAMES: Final = frozenset({"_call_impl", "_wrapped_call_impl"})
_MOVE_NAMES: Final = frozenset({"_apply", "_load_from_state_dict", "load_state_dict"})
_SETUP_FILE: Final = re.compile(r"/torch/nn/(?:init|parameter)\.py$")
_SETUP_NAMES: Final = frozenset({"__init__", "reset_parameters", "_reset_parameters"})
_RECOMPUTING: Final = frozenset(
    {"recompute_fn", "unpack_hook", "inner_unpack", "unpack", "backward"}
)
_EVALUATING: Final = re.compile(
    r"(?:^|_)(?:eval|evaluate|evaluation|validate|validation|predict|inference)(?:_|$)|^generate$"
)


def origins(table: StackTable) -> list[Origin]:
    """The origin of each stack by its number; one value more, so that NO_STACK (-1) finds `ABSENT`."""
    # Frames are few and shared by the stacks of one table, so each is judged once.
    signs: dict[int, _Sign] = {}
    found: list[Origin] = []
    for number in range(len(table)):
        frames = table.frames(number)
        for frame in frames:
            if id(frame) not in signs:
                signs[id(frame)] = _sign(frame)
        found.append(_origin(frames, [signs[id(frame)] for frame in frames]))
    return [*found, Origin.ABSENT]


def origin_of(frames: tuple[Frame, ...]) -> Origin:
    """The origin of one stack, innermost frame first."""
    return _origin(frames, [_sign(frame) for frame in frames])


def _sign(frame: Frame) -> _Sign:
    path, name = "/" + frame.filename.replace("\\", "/").lstrip("/"), frame.name
    if "/torch/" in path and path.endswith(".py"):
        return _sign_of_torch(path, name)
    if _OPTIMIZER_FILE.search(path):
        return _Sign.STATE if name in _STATE_NAMES else _Sign.OPTIMIZER
    if name == "from_pretrained":
        return _Sign.SETUP
    if user_frames((frame,)):
        return _Sign.EVALUATING if _EVALUATING.search(name) else _OWN.get(name, _Sign.OWN)
    if path.endswith(".py"):
        return _Sign.STEP if name == "step" else _Sign.LIBRARY
    if _WORKSPACE.search(name):
        return _Sign.WORKSPACE
    return _Sign.ENGINE if is_backward((frame,)) else _Sign.NOTHING


_OWN: Final = {
    "__init__": _Sign.CONSTRUCTOR,
    "step": _Sign.STEP,
    "backward": _Sign.BACKWARD_METHOD,
    "vjp": _Sign.BACKWARD_METHOD,
}


def _sign_of_torch(path: str, name: str) -> _Sign:
    ending = path[path.rindex("/torch/") :]
    named = _NAMED.get((ending, name))
    if named is not None:
        return named
    if ending == "/torch/utils/checkpoint.py" and name in _RECOMPUTING:
        return _Sign.RECOMPUTING
    if _OPTIMIZER_FILE.search(path) and name != "zero_grad":
        return _Sign.STATE if name in _STATE_NAMES else _Sign.OPTIMIZER
    calls = ending == _MODULE_FILE and name in _CALL_NAMES
    if calls or ending == "/torch/nn/functional.py":
        return _Sign.CALL
    made = ending.startswith("/torch/nn/") and name in _SETUP_NAMES
    if made or _SETUP_FILE.search(ending) or (ending == _MODULE_FILE and name in _MOVE_NAMES):
        return _Sign.SETUP
    return _Sign.INPUT if ending.startswith("/torch/utils/data/") else _Sign.NOTHING


_NAMED: Final = {
    ("/torch/autograd/__init__.py", "_make_grads"): _Sign.ROOT_GRADIENTS,
    ("/torch/autograd/function.py", "apply"): _Sign.APPLY,
    # `torch.no_grad` as a decorator.
    ("/torch/utils/_contextlib.py", "decorate_context"): _Sign.EVALUATING,
}
_DECISIVE: Final = {
    _Sign.ROOT_GRADIENTS: Origin.BACKWARD,
    _Sign.STATE: Origin.STATE,
    _Sign.SETUP: Origin.SETUP,
    _Sign.INPUT: Origin.INPUT,
}
_OF_THE_USER: Final = frozenset(
    {_Sign.OWN, _Sign.STEP, _Sign.CONSTRUCTOR, _Sign.EVALUATING, _Sign.BACKWARD_METHOD}
)
# Lightning and others call the program's forward from a closure of their own.
_OF_A_CLOSURE: Final = _OF_THE_USER - {_Sign.STEP} | {_Sign.LIBRARY}


def _origin(frames: tuple[Frame, ...], signs: Sequence[_Sign]) -> Origin:
    if frames and frames[0].name.startswith(BACKWARD_PREFIX):
        accumulates = "AccumulateGrad" in frames[0].name
        return Origin.GRADIENT if accumulates else _within_backward(signs)
    if _Sign.WORKSPACE in signs[:_NEAR]:
        return Origin.WORKSPACE
    if _Sign.ENGINE in signs or _Sign.RECOMPUTING in signs:
        return _within_backward(signs)
    inner = _Sign.NOTHING
    for sign in signs:
        origin = _DECISIVE.get(sign)
        if origin is not None:
            return origin
        if sign is _Sign.CALL:
            return Origin.EVALUATION if _Sign.EVALUATING in signs else Origin.FORWARD
        if sign is _Sign.OPTIMIZER:
            # What an optimizer's closure calls is the program's own work.
            return Origin.LINE if inner in _OF_A_CLOSURE else Origin.OPTIMIZER
        # `Function.apply` runs a forward in C++; `BackwardCFunction.apply` calls the user's `backward` in Python.
        if sign is _Sign.APPLY and inner is _Sign.BACKWARD_METHOD:
            return Origin.BACKWARD
        inner = sign
    if _Sign.CONSTRUCTOR in signs:
        return Origin.BUILD
    return Origin.LINE if _OF_THE_USER.intersection(signs) else Origin.UNTOLD


def _within_backward(signs: Sequence[_Sign]) -> Origin:
    return Origin.RECOMPUTED if _Sign.RECOMPUTING in signs else Origin.BACKWARD
