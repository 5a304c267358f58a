"""What calls mean for autograd and for the device: a small vocabulary of PyTorch's names."""

import ast
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from headroom.agents.imports import full_path, gives_gradients
from headroom.agents.syntax import access_path, last_name

# What a flow follows. `graph`: the autograd graph behind a tensor. `memory`: its device memory, through views and
# containers. `value`: anything computed on the device from it.
Mode = Literal["graph", "memory", "value"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NO_IMPORTS: Mapping[str, str] = MappingProxyType({})
# Results without a graph: integers, booleans, Python numbers, or cut by definition.
_GRAPH_CUTS = _words(
    "detach detach_ argmax argmin argsort nonzero long int bool byte short eq ne lt le gt ge isnan isinf isfinite "
    "any all zeros_like ones_like empty_like full_like rand_like randn_like randint_like"
)
# Results that are no tensors.
_VALUE_METHODS = _words(
    "item tolist numpy size dim ndimension numel nelement element_size stride data_ptr "
    "state_dict named_parameters parameters"
)
_VALUE_FUNCTIONS = _words(
    "float int bool str len repr format print isinstance type range id hash hasattr round"
)
_VALUE_ATTRIBUTES = _words(
    "shape dtype device ndim requires_grad is_cuda is_leaf itemsize nbytes layout names"
)
_HOST_MODULES = frozenset({"np", "numpy", "math", "json", "logging", "time"})
# Calls that hand on what is in a container, and compute nothing.
_HAND_ON = _words(
    "zip enumerate list tuple dict set frozenset reversed sorted iter next deque filter map items values pop popleft "
    "popitem get copy"
)
# Methods and functions whose result is, or may be, the very memory of what they are given.
_ALIASES = _words(
    "detach view view_as reshape flatten unflatten transpose permute swapaxes movedim squeeze unsqueeze expand "
    "expand_as narrow chunk split tensor_split unbind select diagonal contiguous to cuda float half bfloat16 type "
    "requires_grad_ real imag t mT"
)
# Functions that hand their other arguments to the function that comes first.
_BINDERS = _words("partial map filter starmap submit reduce")
# Names of methods that everything has, so that an attribute of such a name says nothing about a call.
TENSOR_METHODS = _words(
    "sum mean max min std var norm count size values items keys abs exp log pow sqrt t sort topk any all item add mul "
    "sub div index copy get pop update append extend clear step state"
)
_TENSOR_MODULES = frozenset({"torch", "F", "functional"})
# Calls that train, though the backward pass is out of sight, in a library.
_TRAINERS = _words(
    "fit fit_one_cycle train_batch train_step train_on_batch train_epoch train_one_epoch"
)
# `.step(` of these receivers is no optimizer's.
_OTHER_STEPPERS = ("sched", "env", "prof", "warmup", "bar", "progress", "timer", "scaler_state")
_GUARDS = ("no_grad", "inference_mode", "set_grad_enabled")
# What turns gradients on, or fails on a tensor without one.
_GRAD_SWITCHES = _words(
    "set_grad_enabled enable_grad _set_grad_enabled requires_grad_ retain_grad register_hook"
)


def cuts(call: ast.Call, mode: Mode) -> bool:
    """Whether the result of a call holds no graph (mode `graph`), or nothing on the device (other modes)."""
    name = last_name(call.func)
    if isinstance(call.func, ast.Name):
        return name in _VALUE_FUNCTIONS or (mode == "graph" and name in _GRAPH_CUTS)
    if name in _VALUE_METHODS or _root(call.func) in _HOST_MODULES:
        return True
    return name in _GRAPH_CUTS if mode == "graph" else moves_to_host(call)


def gives_number(call: ast.Call) -> bool:
    """Whether the result is a number, a string or the like: `loss.item()`, `float(loss)`, `math.sqrt(x)`."""
    name = last_name(call.func)
    if isinstance(call.func, ast.Name):
        return name in _VALUE_FUNCTIONS
    return name in _VALUE_METHODS or _root(call.func) in _HOST_MODULES


def cuts_attribute(attribute: str, mode: Mode) -> bool:
    """Whether reading this attribute of a tensor gives no graph, or no device memory."""
    return attribute in _VALUE_ATTRIBUTES or (mode == "graph" and attribute == "data")


def moves_to_host(call: ast.Call) -> bool:
    """`x.cpu()`, `x.to("cpu")`, `x.to(torch.device("cpu"))` and the same by keyword."""
    name = last_name(call.func)
    if name == "cpu":
        return True
    return name == "to" and any(_is_cpu(value) for value in arguments(call))


def _is_cpu(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and last_name(node.func) == "device" and node.args:
        node = node.args[0]
    return isinstance(node, ast.Constant) and node.value == "cpu"


def hands_on(call: ast.Call) -> bool:
    """Whether the call only regroups what it is given: `zip(losses, steps)`, `outputs.items()`."""
    return last_name(call.func) in _HAND_ON


def binds(call: ast.Call) -> bool:
    """Whether the call hands its other arguments to its first one, a function: `partial(step, loss)`."""
    return last_name(call.func) in _BINDERS and bool(call.args)


def arguments(call: ast.Call) -> list[ast.expr]:
    """All argument expressions, keywords included."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def is_backward(call: ast.Call, imports: Mapping[str, str] = _NO_IMPORTS) -> bool:
    """`loss.backward()`, `accelerator.backward(loss)`, `manual_backward(loss)`, `autograd.grad(loss, ...)`.

    `imports`, from `imported_names`, tells the last one under any other name.
    """
    name = last_name(call.func)
    if name in {"backward", "manual_backward"}:
        return True
    if gives_gradients(full_path(call.func, imports) or ""):
        return True
    if name != "grad":
        return False
    path = access_path(call.func) or ""
    return "autograd" in path or path == "grad"


def is_optimizer_step(call: ast.Call) -> bool:
    """`optimizer.step()`, and any other `.step(` whose receiver is not plainly something else."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    receiver = last_name(call.func.value).lower()
    return not any(word in receiver for word in _OTHER_STEPPERS)


def starts_training(call: ast.Call) -> bool:
    """`trainer.fit(...)`, `engine.train_batch()`, `trainer.train()`: a library's training loop."""
    name = last_name(call.func)
    if name in _TRAINERS:
        return True
    return (
        isinstance(call.func, ast.Attribute)
        and name in {"train", "learn"}
        and last_name(call.func.value).lower().endswith(("trainer", "engine", "agent", "learner"))
    )


def is_alias_method(call: ast.Call) -> bool:
    """Whether a method's result is a view of its receiver, or the receiver itself."""
    return last_name(call.func) in _ALIASES


def may_alias(call: ast.Call) -> bool:
    """Whether the result may be the memory of an argument.

    What torch computes is new memory, with a stack of its own; a function of unknown body may return what it got.
    """
    name = last_name(call.func)
    if name in _ALIASES or hands_on(call):
        return True
    if isinstance(call.func, ast.Name):
        return True
    return _root(call.func) not in _TENSOR_MODULES


def asks_for_gradients(node: ast.AST) -> bool:
    """Whether a node turns gradients on: for what follows, or for a tensor.

    `set_grad_enabled(flag)`, `enable_grad()`, `x.requires_grad_()`, `x.requires_grad = True`; not with a plain False.
    Also whether it asks a tensor for its gradient: `x.retain_grad()`, `x.register_hook(f)`.
    """
    if isinstance(node, ast.Assign):
        names = {target.attr for target in node.targets if isinstance(target, ast.Attribute)}
        return "requires_grad" in names and not _is_false(node.value)
    if not isinstance(node, ast.Call) or last_name(node.func) not in _GRAD_SWITCHES:
        return False
    given = arguments(node)
    return not (given and _is_false(given[0]))


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


@functools.lru_cache(maxsize=256)
def guard_paths(tree: ast.Module) -> frozenset[str]:
    """How a file may spell torch's own context managers that turn gradients off.

    A function that only bears such a name is none of them: what is home-made may do nothing.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots = [
                alias.asname or alias.name.split(".")[0]
                for alias in node.names
                if alias.name == "torch" or (alias.name.startswith("torch.") and not alias.asname)
            ]
            found.update(f"{root}.{name}" for root in roots for name in _GUARDS)
        elif isinstance(node, ast.ImportFrom) and node.module in {"torch", "torch.autograd"}:
            names = [alias for alias in node.names if alias.name in _GUARDS]
            found.update(alias.asname or alias.name for alias in names)
    return frozenset(found)


def is_guard(node: ast.expr, paths: frozenset[str]) -> bool:
    """A context manager or decorator that surely turns gradients off; `paths` come from `guard_paths`."""
    callee = node.func if isinstance(node, ast.Call) else node
    path = access_path(callee) or ""
    if path not in paths:
        return False
    given = arguments(node) if isinstance(node, ast.Call) else []
    wanted = path.endswith("set_grad_enabled")
    if not given:
        return not wanted
    return isinstance(given[0], ast.Constant) and given[0].value is not wanted


def _root(node: ast.expr) -> str:
    return (access_path(node) or "").split(".")[0]
