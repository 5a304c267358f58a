"""Layers of a timeline: the bytes of the largest stacks at each of its points, and of everything else."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, get_args

from headroom.evidence.account.account import Account
from headroom.evidence.account.lives import BEFORE
from headroom.evidence.analysis_model import Layer
from headroom.evidence.explain.categories import classify
from headroom.evidence.explain.course import Course
from headroom.evidence.model import Category, Frame, Missing, StackId
from headroom.evidence.reading.history import NO_STACK
from headroom.evidence.reading.stacks import BACKWARD_PREFIX, display_frames, user_frames
from headroom.evidence.text import clean_text

REST: Final = "everything else"

# So many moments are looked at, besides the peak, for stacks that are large elsewhere.
_MOMENTS: Final = 16

# C++ names take hundreds of characters.
_LABEL_LIMIT: Final = 80
_REASONS: Final[tuple[Missing, ...]] = get_args(Missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lasting:
    """Lives that are allocated at one point at least: from point `first` to before `stop`.

    `keys` are stack numbers or, below zero, -1 less the place of the reason in _REASONS.
    """

    rows: "array[int]"
    keys: "array[int]"
    first: "array[int]"
    stop: "array[int]"
    sizes_bytes: "array[int]"

    def __iter__(self) -> Iterator[tuple[int, int, int, int, int]]:
        return zip(self.rows, self.keys, self.first, self.stop, self.sizes_bytes, strict=True)


def layers_of(
    account: Account,
    course: Course,
    places: "array[int]",
    allocated: list[int],
    peak_index: int,
    stack_ids: dict[int, StackId],
    *,
    limit: int,
) -> tuple[Layer, ...]:
    """The layers of a timeline; together they are what is allocated at each point.

    Args:
        account: The device.
        course: Its course.
        places: For each entry, and for the end of the history, the first point that is not before it.
        allocated: Allocated bytes at each point.
        peak_index: The point of the peak.
        stack_ids: IDs of the ledger's stacks by number of stack.
        limit: At most so many stacks (or reasons why there is none) have a layer of their own.
    """
    lasting = _lasting(account, places)
    chosen = _largest(lasting, allocated, peak_index, limit)
    changes = {key: [0] * (len(allocated) + 1) for key in chosen}
    for _, key, first, stop, size_bytes in lasting:
        change = changes.get(key)
        if change is not None:
            change[first] += size_bytes
            change[stop] -= size_bytes
    courses = {key: list(accumulate(change[:-1])) for key, change in changes.items()}
    categories = _categories(account, course, lasting, courses)
    layers = [
        Layer(
            label=_label(account, key),
            stack=stack_ids.get(key),
            category=categories.get(key),
            allocated_bytes=tuple(courses[key]),
        )
        for key in chosen
    ]
    told = [sum(sizes) for sizes in zip(*courses.values(), strict=True)] or [0] * len(allocated)
    rest = tuple(whole - part for whole, part in zip(allocated, told, strict=True))
    if any(rest) or not layers:
        layers.append(Layer(label=REST, stack=None, category=None, allocated_bytes=rest))
    return tuple(layers)


def _lasting(account: Account, places: "array[int]") -> _Lasting:
    lives, stacks = account.replay.lives, account.owners.stacks
    found = _Lasting(
        rows=array("i"), keys=array("i"), first=array("i"), stop=array("i"), sizes_bytes=array("q")
    )
    for row, (born, freed) in enumerate(zip(lives.born, lives.freed, strict=True)):
        if freed == BEFORE:
            continue
        first = places[born] if born >= 0 else 0
        stop = places[freed]
        if first < stop:
            stack = stacks[row]
            key = stack if stack != NO_STACK else -1 - _REASONS.index(account.owners.missing(row))
            found.rows.append(row)
            found.keys.append(key)
            found.first.append(first)
            found.stop.append(stop)
            found.sizes_bytes.append(lives.allocated_bytes[row])
    return found


def _largest(lasting: _Lasting, allocated: list[int], peak_index: int, layers: int) -> list[int]:
    """Keys of the layers: two thirds by their bytes at the peak, the others by their bytes at other high moments."""
    count = len(allocated)
    edges = [place * count // _MOMENTS for place in range(_MOMENTS + 1)]
    moments = sorted(
        {
            max(range(first, stop), key=allocated.__getitem__)
            for first, stop in pairwise(edges)
            if first < stop
        }
    )
    at_peak: Counter[int] = Counter()
    at_moments: dict[int, Counter[int]] = {moment: Counter() for moment in moments}
    for _, key, first, stop, size_bytes in lasting:
        if first <= peak_index < stop:
            at_peak[key] += size_bytes
        for moment in moments[bisect_left(moments, first) : bisect_left(moments, stop)]:
            at_moments[moment][key] += size_bytes
    highest: Counter[int] = Counter(at_peak)
    for sums in at_moments.values():
        highest |= sums
    chosen = _first(at_peak, layers * 2 // 3)
    others = [key for key in _first(highest, len(highest)) if key not in chosen]
    return chosen + others[: layers - len(chosen)]


def _first(sums: Counter[int], count: int) -> list[int]:
    return sorted(sums, key=lambda key: (-sums[key], key))[:count]


def _categories(
    account: Account, course: Course, lasting: _Lasting, courses: dict[int, list[int]]
) -> dict[int, Category]:
    """The category that has two thirds of each layer where the layer is highest, if any has."""
    tops = {key: sizes.index(max(sizes)) for key, sizes in courses.items()}
    rows = [
        (row, key)
        for row, key, first, stop, _ in lasting
        if key in tops and first <= tops[key] < stop
    ]
    sums: dict[int, Counter[Category]] = {key: Counter() for key in tops}
    kinds = classify(account, [row for row, _ in rows], course)
    for (row, key), kind in zip(rows, kinds, strict=True):
        sums[key][kind.category] += account.replay.lives.allocated_bytes[row]
    most = {key: found.most_common(1) for key, found in sums.items()}
    return {
        key: category
        for key, found in most.items()
        for category, size_bytes in found
        if 3 * size_bytes >= 2 * sum(sums[key].values())
    }


def _label(account: Account, key: int) -> str:
    if key < 0:
        return _REASONS[-1 - key]
    frames = account.replay.stacks.frames(key)
    own = user_frames(frames, account.roots)
    shown = [one for one in display_frames(frames) if not one.name.startswith(BACKWARD_PREFIX)]
    if not own:
        return _line(shown[0]) if shown else "no named frame"
    # Many stacks share a line of the program; the library function that it called tells them apart.
    called = _function(shown[0]) if shown and shown[0] not in own else ""
    return _line(own[0]) + (f" ({called})" if called.isidentifier() else "")


def _function(frame: Frame) -> str:
    """A library function; every module's is called `forward`, so there the file's name says more."""
    if frame.name != "forward":
        return frame.name
    return frame.filename.replace("\\", "/").rpartition("/")[2].partition(".")[0]


def _line(frame: Frame) -> str:
    name = frame.filename.replace("\\", "/").rpartition("/")[2]
    return (
        f"{name}:{frame.line} {frame.name}" if frame.line else clean_text(frame.name, _LABEL_LIMIT)
    )
