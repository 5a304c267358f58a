"""Fragmentation, churn and growth in a pack."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from headroom.evidence.analysis_model import Churn, Fragmentation, FreeKey, HotPath
from headroom.evidence.model import Growth
from headroom.evidence.pack.facts import fraction, share, sized
from headroom.evidence.pack.groups import frame_label
from headroom.evidence.pack.items import Cut, Item
from headroom.evidence.reading.stacks import display_frames
from headroom.units import format_bytes, format_seconds

_WORTH_LINE: Final = 0.01
_WORTH_FAILED: Final = 0.1
_WORTH_FREE: Final = 0.3
_WORTH_CHURN: Final = 0.05
_WORTH_GROWTH_LINE: Final = 0.5
_WORTH_SETTLED: Final = 0.2


def fragmentation_items(found: Fragmentation, peak_bytes: int) -> Iterator[Item]:
    """One sentence on free memory inside segments, and an F line for each kind that serves its own requests only."""
    failed = found.request_bytes is not None
    yield Item(
        key="fragmentation",
        section="heap",
        place=(0, 0),
        value=_WORTH_FAILED if failed else _WORTH_LINE,
        cut=Cut(noun="sentence|s on fragmentation"),
        lines=(f"- {_fragmentation(found)}",),
    )
    for number, key in enumerate(found.keys, start=1):
        name = f"F{number:02d}"
        yield Item(
            key=name,
            section="heap",
            place=(1, number),
            value=_WORTH_FREE * fraction(key.free_bytes, peak_bytes) if failed else _WORTH_LINE / 4,
            cut=Cut(noun="line|s on free memory"),
            lines=(f"- {name} {_free(key, failed=failed)}",),
            ids=(name,),
            needs="fragmentation",
        )


def _fragmentation(found: Fragmentation) -> str:
    when = "at the failure" if found.request_bytes is not None else "at the end of the history"
    told = f"free inside segments {when}: {sized(found.free_bytes)}"
    if found.request_bytes is None:
        return told
    told += (
        f"; of it the failing request of {sized(found.request_bytes)} could not use "
        f"{sized(found.unusable_bytes)}; largest usable piece {sized(found.largest_usable_bytes)}"
    )
    would = "would" if found.whole else "would not"
    return f"{told}; as one piece, all of it {would} have held the request"


def _free(key: FreeKey, *, failed: bool) -> str:
    kind = "small" if key.small else "large"
    many = f"{key.pieces} {'piece' if key.pieces == 1 else 'pieces'}"
    told = f"stream {key.stream}, pool {key.pool[0]}/{key.pool[1]}, {kind} blocks: "
    told += f"{sized(key.free_bytes)} in {many}, the largest {format_bytes(key.largest_bytes)}"
    if not failed:
        return told
    return f"{told}; the request {'could' if key.usable else 'could not'} use this kind"


def churn_items(churn: Churn, introduced: Mapping[str, str]) -> Iterator[Item]:
    """Totals of the history, and an H line for each path that allocates most.

    Args:
        churn: What was allocated, whatever of it is live at the peak.
        introduced: The key of the piece that introduces each stack ID.
    """
    flushes = f", {churn.cache_flushes} flushes of the cache" if churn.cache_flushes else ""
    yield Item(
        key="churn",
        section="heap",
        place=(2, 0),
        value=_WORTH_LINE,
        cut=Cut(noun="sentence|s on churn"),
        lines=(
            f"- whole history: {churn.allocations} allocations of {sized(churn.requested_bytes)} requested, "
            f"{churn.segment_allocations} segments taken and {churn.segment_frees} given back{flushes}",
        ),
    )
    for number, path in enumerate(churn.paths):
        part = fraction(path.requested_bytes, churn.requested_bytes)
        yield Item(
            key=path.id,
            section="heap",
            place=(3, number),
            value=_WORTH_CHURN * part,
            cut=Cut(noun="hot path|s"),
            lines=(f"- {path.id} {_path(path, part)}",),
            ids=(path.id,),
            needs="churn",
            refs=(path.stack,) if path.stack is not None and path.stack in introduced else (),
        )


def _path(path: HotPath, part: float) -> str:
    if path.site is not None:
        where = frame_label(path.site)
    else:
        inner = display_frames(path.frames)[:1]
        where = f"{frame_label(inner[0])} (library)" if inner else "no named frame"
    times = f"{path.allocations} {'allocation' if path.allocations == 1 else 'allocations'}"
    told = f"{where}: {times}, {sized(path.requested_bytes)} requested"
    told += (
        f", {100 * part:.1f} % of all, the longest lived {format_seconds(path.longest_us / 1e6)}"
    )
    if path.per_tick is not None and path.kind is not None:
        told += f", {path.per_tick:.1f} per {path.kind}"
        if path.bytes_per_tick is not None:
            told += f" of {format_bytes(int(path.bytes_per_tick))}"
    return told


def growth_items(
    growing: Sequence[Growth],
    settled: Sequence[Growth],
    introduced: Mapping[str, str],
    *,
    peak_bytes: int,
    ticks_known: bool,
) -> Iterator[Item]:
    """A line of the index and one of detail for each growth; or why there is none."""
    if not growing:
        yield _none(ticks_known=ticks_known)
    seen = {growth.id for growth in growing}
    later = [growth for growth in settled if growth.id not in seen]
    for place, growth in enumerate((*growing, *later)):
        weight = _WORTH_SETTLED if place >= len(growing) or not growth.leak else 1.0
        part = weight * fraction(growth.allocated_bytes, peak_bytes)
        total = (
            f"{format_bytes(growth.allocated_bytes)} {share(growth.allocated_bytes, peak_bytes)}"
        )
        settled_at = ", at rest since" if weight < 1 else ""
        yield Item(
            key=growth.id,
            section="growth",
            place=(place, 0),
            value=part,
            cut=Cut(noun="case|s of growth", size_bytes=growth.allocated_bytes),
            index=f"{growth.id} {total} growth of {growth.stack} over {ticks_of(growth)}{settled_at}",
            ids=(growth.id,),
            needs=introduced[growth.stack],
        )
        yield Item(
            key=f"{growth.id} detail",
            section="growth",
            place=(place, 1),
            value=_WORTH_GROWTH_LINE * part,
            cut=Cut(noun="detail|s of growth"),
            lines=(_growth_line(growth, peak_bytes, leak=weight == 1),),
            needs=growth.id,
        )


def _none(*, ticks_known: bool) -> Item:
    said = (
        "No stack has live blocks from three or more updates or calls at the peak."
        if ticks_known
        else "The recording does not tell updates and calls, so growth cannot be seen."
    )
    return Item(
        key="no growth",
        section="growth",
        place=(0, 0),
        value=_WORTH_LINE,
        cut=Cut(noun="sentence|s on growth"),
        lines=(said,),
    )


def _growth_line(growth: Growth, peak_bytes: int, *, leak: bool) -> str:
    end = "" if leak else "; it came to rest, as warm-up does"
    return (
        f"- {growth.id} {growth.stack}: blocks from {ticks_of(growth)} are live, "
        f"{sized(growth.bytes_per_tick)} per {growth.kind} (median), "
        f"{sized(growth.allocated_bytes)} in all, {share(growth.allocated_bytes, peak_bytes)}{end}"
    )


def ticks_of(growth: Growth) -> str:
    """`6 updates`."""
    return f"{growth.ticks} {growth.kind}s"


def introducers(items: Sequence[Item]) -> dict[str, str]:
    """The key of the piece that introduces each ID."""
    return {name: item.key for item in items for name in item.ids}
