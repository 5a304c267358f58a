"""What a pack says first: the numbers of the account, what else is known of the run, and what the numbers leave out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headroom.evidence.analysis_model import Composition, Share
from headroom.evidence.explain.composition import NO_MODULE, NO_PHASE, OLDER
from headroom.evidence.model import BalanceSheet, Failure, Ledger, LiveBlock, PoolAccount
from headroom.evidence.pack.groups import frame_label, layers_merged
from headroom.evidence.pack.items import ALWAYS, Cut, Item
from headroom.evidence.reading.stacks import user_frames
from headroom.evidence.text import quoted
from headroom.units import KIB, format_bytes

_VALUE_LIMIT: Final = 500
_NAME_LIMIT: Final = 100
_NOTE_LIMIT: Final = 300
_PARTS: Final = 8
# What would be printed as 0.0 %.
_SMALLEST: Final = 0.0005
_UNTOLD: Final = frozenset({NO_MODULE, NO_PHASE, OLDER})
_POOLS: Final = 12

# What a line of facts is worth beside a stack that holds so large a part of the peak.
_WORTH_FACT: Final = 0.03
_WORTH_METRIC: Final = 0.01
_WORTH_CATEGORIES: Final = 0.15
_WORTH_PARTS: Final = 0.05
_WORTH_SITE: Final = 0.25

Metric = tuple[str, str, float]
"""Name, text and worth of a fact; both texts may be shown as they are."""


def sized(size_bytes: int) -> str:
    """Both forms where a number may be cited: rounded for the reader, exact for the check."""
    exact = f"{size_bytes} bytes"
    return exact if size_bytes < KIB else f"{format_bytes(size_bytes)} ({exact})"


def fraction(size_bytes: int, peak_bytes: int) -> float:
    """A part of the peak; 0 where there is no peak."""
    return size_bytes / peak_bytes if peak_bytes else 0.0


def share(size_bytes: int, peak_bytes: int) -> str:
    """A part of the peak in per cent."""
    return f"{100 * fraction(size_bytes, peak_bytes):.1f} %"


def fact_items(
    ledger: Ledger,
    composition: Composition | None,
    facts: Mapping[str, str],
    notes: Sequence[str],
) -> list[Item]:
    """Everything of the first section: metrics, what was given, reservations, the balance sheet, notes."""
    metrics = [*_metrics(ledger), *_failure_metrics(ledger), *_parts(ledger, composition)]
    metrics += [
        (quoted(name, _NAME_LIMIT), quoted(value, _VALUE_LIMIT), _WORTH_FACT)
        for name, value in sorted(facts.items())
    ]
    items = [
        _item(f"M{number:02d}", (0, number), f"{name}: {told}", worth, noun="fact|s")
        for number, (name, told, worth) in enumerate(metrics, start=1)
    ]
    items += _sentences(ledger)
    if ledger.balance is not None:
        items += [
            _item(
                f"B{number:02d}",
                (2, number),
                f"{name}: {told}",
                _WORTH_METRIC,
                noun="balance line|s",
            )
            for number, (name, told) in enumerate(_balance(ledger.balance), start=1)
        ]
    items += [
        _said(f"note {number}", (3, number), quoted(note, _NOTE_LIMIT), _WORTH_METRIC)
        for number, note in enumerate(notes, start=1)
    ]
    return items


def _item(number: str, place: tuple[int, int], told: str, worth: float, *, noun: str) -> Item:
    return Item(
        key=number,
        section="facts",
        place=place,
        value=worth,
        cut=Cut(noun=noun),
        lines=(f"- {number} {told}",),
        ids=(number,),
    )


def _said(key: str, place: tuple[int, int], sentence: str, worth: float) -> Item:
    return Item(
        key=key,
        section="facts",
        place=place,
        value=worth,
        cut=Cut(noun="note|s"),
        lines=(f"- {sentence}",),
    )


def _metrics(ledger: Ledger) -> list[Metric]:
    peak = ledger.peak
    metrics: list[Metric] = [
        ("device", str(ledger.device), ALWAYS),
        ("peak allocated", sized(peak.allocated_bytes), ALWAYS),
        ("requested at the peak", sized(peak.requested_bytes), _WORTH_METRIC),
    ]
    if peak.tick.update or peak.tick.call:
        tick = f"update {peak.tick.update}, call {peak.tick.call}"
        metrics.append(("tick of the peak", tick, _WORTH_FACT))
    metrics += [
        ("allocated at the end of the history", sized(ledger.live_allocated_bytes), _WORTH_METRIC),
        ("reserved at the end of the history", sized(ledger.reserved_bytes), _WORTH_METRIC),
        ("peak reserved", sized(ledger.peak_reserved_bytes), _WORTH_METRIC),
        ("history", _history(ledger), _WORTH_METRIC),
    ]
    for reason, size_bytes in ledger.unattributed.items():
        part = share(size_bytes, peak.allocated_bytes)
        worth = fraction(size_bytes, peak.allocated_bytes) + _WORTH_METRIC
        metrics.append((f"peak without an owner, {reason}", f"{sized(size_bytes)}, {part}", worth))
    if ledger.pending_bytes:
        told = sized(ledger.pending_bytes)
        metrics.append(("freed, but held for another stream", told, _WORTH_FACT))
    if ledger.uncertain_bytes:
        told = sized(ledger.uncertain_bytes)
        metrics.append(("the peak may be higher by up to", told, _WORTH_FACT))
    if len(ledger.pools) > 1:
        metrics += [_pool(account) for account in ledger.pools[:_POOLS]]
    return metrics


def _history(ledger: Ledger) -> str:
    window = ledger.window
    if window is None:
        return f"{ledger.entries} entries"
    told = f"{window.entries} entries"
    if window.last_time_us > window.first_time_us:
        told += f" over {(window.last_time_us - window.first_time_us) / 1e6:.3f} s"
    if window.ring:
        told += ", beginning in the middle of the program's work"
    if window.lost_frees:
        told += f", {window.lost_frees} frees of blocks that it does not know"
    if window.older_bytes:
        told += f"; of the peak {sized(window.older_bytes)} are older than it"
    return told


def _pool(account: PoolAccount) -> Metric:
    where = f"stream {account.stream}, pool {account.pool[0]}/{account.pool[1]}"
    at_peak = account.at_peak
    told = (
        f"at the peak {sized(at_peak.allocated_bytes)} allocated, "
        f"{format_bytes(at_peak.reserved_bytes)} reserved"
    )
    return where, told, _WORTH_METRIC


def _failure_metrics(ledger: Ledger) -> list[Metric]:
    if ledger.failure is None:
        return []
    return [
        ("failing request", sized(ledger.failure.requested_bytes), ALWAYS),
        ("device memory free at the failure", sized(ledger.failure.device_free_bytes), ALWAYS),
        ("demand, a lower bound", sized(ledger.demand_bytes), ALWAYS),
    ]


def _parts(ledger: Ledger, composition: Composition | None) -> list[Metric]:
    """The peak by category, lifetime, phase and module; without an analysis, by what the blocks tell."""
    peak_bytes = ledger.peak.allocated_bytes
    if composition is None:
        categories = shares_of(ledger.blocks)
        if [one.name for one in categories] == ["other"]:
            return []
        return [_part("peak by category", categories, peak_bytes, _WORTH_CATEGORIES)]
    kinds = (
        ("peak by category", composition.categories, _WORTH_CATEGORIES),
        ("peak by lifetime", composition.lifetimes, _WORTH_PARTS),
        ("peak by phase", composition.phases, _WORTH_PARTS),
        ("peak by module", _merged(composition.modules), _WORTH_PARTS),
    )
    return [
        _part(name, parts, peak_bytes, worth)
        for name, parts, worth in kinds
        if any(one.name not in _UNTOLD for one in parts)
    ]


def _part(name: str, parts: Sequence[Share], peak_bytes: int, worth: float) -> Metric:
    """One line; where all of it is inferred, it says so once."""
    inferred = all(one.inferred_bytes == one.allocated_bytes for one in parts)
    told = _list(parts, peak_bytes, mark=not inferred)
    return f"{name}{' (inferred)' if inferred else ''}", told, worth


def shares_of(blocks: Iterable[LiveBlock]) -> list[Share]:
    """Bytes of the peak by category, largest first."""
    sizes: dict[str, list[int]] = {}
    for block in blocks:
        entry = sizes.setdefault(block.category, [0, 0, 0])
        entry[0] += block.allocated_bytes
        entry[1] += 1
        entry[2] += block.allocated_bytes if block.inferred else 0
    shares = [
        Share(name=name, allocated_bytes=size, blocks=count, inferred_bytes=inferred)
        for name, (size, count, inferred) in sizes.items()
    ]
    return sorted(shares, key=lambda one: (-one.allocated_bytes, one.name))


def _merged(modules: Sequence[Share]) -> list[Share]:
    """Modules that differ in the number of a layer, as one."""
    sizes: dict[str, list[int]] = {}
    for one in modules:
        entry = sizes.setdefault(layers_merged(one.name), [0, 0, 0])
        entry[0] += one.allocated_bytes
        entry[1] += one.blocks
        entry[2] += one.inferred_bytes
    merged = [
        Share(name=name, allocated_bytes=size, blocks=count, inferred_bytes=inferred)
        for name, (size, count, inferred) in sizes.items()
    ]
    return sorted(merged, key=lambda one: (-one.allocated_bytes, one.name))


def _list(parts: Sequence[Share], peak_bytes: int, *, mark: bool) -> str:
    shown = [one for one in parts if fraction(one.allocated_bytes, peak_bytes) >= _SMALLEST][
        :_PARTS
    ]
    told = []
    for one in shown:
        name = quoted(one.name, _NAME_LIMIT) if one.name else "none"
        text = (
            f"{name} {format_bytes(one.allocated_bytes)} {share(one.allocated_bytes, peak_bytes)}"
        )
        if mark and one.inferred_bytes == one.allocated_bytes:
            text += " (inferred)"
        elif mark and one.inferred_bytes:
            text += f" ({format_bytes(one.inferred_bytes)} of it inferred)"
        told.append(text)
    rest = parts[len(shown) :]
    if rest:
        rest_bytes = sum(one.allocated_bytes for one in rest)
        told.append(f"{len(rest)} more {format_bytes(rest_bytes)} {share(rest_bytes, peak_bytes)}")
    return ", ".join(told)


def _sentences(ledger: Ledger) -> list[Item]:
    said = []
    if ledger.failure is not None:
        said.append(_failing_site(ledger.failure))
    sentences = reservations(ledger)
    said += [
        _said(f"reservation {number}", (1, number), sentence, ALWAYS)
        for number, sentence in enumerate(sentences, start=1)
    ]
    return said


def _failing_site(failure: Failure) -> Item:
    site = user_frames(failure.stack)[:1]
    where = frame_label(site[0]) if site else "no user line"
    return _said("failing site", (1, 0), f"the failing request came from {where}", _WORTH_SITE)


def reservations(ledger: Ledger) -> list[str]:
    """Sentences on what the numbers do not cover; empty where they are complete and exact."""
    lines = []
    if not ledger.complete:
        lines.append(
            "the history does not reach back to the first allocation: the peak is that of the recorded window"
        )
    if ledger.contradictions:
        lines.append(
            f"the history contradicts itself in {ledger.contradictions} places: no number here is exact"
        )
    return lines


def _balance(sheet: BalanceSheet) -> list[tuple[str, str]]:
    """The lines of the balance sheet, in the order in which they add up; what is 0 or unknown is left out."""
    lines = (
        ("requested at the moment of the balance", sheet.requested_bytes),
        ("rounding of the allocator", sheet.rounding_bytes),
        ("allocated (requested and rounding)", sheet.allocated_bytes),
        ("pending for another stream", sheet.pending_bytes),
        ("cached inside segments", sheet.cached_bytes),
        ("cached inside private pools", sheet.private_cached_bytes),
        ("reserved (allocated, pending and cached)", sheet.reserved_bytes),
        ("not torch's: context, libraries, other processes", sheet.non_torch_bytes),
        ("free on the device", sheet.device_free_bytes),
        ("device in all", sheet.device_total_bytes),
    )
    return [(name, sized(size)) for name, size in lines if size]
