"""An analysis of a snapshot on the terminal: what fills the memory, why, and what to do now."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headroom.evidence.analysis_model import Analysis, DeviceAnalysis, Difference
from headroom.evidence.explain.compare import headline
from headroom.evidence.model import Holder
from headroom.evidence.text import clean_text
from headroom.records.diagnosis import Candidate, Cause
from headroom.report.page.drafts import place_of
from headroom.report.page.names import Names
from headroom.report.page.places import Place, never_freed, percent, places
from headroom.report.page.reading import (
    REASONS,
    failing_line,
    fragmentation_matters,
    fragmentation_text,
    refused_with_room,
    silences,
)
from headroom.units import format_bytes

_PLACES: Final = 6
_CAUSES: Final = 3
_WHYS: Final = 2
_NOTES: Final = 3
_CHANGES: Final = 4
_SUMMARY_LIMIT: Final = 300
_LINE_LIMIT: Final = 600
_NAME_LIMIT: Final = 44
# Less of the peak than this needs no word about who keeps it.
_WORTH: Final = 0.02


def print_analysis(
    console: Console,
    analysis: Analysis,
    causes: Sequence[Cause] = (),
    *,
    title: str,
    candidates: Sequence[Candidate] = (),
    difference: Difference | None = None,
    next_commands: Sequence[str] = (),
) -> None:
    """The device with the highest peak in about forty lines of a hundred columns.

    Args:
        console: Where to.
        analysis: What the snapshot holds; it has at least one device.
        causes: Diagnoses, largest first; nobody has tried them, and the text says so.
        title: What was read, such as the name of the file.
        candidates: Drafts of patches; a cause names the first that is for it.
        difference: What changed since another snapshot.
        next_commands: Whole command lines that go on from here.
    """
    main = analysis.main
    names = Names([main.ledger])
    _print_headline(console, analysis, main, title)
    _print_places(console, main, names)
    _print_section(console, "Why it is there", _whys(main, names))
    _print_causes(console, main, causes, candidates, names)
    if difference is not None:
        _print_section(console, "Compared with the other snapshot", _changes(difference, names))
    if fragmentation_matters(main):
        _print_section(console, "Fragmentation", [fragmentation_text(main)])
    _print_section(console, "What the file does not tell", _untold(analysis, main))
    for command in next_commands:
        console.print(_plain(f"next: {command}", "bold"), soft_wrap=True)


def _print_section(console: Console, heading: str, sentences: Iterable[str]) -> None:
    told = [sentence for sentence in sentences if sentence]
    if told:
        console.print(_plain(heading, "bold"))
        for sentence in told:
            # Padding keeps the lines that a long sentence wraps to under its first one.
            console.print(Padding(_plain(sentence), (0, 0, 0, 2), expand=False))


def _print_headline(console: Console, analysis: Analysis, main: DeviceAnalysis, title: str) -> None:
    ledger = main.ledger
    on = f" on device {ledger.device}" if len(analysis.devices) > 1 else ""
    peak, failure = format_bytes(ledger.peak.allocated_bytes), ledger.failure
    if failure is None:
        console.print(_plain(f"{title}: peak {peak}{on}", "bold"))
    else:
        refused = format_bytes(failure.requested_bytes)
        text = f"{title}: out of memory{on}: {refused} refused, peak {peak}"
        console.print(_plain(text, "bold red"))
    console.print(_plain("; ".join(_beside_the_peak(main)), "dim"))
    others = [one.ledger for one in analysis.devices if one is not main]
    for other in others[:_NOTES]:
        text = f"device {other.device} peaks at {format_bytes(other.peak.allocated_bytes)}"
        console.print(_plain(text, "dim"))
    if len(others) > _NOTES:
        console.print(_plain(f"and {len(others) - _NOTES} more devices", "dim"))


def _beside_the_peak(main: DeviceAnalysis) -> list[str]:
    ledger, told = main.ledger, []
    if ledger.failure is not None:
        told.append(f"needs at least {format_bytes(ledger.demand_bytes)}")
        told.append(f"the device had {format_bytes(ledger.failure.device_free_bytes)} free")
    if ledger.balance is not None and ledger.balance.device_total_bytes is not None:
        told.append(f"the device has {format_bytes(ledger.balance.device_total_bytes)}")
    told.append(f"reserved at most {format_bytes(ledger.peak_reserved_bytes)}")
    told.append(f"live at the end {format_bytes(ledger.live_allocated_bytes)}")
    return told


def _print_places(console: Console, main: DeviceAnalysis, names: Names) -> None:
    ledger = main.ledger
    whole = ledger.peak.allocated_bytes
    found = places(ledger, names)
    console.print(_plain("What fills the peak", "bold"))
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=2)
    table.add_column(overflow="fold", ratio=3)
    for place in found[:_PLACES]:
        row = (_short(f"{place.where} {place.function}".strip()), _what(place))
        _add_row(table, place.allocated_bytes, whole, *row)
    rest = found[_PLACES:]
    if rest:
        noun = "line" if len(rest) == 1 else "lines"
        size_bytes = sum(place.allocated_bytes for place in rest)
        _add_row(table, size_bytes, whole, f"{len(rest)} more {noun}", "")
    for reason, size_bytes in ledger.unattributed.items():
        _add_row(table, size_bytes, whole, "without an owner", reason)
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _add_row(table: Table, size_bytes: int, whole: int, where: str, what: str) -> None:
    cells = (format_bytes(size_bytes), percent(size_bytes, whole), where)
    table.add_row(*(_plain(cell) for cell in cells), _plain(what, "dim"))


def _what(place: Place) -> str:
    category = place.category.replace("_", " ") + (" (inferred)" if place.inferred else "")
    return ", ".join(part for part in (category, place.lifetime, place.when) if part)


def _whys(main: DeviceAnalysis, names: Names) -> list[str]:
    """A limit of the process first, then growth, who keeps what, and how long it lives."""
    return [
        failing_line(main.ledger, names),
        refused_with_room(main.ledger),
        *_growths(main, names),
        never_freed(main, names),
        *_holders(main, names),
        _lifetimes(main),
    ]


def _growths(main: DeviceAnalysis, names: Names) -> list[str]:
    ledger = main.ledger
    leaks = [one for one in ledger.growth if one.leak and _is_worth(main, one.allocated_bytes)]
    told = [
        f"{names.stack(ledger.stack(one.stack)).label} piles up {format_bytes(one.bytes_per_tick)} each {one.kind}: "
        f"{format_bytes(one.allocated_bytes)} from {one.ticks} {one.kind}s, and still growing at the end."
        for one in leaks[:_WHYS]
    ]
    more = leaks[_WHYS:]
    if more:
        size_bytes = sum(one.allocated_bytes for one in more)
        noun = "stack piles" if len(more) == 1 else "stacks pile"
        told.append(f"{len(more)} more {noun} up {format_bytes(size_bytes)} in the same way.")
    return told


def _holders(main: DeviceAnalysis, names: Names) -> list[str]:
    sizes: Counter[Holder] = Counter()
    for block in main.ledger.blocks:
        if block.holder is not None:
            sizes[block.holder] += block.allocated_bytes
    return [
        f"The {one.kind} {one.name} in {one.function or 'the program'} ({names.path(one.file)}:{one.line}) "
        f"keeps {format_bytes(size_bytes)} alive."
        for one, size_bytes in sizes.most_common(_WHYS)
        if _is_worth(main, size_bytes)
    ]


def _lifetimes(main: DeviceAnalysis) -> str:
    whole = main.ledger.peak.allocated_bytes
    phrases = {
        "persistent": "stays for good",
        "several updates": "outlives its update",
        "forward to backward": "waits from forward to backward",
        "step": "lives for one step",
        "temporary": "is temporary",
    }
    parts = [
        f"{percent(share.allocated_bytes, whole)} {phrases.get(share.name, share.name)}"
        for share in main.composition.lifetimes[:3]
        if share.allocated_bytes
    ]
    return f"Of the peak, {', '.join(parts)}." if parts else ""


def _is_worth(main: DeviceAnalysis, size_bytes: int) -> bool:
    return size_bytes >= _WORTH * main.ledger.peak.allocated_bytes


def _print_causes(
    console: Console,
    main: DeviceAnalysis,
    causes: Sequence[Cause],
    candidates: Sequence[Candidate],
    names: Names,
) -> None:
    if not causes:
        text = "No known cause was recognised; the lines above are where to look."
        _print_section(console, "What to change", [text])
        return
    console.print(_plain("What to change (unverified)", "bold"))
    for number, cause in enumerate(causes[:_CAUSES], start=1):
        where = place_of(cause, names)
        size = f"{format_bytes(cause.peak_bytes)}, {percent(cause.peak_bytes, main.ledger.peak.allocated_bytes)}"
        head = f"{number}. {where + ': ' if where else ''}{cause.kind.replace('_', ' ')} ({size})"
        console.print(Padding(_plain(head, "bold yellow"), (0, 0, 0, 2), expand=False))
        draft = next((one.patch.title for one in candidates if one.cause == cause), "")
        for text in (_cut(cause.summary), f"Draft: {draft}" if draft else ""):
            if text:
                console.print(Padding(_plain(text), (0, 0, 0, 5), expand=False))
    if len(causes) > _CAUSES:
        text = f"and {len(causes) - _CAUSES} more"
        console.print(Padding(_plain(text, "dim"), (0, 0, 0, 2), expand=False))


def _plain(text: str, style: str = "") -> Text:
    """Text for rich on one line of its own: no markup, nothing hidden, and cut."""
    return Text(clean_text(text, _LINE_LIMIT), style=style)


def _short(text: str) -> str:
    """A name as the table takes it: its end tells more than its beginning."""
    return text if len(text) <= _NAME_LIMIT else "…" + text[1 - _NAME_LIMIT :]


def _cut(text: str) -> str:
    return text if len(text) <= _SUMMARY_LIMIT else text[: _SUMMARY_LIMIT - 1] + "…"


def _changes(difference: Difference, names: Names) -> list[str]:
    before, after = format_bytes(difference.before_bytes), format_bytes(difference.after_bytes)
    told = [f"{headline(difference)}: the peak went from {before} to {after}."]
    for change in difference.changes[:_CHANGES]:
        if change.saved_bytes:
            line = change.after_line or change.before_line
            where = f"{names.path(change.file)}:{line}" if change.file and line else change.name
            sign = "-" if change.saved_bytes > 0 else "+"
            size = format_bytes(abs(change.saved_bytes))
            told.append(f"{where}: {sign}{size}, now {format_bytes(change.after_bytes)}.")
    return told


def _untold(analysis: Analysis, main: DeviceAnalysis) -> list[str]:
    ledger = main.ledger
    told = [*silences(main), *map(_cut, analysis.notes[:_NOTES])]
    if len(analysis.notes) > _NOTES:
        told.append(f"{len(analysis.notes) - _NOTES} more notes are in the report.")
    told += [
        f"{format_bytes(size_bytes)} has no owner: {REASONS[reason]}."
        for reason, size_bytes in ledger.unattributed.items()
    ]
    return told
