"""Where the program stands."""


class Progress:
    """Counts that several hooks share: updates complete, outermost module calls begun."""

    __slots__ = ("calls", "updates")

    def __init__(self) -> None:
        self.updates = 0
        self.calls = 0
