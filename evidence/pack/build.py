"""The evidence pack: the account of a device and the source, in Markdown, for a reader with a token budget.

The order is fixed: facts and what was cut, index, stacks by bytes, timeline, fragmentation and churn, growth, source
windows, and at the end once more the largest and the question, because the middle of a long text is read worst. Every
figure stands beside an ID: M metrics, B lines of the balance, S stacks, T rows of the timeline, F free memory, H hot
paths, G growth, L source windows. An ID means the same at every budget. Frames stand in a table and are named by
number, which takes a quarter of the tokens that repeated paths take. Everything that comes from the program stands in
code spans or fences that it cannot end. Equal input gives equal bytes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from headroom.evidence.analysis_model import Analysis, DeviceAnalysis
from headroom.evidence.model import Ledger
from headroom.evidence.pack.details import FrameTable, stack_items
from headroom.evidence.pack.facts import fact_items
from headroom.evidence.pack.groups import group_stacks, has_ticks
from headroom.evidence.pack.heap import (
    churn_items,
    fragmentation_items,
    growth_items,
    introducers,
)
from headroom.evidence.pack.items import WHOLE, Draft, Item, Section
from headroom.evidence.pack.plan import cut_to, in_order
from headroom.evidence.pack.time import OPENINGS as TIME_OPENINGS
from headroom.evidence.pack.time import time_items
from headroom.evidence.pack.tokens import ESTIMATE, TokenCounter
from headroom.evidence.pack.windows import Windows
from headroom.evidence.pack.write import write

Detail = Literal["brief", "standard", "full"]

BUDGETS: Final[dict[Detail, int]] = {"brief": 2_000, "standard": 16_000, "full": 120_000}
"""Tokens of the three sizes of detail."""

LEAST_TOKENS: Final = 1_000
MOST_TOKENS: Final = 500_000
"""Every budget between these two gives a pack that is of use."""

_OPENINGS: Final[dict[tuple[Section, int], tuple[str, ...]]] = {
    ("stacks", WHOLE): (
        "",
        "Near-identical stacks stand together. Frames are named by number and come innermost first:",
    ),
    **{("timeline", part): lines for part, lines in enumerate(TIME_OPENINGS)},
}
_BY_ITSELF: Final = frozenset({"", "-1", "0", "0.0", "1", "False", "None"})
# Tables of settings are all zeros by themselves: `{'1': 0, '2': 0}`.
_NOT_ZERO: Final = re.compile(r": *[1-9]")
_ID_ORDER: Final = "MBSTFHGL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """The text, and every ID that may be cited from it, by kind and number.

    `tokens` is what `counter` made of the text; it is a count only where `estimated` is false.
    """

    markdown: str
    ids: tuple[str, ...]
    budget_tokens: int
    tokens: int
    counter: str
    estimated: bool

    @property
    def size(self) -> str:
        """The tokens in words; an estimate is called one."""
        if self.estimated:
            return f"estimated at {self.tokens} tokens or fewer ({self.counter})"
        return f"{self.tokens} tokens ({self.counter})"


def build_pack(
    subject: Ledger | DeviceAnalysis | Analysis,
    *,
    facts: Mapping[str, str],
    sources: Mapping[str, str],
    budget_tokens: int | None = None,
    detail: Detail = "standard",
    counter: TokenCounter = ESTIMATE,
    notes: Sequence[str] = (),
) -> Pack:
    """Write the pack of one device; of an `Analysis`, the device with the highest peak.

    Args:
        subject: The account of the device; a bare ledger has no timeline, fragmentation and churn.
        facts: What else is known of the run (hardware, versions, settings), by name. They become metrics.
        sources: Text of source files by path, as the frames name them.
        budget_tokens: The most that `counter` may make of the text; in its place, `detail` names one of three.
        detail: `brief`, `standard` or `full`: see `BUDGETS`.
        counter: Counts or estimates the tokens of a text.
        notes: Sentences on what the file does not tell.

    Raises:
        ValueError: Not even the first facts and the question fit; from `LEAST_TOKENS` on they do with the counters
            of `headroom.evidence.pack.tokens`.
    """
    budget = BUDGETS[detail] if budget_tokens is None else budget_tokens
    if isinstance(subject, Analysis):
        settings = _telling(subject.settings)
        known = {"allocator settings": settings} if settings else {}
        facts, notes = {**known, **subject.facts, **facts}, (*subject.notes, *notes)
        subject = subject.main
    draft = _draft(subject, facts, sources, notes)
    items = in_order(draft, counter)
    written_for = f"budget: {budget} tokens, {_counted(counter)}"
    shown, text, tokens = cut_to(
        items, lambda some: write(draft, some, written_for), counter, budget
    )
    return Pack(
        markdown=text,
        ids=tuple(sorted((name for item in shown for name in item.ids), key=_id_order)),
        budget_tokens=budget,
        tokens=tokens,
        counter=counter.name,
        estimated=counter.estimated,
    )


def _telling(settings: Mapping[str, str]) -> str:
    """The allocator's settings that are not what torch has by itself."""
    told = [
        f"{name}={value}" for name, value in sorted(settings.items()) if value not in _BY_ITSELF
    ]
    return ", ".join(one for one in told if "{" not in one or _NOT_ZERO.search(one))


def _counted(counter: TokenCounter) -> str:
    return f"estimated ({counter.name})" if counter.estimated else f"counted by {counter.name}"


def _id_order(name: str) -> tuple[int, int]:
    return _ID_ORDER.index(name[0]), int(name[1:])


def _draft(
    subject: Ledger | DeviceAnalysis,
    facts: Mapping[str, str],
    sources: Mapping[str, str],
    notes: Sequence[str],
) -> Draft:
    whole = subject if isinstance(subject, DeviceAnalysis) else None
    ledger = subject.ledger if isinstance(subject, DeviceAnalysis) else subject
    groups = group_stacks(ledger)
    peak_bytes = ledger.peak.allocated_bytes
    table, ticks_known = FrameTable(), has_ticks(ledger)
    windows = Windows(groups, ledger.failure, sources)
    stacks = list(
        stack_items(groups, table, windows, peak_bytes=peak_bytes, ticks_known=ticks_known)
    )
    items = [
        *fact_items(ledger, whole.composition if whole else None, facts, notes),
        *stacks,
        *_analysed(whole, stacks),
        *growth_items(
            ledger.growth,
            whole.settled_growth if whole else (),
            introducers(stacks),
            peak_bytes=peak_bytes,
            ticks_known=ticks_known,
        ),
        *windows.items(peak_bytes),
    ]
    return Draft(
        items=tuple(items),
        frames=table.lines(),
        openings=_OPENINGS,
        peak_bytes=peak_bytes,
    )


def _analysed(whole: DeviceAnalysis | None, stacks: Sequence[Item]) -> Iterator[Item]:
    if whole is None:
        return
    yield from time_items(whole.timeline, whole.updates)
    yield from fragmentation_items(whole.fragmentation, whole.ledger.peak.allocated_bytes)
    yield from churn_items(whole.churn, introducers(stacks))
