"""Memory over the history at a bounded number of points, layer by layer, and the peak of each update."""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from headroom.evidence.account.account import Account
from headroom.evidence.analysis_model import Span, Timeline, UpdatePeak
from headroom.evidence.explain.course import Course
from headroom.evidence.explain.layers import REST, layers_of
from headroom.evidence.model import StackId

__all__ = ["INFERRED", "MAX_POINTS", "REST", "timeline_of", "update_peaks"]

MAX_POINTS: Final = 1200
MAX_LAYERS: Final = 12
MAX_UPDATES: Final = 200
INFERRED: Final = " (inferred)"


def timeline_of(
    account: Account,
    course: Course,
    stack_ids: dict[int, StackId],
    *,
    points: int = MAX_POINTS,
    layers: int = MAX_LAYERS,
) -> Timeline:
    """Draw the history.

    Args:
        account: The device.
        course: Its course.
        stack_ids: IDs of the ledger's stacks by number of stack.
        points: At most so many points.
        layers: At most so many stacks (or reasons why there is none) have a layer of their own.
    """
    replay = account.replay
    entries = _entries(replay.allocated_after, points)
    places = _places(entries, len(replay.history))
    allocated = [replay.allocated_after[entry + 1] for entry in entries]
    peak_index = entries.index(replay.peak_entry)
    times = replay.history.times_us
    return Timeline(
        entries=tuple(entries),
        times_us=tuple(times[max(entry, 0)] if len(times) else 0 for entry in entries),
        allocated_bytes=tuple(allocated),
        reserved_bytes=tuple(replay.reserved_after[entry + 1] for entry in entries),
        layers=layers_of(account, course, places, allocated, peak_index, stack_ids, limit=layers),
        updates=_update_spans(account, places),
        phases=_phase_spans(course, places),
        peak_index=peak_index,
    )


def _entries(allocated: "array[int]", points: int) -> list[int]:
    """The highest entry of each of equally many; the first of several that are equally high."""
    count = len(allocated)
    buckets = min(points, count)
    found: list[int] = []
    for place in range(buckets):
        first, stop = place * count // buckets, (place + 1) * count // buckets
        part = allocated[first:stop]
        found.append(first + part.index(max(part)) - 1)
    return found


def _places(entries: Sequence[int], end: int) -> "array[int]":
    """For each entry, and for the end of the history, the first point that is not before it."""
    places = array("i")
    for place, (before, entry) in enumerate(pairwise((-1, *entries))):
        places.extend(array("i", [place]) * (entry - before))
    places.extend(array("i", [len(entries)]) * (end + 1 - len(places)))
    return places


def _spans(starts: Sequence[int], names: Sequence[str], places: "array[int]") -> tuple[Span, ...]:
    """Stretches by entry as spans by point; those between two points are left out."""
    end = len(places) - 1
    found: list[Span] = []
    for place, (start, stop) in enumerate(pairwise((*starts, end))):
        first, last = places[start], places[stop] - 1
        if first <= last:
            found.append(Span(first=first, last=last, name=names[place]))
    return tuple(found)


def _update_starts(account: Account) -> tuple[list[int], list[int]]:
    """First entry and number of each update that the labels tell."""
    ticks = account.ticks
    starts: list[int] = []
    numbers: list[int] = []
    if ticks.known:
        for start, tick in zip(ticks.starts, ticks.ticks, strict=True):
            if not numbers or numbers[-1] != tick.update:
                starts.append(start)
                numbers.append(tick.update)
    return starts, numbers


def _update_spans(account: Account, places: "array[int]") -> tuple[Span, ...]:
    starts, numbers = _update_starts(account)
    return _spans(starts, [f"update {number}" for number in numbers], places)


def _phase_spans(course: Course, places: "array[int]") -> tuple[Span, ...]:
    if not any(course.run_phases):
        return ()
    suffix = INFERRED if course.phases_inferred else ""
    names = [f"{phase or 'other'}{suffix}" for phase in course.run_phases]
    return _spans(course.run_starts, names, places)


def update_peaks(account: Account, *, limit: int = MAX_UPDATES) -> tuple[UpdatePeak, ...]:
    """Peak and end of each update that the labels tell.

    Beyond the limit they are thinned evenly; the first, the last and the highest stay.
    """
    starts, numbers = _update_starts(account)
    allocated, end = account.replay.allocated_after, len(account.replay.history)
    found = [
        UpdatePeak(
            update=numbers[place],
            peak_bytes=max(allocated[start + 1 : stop + 1]),
            live_bytes=allocated[stop],
        )
        for place, (start, stop) in enumerate(pairwise((*starts, end)))
    ]
    if len(found) <= limit:
        return tuple(found)
    highest = max(range(len(found)), key=lambda place: found[place].peak_bytes)
    even = {place * (len(found) - 1) // (limit - 2) for place in range(limit - 1)}
    return tuple(found[place] for place in sorted(even | {highest}))
