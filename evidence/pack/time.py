"""The timeline in a pack: one row for each update, some points of the curve, and the peak of each phase."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from headroom.evidence.analysis_model import Span, Timeline, UpdatePeak
from headroom.evidence.pack.facts import share, sized
from headroom.evidence.pack.items import Cut, Item
from headroom.evidence.text import quoted
from headroom.units import format_bytes

OPENINGS: Final[tuple[tuple[str, ...], ...]] = (
    ("", "| ID | update | peak | live at its end |", "| --- | --- | --- | --- |"),
    (
        "",
        "| ID | entry | seconds | allocated | reserved | within | largest then |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ),
    ("",),
)
"""What stands before the rows of updates, of points, and of phases."""

_POINTS: Final = 24
_LABEL_LIMIT: Final = 100
# Rows are worth less the more of them stand there already.
_WORTH_UPDATE: Final = 0.03
_WORTH_POINT: Final = 0.015
_WORTH_PHASE: Final = 0.02


def time_items(timeline: Timeline | None, updates: Sequence[UpdatePeak]) -> Iterator[Item]:
    """Rows of the section, all with T IDs: updates, then points, then phases."""
    for rank, place in _by_rank(range(len(updates)), _update_of_peak(updates)):
        yield _row(place + 1, 0, _update_row(updates[place]), _WORTH_UPDATE / (1 + rank))
    number = len(updates)
    if timeline is None or not timeline.entries:
        return
    chosen = sorted(_chosen(timeline))
    for rank, place in _by_rank(range(len(chosen)), chosen.index(timeline.peak_index)):
        row = _point_row(timeline, chosen[place])
        yield _row(number + place + 1, 1, row, _WORTH_POINT / (1 + rank))
    number += len(chosen)
    for rank, line in enumerate(_phase_lines(timeline)):
        yield _row(number + rank + 1, 2, line, _WORTH_PHASE / (1 + rank))


def _row(number: int, table: int, text: str, worth: float) -> Item:
    name = f"T{number:02d}"
    line = f"- {name} {text}" if table == 2 else f"| {name} | {text} |"
    return Item(
        key=name,
        section="timeline",
        place=(table, number),
        value=worth,
        cut=Cut(noun="row|s of the timeline"),
        lines=(line,),
        ids=(name,),
    )


def _update_row(one: UpdatePeak) -> str:
    return f"{one.update} | {format_bytes(one.peak_bytes)} | {format_bytes(one.live_bytes)}"


def _update_of_peak(updates: Sequence[UpdatePeak]) -> int:
    return max(range(len(updates)), key=lambda at: (updates[at].peak_bytes, -at), default=0)


def _point_row(timeline: Timeline, at: int) -> str:
    seconds = (timeline.times_us[at] - timeline.times_us[0]) / 1e6
    largest = max(timeline.layers, key=lambda layer: layer.allocated_bytes[at], default=None)
    told = ""
    if largest is not None and largest.allocated_bytes[at]:
        name = quoted(largest.label, _LABEL_LIMIT).replace("|", "/")
        told = f"{name} {format_bytes(largest.allocated_bytes[at])}"
    within = [_span_at(timeline.updates, at, "update "), _span_at(timeline.phases, at, "")]
    if at == timeline.peak_index:
        within.append("the peak")
    return " | ".join(
        (
            str(timeline.entries[at]) if timeline.entries[at] >= 0 else "start",
            f"{seconds:.3f}",
            format_bytes(timeline.allocated_bytes[at]),
            format_bytes(timeline.reserved_bytes[at]),
            ", ".join(filter(None, within)),
            told,
        )
    )


def _span_at(spans: Iterable[Span], at: int, before: str) -> str:
    for span in spans:
        if span.first <= at <= span.last:
            name = span.name.removeprefix(before)
            return f"{before}{quoted(name, _LABEL_LIMIT).replace('|', '/')}"
    return ""


def _chosen(timeline: Timeline) -> set[int]:
    """The peak and evenly spaced points, first and last included."""
    last = len(timeline.entries) - 1
    return {timeline.peak_index} | {round(last * step / (_POINTS - 1)) for step in range(_POINTS)}


def _phase_lines(timeline: Timeline) -> Iterator[str]:
    """The highest point of each phase, the highest phase first."""
    highest: dict[str, tuple[int, int]] = {}
    spans: dict[str, int] = {}
    for span in timeline.phases:
        spans[span.name] = spans.get(span.name, 0) + 1
        for at in range(span.first, span.last + 1):
            known = highest.get(span.name)
            if known is None or timeline.allocated_bytes[at] > known[0]:
                highest[span.name] = (timeline.allocated_bytes[at], timeline.entries[at])
    peak_bytes = timeline.allocated_bytes[timeline.peak_index]
    for name, (size_bytes, entry) in sorted(
        highest.items(), key=lambda item: (-item[1][0], item[0])
    ):
        many = f"{spans[name]} {'stretch' if spans[name] == 1 else 'stretches'}"
        yield (
            f"phase {quoted(name, _LABEL_LIMIT)}: {many}, highest {sized(size_bytes)}, "
            f"{share(size_bytes, peak_bytes)} of the peak, at entry {entry}"
        )


def _by_rank(places: range, important: int) -> Iterator[tuple[int, int]]:
    """Places of a row of equals by how much each adds: an important one, both ends, then ever finer between them."""
    order: dict[int, None] = {}
    if places:
        order.update(dict.fromkeys((important, places[-1], places[0])))
    pending = [(0, len(places) - 1)]
    for first, last in pending:
        middle = (first + last) // 2
        if first < last:
            order.setdefault(middle)
            if last - first > 1:
                pending += [(first, middle), (middle, last)]
    return iter(enumerate(order))
