"""What the virtual GPU assumed, replaced or left out during a run: it never guesses silently."""

from __future__ import annotations

from typing import Any

UNCOUNTED = frozenset({"detach", "detach_", "alias", "lift", "lift_fresh"})
"""Operations that compute nothing: what cuts a graph may add them."""
TO_HOST = "to host"
"""Counts copies from the device to the host."""


class Coverage:
    """Counts and sentences; `as_dict` is what the recorder writes down."""

    def __init__(self, card: str) -> None:
        self.card = card
        self.operations = 0
        self._forward: dict[str, int] = {}
        self._backward: dict[str, int] = {}
        self.assumed_values = 0
        self.upper_bound_shapes = 0
        self._unsupported: dict[str, str] = {}
        self._not_modelled: dict[str, None] = {}

    def count(self, operation: str, *, backward: bool) -> None:
        """An operation that the program, or the engine for it, asked for; in place or not is the same."""
        self.operations += 1
        if operation not in UNCOUNTED:
            counts = self._backward if backward else self._forward
            name = operation.rstrip("_")
            counts[name] = counts.get(name, 0) + 1

    def unsupported(self, operation: str, instead: str) -> None:
        """An operation could not be treated as planned; `instead` says what was done."""
        self._unsupported.setdefault(operation, instead)

    def not_modelled(self, sentence: str) -> None:
        """Something a real card does, or does differently, is missing from the prediction."""
        self._not_modelled[sentence] = None

    def as_dict(self) -> dict[str, Any]:
        """The keys that `records/events.py` validates."""
        return {
            "card": self.card,
            "operations": self.operations,
            "forward_operations": dict(self._forward),
            "backward_operations": dict(self._backward),
            "unsupported": dict(self._unsupported),
            "assumed_values": self.assumed_values,
            "upper_bound_shapes": self.upper_bound_shapes,
            "not_modelled": list(self._not_modelled),
        }
