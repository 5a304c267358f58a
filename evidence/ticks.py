"""Where the program stood at each entry: updates complete, and outermost module calls begun.

The recorder attaches a label such as `hr:u=3,c=17` to what the main thread allocates and frees. Autograd's threads
carry none, so the last label seen holds until the next one. Snapshots of others have no such labels: all is tick 0.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headroom.evidence.model import Tick
from headroom.evidence.snapshot import Entry

_LABEL: Final = re.compile(r"hr:u=([0-9]{1,12}),c=([0-9]{1,12})")
_START: Final = Tick(update=0, call=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Entries at which the tick changed, in order, and the tick from each on."""

    starts: tuple[int, ...]
    ticks: tuple[Tick, ...]

    def at(self, entry: int) -> Tick:
        """The tick at an entry; the first one before any label, and at -1."""
        place = bisect_right(self.starts, entry) - 1
        return self.ticks[place] if place >= 0 else _START


def read_ticks(entries: Sequence[Entry]) -> Ticks:
    """Read the recorder's labels; labels of any other shape are left alone."""
    starts: list[int] = []
    ticks: list[Tick] = []
    seen = ""
    for index, entry in enumerate(entries):
        label = entry.get("user_metadata")
        # Equal labels follow one another a thousand times: compare before parsing.
        if not label or label == seen or not isinstance(label, str):
            continue
        match = _LABEL.fullmatch(label)
        if match is not None:
            seen = label
            starts.append(index)
            ticks.append(Tick(update=int(match[1]), call=int(match[2])))
    return Ticks(starts=tuple(starts), ticks=tuple(ticks))
