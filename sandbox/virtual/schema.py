"""What an operator's schema says about its arguments and results, read once per operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

WHOLE_OVERWRITES = frozenset(
    {"fill_", "zero_", "normal_", "uniform_", "random_", "exponential_", "cauchy_", "bernoulli_"}
)
"""In-place operations whose result does not depend on what the tensor held."""


NUMBERS_ALLOWED = frozenset(
    {
        "_conj",
        "_to_copy",
        "add",
        "add_",
        "copy",
        "copy_",
        "div",
        "div_",
        "floor_divide",
        "floor_divide_",
        "mul",
        "mul_",
        "sub",
        "sub_",
        "to",
    }
)
"""Operators that torch lets be called with a number for a tensor (`should_allow_numbers_as_tensors`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator.

    Attributes:
        overload: the callable, `torch.ops.aten.add.Tensor`.
        name: without namespace and overload, `add`.
        positions: argument names, in order.
        defaults: default values by argument name.
        results: for each result, the argument that it is (in-place, `out=`), or None for a new one.
        written: arguments that are changed.
        outputs: arguments that only receive a result (`out=`).
        is_view: a result shares memory with an argument without changing it.
        draws: it draws random numbers.
        takes_generator: it has a `generator` argument.
        tensor_places: positions of tensors; torch hands us a number there where the program wrote one.
        number_places: those of them that must be tensors when the operator is called again.
    """

    overload: Any
    name: str
    positions: tuple[str, ...]
    defaults: dict[str, Any]
    results: tuple[str | None, ...]
    written: tuple[str, ...]
    outputs: frozenset[str]
    is_view: bool
    draws: bool
    takes_generator: bool
    tensor_places: tuple[int, ...]
    number_places: tuple[int, ...]

    @property
    def overwrites(self) -> bool:
        """Whether what the written arguments held before does not matter."""
        return self.name in WHOLE_OVERWRITES or bool(self.outputs)


def read(overload: Any) -> Operator:
    """Reads the schema of `torch.ops.aten.<name>.<overload>`."""
    schema = overload._schema
    arguments = schema.arguments
    name = schema.name.split("::")[-1]
    written = tuple(argument.name for argument in arguments if _is_written(argument))
    tensor_places = tuple(
        place
        for place, argument in enumerate(arguments)
        if str(argument.type) in ("Tensor", "Optional[Tensor]") and not argument.is_out
    )
    return Operator(
        overload=overload,
        name=name,
        positions=tuple(argument.name for argument in arguments),
        defaults={
            argument.name: argument.default_value
            for argument in arguments
            if argument.has_default_value()
        },
        results=tuple(_source(result, arguments) for result in schema.returns),
        written=written,
        outputs=frozenset(argument.name for argument in arguments if argument.is_out),
        is_view=any(
            result.alias_info is not None and not result.alias_info.is_write
            for result in schema.returns
        ),
        draws=torch.Tag.nondeterministic_seeded in overload.tags,
        takes_generator=any(argument.name == "generator" for argument in arguments),
        tensor_places=tensor_places,
        number_places=() if name in NUMBERS_ALLOWED else tensor_places,
    )


def with_tensors_for_numbers(places: tuple[int, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Puts back, in these places, the tensors that torch replaced by numbers on the way to Python.

    The type of each is chosen so that it promotes like a number: it never widens a tensor of its own kind.
    """
    changed: list[Any] | None = None
    for place in places:
        if place < len(args) and isinstance(args[place], (bool, int, float, complex)):
            changed = list(args) if changed is None else changed
            changed[place] = _as_tensor(args[place], args)
    return args if changed is None else tuple(changed)


def _as_tensor(number: Any, args: tuple[Any, ...]) -> Tensor:
    like = next((arg.dtype for arg in args if isinstance(arg, Tensor)), torch.float32)
    if isinstance(number, complex) and not like.is_complex:
        like = torch.complex64
    elif isinstance(number, float) and not (like.is_floating_point or like.is_complex):
        like = torch.get_default_dtype()
    elif isinstance(number, int) and not isinstance(number, bool) and like is torch.bool:
        like = torch.int64
    elif isinstance(number, bool):
        like = torch.bool
    return torch.tensor(number, dtype=like, device="cpu")


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _source(result: Any, arguments: Any) -> str | None:
    """The argument that a result is, if it is one."""
    if result.alias_info is None or not result.alias_info.is_write:
        return None
    for argument in arguments:
        shared = argument.alias_info is not None and (
            argument.alias_info.before_set & result.alias_info.before_set
        )
        if shared and argument.alias_info.is_write:
            return str(argument.name)
    return None


class Call:
    """One call of an operator."""

    __slots__ = ("args", "kwargs", "operator")

    def __init__(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.operator = operator
        self.args = args
        self.kwargs = kwargs

    def get(self, name: str) -> Any:
        """The argument's value, or its default; None if the schema has no such argument."""
        if name in self.kwargs:
            return self.kwargs[name]
        try:
            position = self.operator.positions.index(name)
        except ValueError:
            return None
        if position < len(self.args):
            return self.args[position]
        return self.operator.defaults.get(name)

    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments, also inside lists."""
        return list(_tensors(self.args)) + list(_tensors(self.kwargs.values()))

    def written_tensors(self) -> list[Tensor]:
        """The tensors that the call changes."""
        return list(_tensors([self.get(name) for name in self.operator.written]))

    def result_arguments(self) -> Any:
        """What the call returns when every result is an argument."""
        results = [self.get(name) for name in self.operator.results if name is not None]
        return packed(results)


def packed(results: list[Any]) -> Any:
    """Results as an operator returns them: nothing, one, or a tuple."""
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            for item in value:
                if isinstance(item, Tensor):
                    yield item


def map_tensors(value: Any, change: Any) -> Any:
    """`value` with every tensor in it, also inside lists and tuples, replaced by `change(tensor)`."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([map_tensors(item, change) for item in value])
    return value
