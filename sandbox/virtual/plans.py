"""A plan: the buffers that a kernel takes from the allocator besides its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .cards import Card
from .schema import Call

Group = tuple["int | Group", ...]
"""Sizes of buffers held at the same time, in bytes; an inner group is given back at once."""


class Plan(NamedTuple):
    """Buffers in the order in which the kernel takes them.

    Attributes:
        held: taken before the results, given back at the end.
        early: groups taken and given back before the results, one after the other.
        late: groups taken and given back after the results.
    """

    held: tuple[int, ...] = ()
    early: tuple[Group, ...] = ()
    late: tuple[Group, ...] = ()


Planner = Callable[[Call, Card], "Plan | None"]
"""Says what one call takes, or None."""
