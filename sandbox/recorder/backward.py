"""Labels what the backward pass allocates with the node that it is for, and the forward call that made the node.

The engine's device threads run no Python, so the allocator finds no stack there. Before a pass its graph is walked from
the roots, and every node gets a pre-hook that sets the label of the thread that evaluates it.
"""

import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .labels import BACKWARD, TEXT_LIMIT, Labels, clean
from .launch import without_leading
from .lines import Lines
from .modules import Modules
from .nodes import address_of
from .sites import Sites

NODES_WALKED = 1_000_000
WORDS_KEPT = 100_000
ACCUMULATE = "AccumulateGrad"


class Backward:
    """Wraps `torch.autograd.backward`, which `Tensor.backward` calls, and `torch.autograd.grad`."""

    def __init__(
        self,
        torch: ModuleType,
        lines: Lines,
        labels: Labels,
        modules: Modules,
        sites: Sites,
    ) -> None:
        self._torch, self._lines, self._labels = torch, lines, labels
        self._modules, self._sites = modules, sites
        self._passes: list[set[int]] = []
        self._words: dict[Any, str] = {}
        self.before_pass: Callable[[], None] = _nothing
        self.on = True

    def install(self) -> None:
        """Wrap both functions; arguments and results stay as they are."""
        autograd = self._torch.autograd
        autograd.backward = self._wrapped(autograd.backward)
        autograd.grad = self._wrapped(autograd.grad)

    def under_way(self) -> "set[int]":
        """Addresses of the nodes of all passes that are being evaluated."""
        return set().union(*self._passes)

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        begin, end = self._lines.guarded(self._begin), self._lines.guarded(self._end)

        @functools.wraps(real)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            under_way = begin(args, kwargs)
            try:
                return real(*args, **kwargs)
            except BaseException as error:
                error.__traceback__ = without_leading(error.__traceback__, 1)
                raise
            finally:
                if under_way is not None:
                    end(under_way)

        return wrapped

    def _begin(self, args: Any, kwargs: Any) -> "list[Any] | None":
        native = self._torch._C
        if (
            not (self.on and self._labels.enabled and self._lines.owned)
            or native._get_tracing_state() is not None
            or native._functorch.peek_interpreter_stack() is not None
            or native._len_torch_dispatch_stack() != 0
        ):
            return None
        self.before_pass()
        roots = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
        handles: list[Any] = []
        try:
            with native.DisableTorchFunction():
                places = self._hook(_graph_roots(roots, self._torch), handles)
        except Exception:
            _remove(handles)
            raise
        self._labels.enter(BACKWARD)
        self._passes.append(places)
        return [handles, places]

    def _end(self, under_way: "list[Any]") -> None:
        handles, places = under_way
        self._passes.remove(places)
        _remove(handles)
        self._labels.leave(BACKWARD)

    def _hook(self, roots: "list[Any]", handles: "list[Any]") -> "set[int]":
        """Give every node its label for this pass; the nodes' addresses."""
        order, consumers = _walk(roots)
        if len(self._words) > WORDS_KEPT:
            self._words.clear()
        labels, ends_with = self._labels, threading.get_ident()
        stand = f"{labels.stand()},p={BACKWARD},n="
        self._modules.begin_pass()
        places: set[int] = set()
        sites: dict[Any, tuple[int, str | None] | None] = {}
        for node in order:
            name = node.name()
            if name.endswith(ACCUMULATE) and hasattr(node, "variable"):
                site = sites.get(consumers.get(node))
                text = stand + _of_parameter(self._name(node.variable), site)
            else:
                site = sites[node] = self._sites.find(node)
                words = self._words.get((name, site))
                if words is None:
                    words = self._words[name, site] = _of_node(name, site)
                text = stand + words
            handles.append(node.register_prehook(_setter(labels, text)))
            if not isinstance(node, self._torch._C._FunctionBase):
                places.add(address_of(node))
        for root in roots:
            handles.append(root.register_prehook(self._clear_at_end(ends_with)))
        return places

    def _name(self, leaf: Any) -> "str | None":
        """A parameter's name. Other leaves have none, and are new in every pass."""
        if not isinstance(leaf, self._torch.nn.Parameter):
            return None
        return self._modules.parameter_name(leaf)

    def _clear_at_end(self, caller: int) -> Callable[..., None]:
        """A hook that has the engine take the label off its thread when the pass is over."""
        labels = self._labels
        engine = self._torch.autograd.Variable._execution_engine

        def at_end() -> None:
            if threading.get_ident() != caller:
                labels.clear()

        def hook(*_: Any) -> None:
            if threading.get_ident() != caller:
                engine.queue_callback(at_end)

        return self._lines.guarded(hook)


def _nothing() -> None:
    """Stands for whoever wants to be told of a pass."""


def _remove(handles: "list[Any]") -> None:
    for handle in handles:
        handle.remove()


def _setter(labels: Labels, text: str) -> Callable[..., None]:
    put = labels.put

    def hook(*_: Any) -> None:
        put(text)

    return hook


def _graph_roots(tensors: Any, torch: ModuleType) -> "list[Any]":
    """The nodes that a pass from these tensors starts at, each once."""
    held = list(tensors) if isinstance(tensors, (tuple, list)) else [tensors]
    tensors = [tensor for tensor in held if isinstance(tensor, torch.Tensor)]
    nodes = [tensor.grad_fn for tensor in tensors]
    return list(dict.fromkeys(node for node in nodes if node is not None))


def _walk(roots: "list[Any]") -> "tuple[list[Any], dict[Any, Any]]":
    """All nodes below the roots, consumers first; and for each that has a single consumer, that one."""
    seen = set(roots)
    order = list(roots)
    consumers: dict[Any, Any] = {}
    for node in order:
        for inner, _ in node.next_functions:
            if inner is None:
                continue
            if inner in seen:
                if consumers.get(inner) is not node:
                    consumers[inner] = None
            elif len(order) < NODES_WALKED:
                seen.add(inner)
                order.append(inner)
                consumers[inner] = node
    return order, consumers


def _of_node(name: str, site: "tuple[int, str | None] | None") -> str:
    text = "".join("_" if letter in ", " else letter for letter in clean(name))
    if site is None:
        return text
    number, path = site
    return f"{text},s={number}" + (f",m={clean(path)}" if path else "")


def _of_parameter(name: "str | None", site: "tuple[int, str | None] | None") -> str:
    text = ACCUMULATE + (f",s={site[0]}" if site is not None else "")
    return f"{text},g={clean(name)}"[:TEXT_LIMIT] if name else text
