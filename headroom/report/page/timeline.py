"""The timeline as the page's script reads it: fewer points where needed, and differences in place of values."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from headroom.evidence.analysis_model import DeviceAnalysis, Layer, Span, Timeline
from headroom.evidence.explain.timeline import REST
from headroom.evidence.model import StackId
from headroom.report.page.limits import Cutter
from headroom.report.page.names import StackName

# Sums of much that has nothing in common but a reason; they would hide the shape of what lies on them.
_ON_TOP: Final = ("no stack", REST)


def ordered_layers(timeline: Timeline, limit: int) -> list[Layer]:
    """At most `limit` layers from the bottom up: what never goes away first, the rest and the small ones on top.

    Layers beyond the limit are added up in one, so that the sum stays what it is.
    """
    layers = sorted(
        timeline.layers,
        key=lambda layer: (layer.stack is None, -max(layer.allocated_bytes, default=0)),
    )
    kept = layers[:limit]
    if len(layers) > limit:
        rest = [*kept[limit - 1 :], *layers[limit:]]
        columns = zip(*(layer.allocated_bytes for layer in rest), strict=True)
        summed = Layer(
            label=REST, stack=None, category=None, allocated_bytes=tuple(map(sum, columns))
        )
        kept = [*kept[: limit - 1], summed]
    return sorted(kept, key=_steadiness)


def _steadiness(layer: Layer) -> tuple[bool, int, int]:
    sizes = layer.allocated_bytes
    return (layer.label in _ON_TOP, -min(sizes, default=0), -sum(sizes))


def chosen_points(timeline: Timeline, limit: int) -> list[int]:
    """Indices of at most about `limit` points: the highest of each stretch, both ends, and the peak."""
    count = len(timeline.entries)
    if count <= limit:
        return list(range(count))
    sizes = timeline.allocated_bytes
    edges = [place * count // limit for place in range(limit + 1)]
    chosen = {max(range(first, end), key=sizes.__getitem__) for first, end in pairwise(edges)}
    return sorted(chosen | {0, count - 1, timeline.peak_index})


def timeline_data(
    device: DeviceAnalysis,
    layers: Sequence[Layer],
    colours: Sequence[str],
    names: Mapping[StackId, StackName],
    cutter: Cutter,
) -> dict[str, Any] | None:
    """Plain values for the script; None where the device has no history.

    `entries`, `times`, `reserved` and each layer's `sizes` are a first value and differences from then on. `failure` is
    the index of the point before the failing request, live bytes there, and the request.
    """
    timeline = device.timeline
    if len(timeline.entries) < 2:
        return None
    points = chosen_points(timeline, cutter.limits.points)
    if len(points) < len(timeline.entries):
        cutter.cuts.append(f"The timeline of device {device.ledger.device} has {len(points):,} of its "
                           f"{len(timeline.entries):,} points, each the highest of its stretch.")  # fmt: skip
    failure = device.ledger.failure
    entries = [timeline.entries[point] for point in points]
    limit = cutter.limits.rows * 10
    return {
        "entries": _steps(timeline.entries, points),
        "times": _steps(timeline.times_us, points),
        "reserved": _steps(timeline.reserved_bytes, points),
        "layers": [
            {
                "label": _label(layer, names),
                "stack": layer.stack,
                "category": layer.category,
                "colour": colour,
                "sizes": _steps(layer.allocated_bytes, points),
            }
            for layer, colour in zip(layers, colours, strict=True)
        ],
        "updates": _spans(timeline.updates, points)[:limit],
        "phases": _spans(timeline.phases, points)[:limit],
        "peak": points.index(timeline.peak_index),
        "failure": None
        if failure is None
        else {
            "index": max(bisect_right(entries, failure.entry) - 1, 0),
            "live": failure.live_allocated_bytes,
            "request": failure.requested_bytes,
        },
    }


def _label(layer: Layer, names: Mapping[StackId, StackName]) -> str:
    name = names.get(layer.stack) if layer.stack is not None else None
    return layer.label if name is None else name.label


def _steps(values: Sequence[int], points: Sequence[int]) -> list[int]:
    if not values:
        return []
    chosen = [values[point] for point in points]
    return [chosen[0], *(after - before for before, after in pairwise(chosen))]


def _spans(spans: Sequence[Span], points: Sequence[int]) -> list[tuple[int, int, str]]:
    """Spans by index among the chosen points; those that hold none of them are left out."""
    found = []
    for span in spans:
        first, last = bisect_left(points, span.first), bisect_right(points, span.last) - 1
        if first <= last:
            found.append((first, last, span.name))
    return found
