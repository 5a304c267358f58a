"""What the virtual GPU assumed, replaced or left out during a run: it never guesses silently."""

from __future__ import annotations

from typing import Any


class Coverage:
    """Counts and sentences; `as_dict` is what the recorder writes down."""

    def __init__(self, card: str) -> None:
        self.card = card
        self.operations = 0
        self.assumed_values = 0
        self.upper_bound_shapes = 0
        self._unsupported: dict[str, str] = {}
        self._not_modelled: dict[str, None] = {}

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
            "unsupported": dict(self._unsupported),
            "assumed_values": self.assumed_values,
            "upper_bound_shapes": self.upper_bound_shapes,
            "not_modelled": list(self._not_modelled),
        }
