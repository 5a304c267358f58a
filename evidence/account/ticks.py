"""Where the program stood at each entry: updates complete, module calls begun, and the recorder's other labels.

The recorder attaches a label such as `hr:u=3,c=17,p=forward,m=GPT.blocks.2` to what the main thread allocates and
frees. Where autograd's threads carry none, the last label seen holds until the next one. Snapshots of others have no
such labels: all is tick 0.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, get_args

from headroom.evidence.model import Phase, Tick
from headroom.evidence.reading.history import History
from headroom.evidence.text import NAME_LIMIT, clean_text

_LABEL: Final = re.compile(
    r"hr:u=([0-9]{1,12}),c=([0-9]{1,12})"
    r"(?:,p=([a-z]{1,20}))?(?:,n=([^,]{1,200}))?(?:,s=[0-9]{1,12})?(?:,g=([^,]{1,400}))?(?:,m=(.*))?",
    re.DOTALL,
)
_START: Final = Tick(update=0, call=0)
_PHASES: Final[dict[str, Phase]] = {phase: phase for phase in get_args(Phase)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What one label says. `node` is the autograd node, `gradient_of` the parameter whose gradient is made."""

    tick: Tick
    phase: Phase | None
    node: str
    gradient_of: str
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Entries at which the tick changed, in order, and the tick from each on; labels by their place in the history."""

    starts: tuple[int, ...]
    ticks: tuple[Tick, ...]
    labels: dict[int, Label]
    history: History

    def at(self, entry: int) -> Tick:
        """The tick at an entry; the first one before any label, and at -1."""
        place = bisect_right(self.starts, entry) - 1
        return self.ticks[place] if place >= 0 else _START

    def label(self, entry: int) -> Label | None:
        """The recorder's own label of an entry, if it has one."""
        if entry < 0 or not self.labels or entry >= len(self.history):
            return None
        return self.labels.get(self.history.labels[entry])

    @property
    def known(self) -> bool:
        """Whether the recording tells updates and calls."""
        return any(tick.update or tick.call for tick in self.ticks)


def parse_label(text: str) -> Label | None:
    """Read a label; labels of any other shape are no label of ours."""
    match = _LABEL.fullmatch(text)
    if match is None:
        return None
    return Label(
        tick=Tick(update=int(match[1]), call=int(match[2])),
        phase=_PHASES.get(match[3] or ""),
        node=clean_text(match[4], NAME_LIMIT),
        gradient_of=clean_text(match[5], NAME_LIMIT),
        module=clean_text(match[6], NAME_LIMIT),
    )


def read_ticks(history: History) -> Ticks:
    """Read the recorder's labels of a history."""
    labels: dict[int, Label] = {}
    for number, text in enumerate(history.label_texts):
        label = parse_label(text)
        if label is not None:
            labels[number] = label
    starts: list[int] = []
    ticks: list[Tick] = []
    if labels:
        before = -1
        for index, number in enumerate(history.labels):
            # Equal labels follow one another a thousand times.
            if number == before:
                continue
            before = number
            label = labels.get(number)
            if label is not None and (not ticks or ticks[-1] != label.tick):
                starts.append(index)
                ticks.append(label.tick)
    return Ticks(starts=tuple(starts), ticks=tuple(ticks), labels=labels, history=history)
