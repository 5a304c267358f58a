"""What a pack says first: the numbers of the ledger, what else is known of the run, and what the numbers leave out."""

from collections.abc import Mapping
from typing import Final

from headroom.evidence.model import Ledger
from headroom.evidence.text import quoted
from headroom.units import KIB, format_bytes

_VALUE_LIMIT: Final = 500


def sized(size_bytes: int) -> str:
    """Both forms where a number may be cited: rounded for the reader, exact for the check."""
    exact = f"{size_bytes} bytes"
    return exact if size_bytes < KIB else f"{format_bytes(size_bytes)} ({exact})"


def share(size_bytes: int, ledger: Ledger) -> str:
    """A part of the peak in per cent."""
    peak_bytes = ledger.peak.allocated_bytes
    return f"{100 * size_bytes / peak_bytes:.1f} %" if peak_bytes else "0.0 %"


def numbered_facts(ledger: Ledger, facts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Metric IDs with their text: the ledger's in a fixed order, then the given facts by name."""
    told = [f"{name}: {value}" for name, value in _metrics(ledger)]
    told += [
        f"{quoted(name)}: {quoted(value, _VALUE_LIMIT)}" for name, value in sorted(facts.items())
    ]
    return [(f"M{number:02d}", text) for number, text in enumerate(told, start=1)]


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


def _metrics(ledger: Ledger) -> list[tuple[str, str]]:
    peak, failure = ledger.peak, ledger.failure
    metrics = [
        ("device", str(ledger.device)),
        ("peak allocated", sized(peak.allocated_bytes)),
        ("requested at the peak", sized(peak.requested_bytes)),
    ]
    if peak.tick.update or peak.tick.call:
        metrics.append(("tick of the peak", f"update {peak.tick.update}, call {peak.tick.call}"))
    metrics += [
        ("allocated at the end of the history", sized(ledger.live_allocated_bytes)),
        ("reserved at the end of the history", sized(ledger.reserved_bytes)),
        ("peak reserved", sized(ledger.peak_reserved_bytes)),
        ("entries of history", str(ledger.entries)),
    ]
    for reason, size_bytes in ledger.unattributed.items():
        part = share(size_bytes, ledger)
        metrics.append((f"peak without an owner, {reason}", f"{sized(size_bytes)}, {part}"))
    if ledger.pending_bytes:
        metrics.append(("freed, but held for another stream", sized(ledger.pending_bytes)))
    if ledger.uncertain_bytes:
        metrics.append(("the peak may be higher by up to", sized(ledger.uncertain_bytes)))
    if failure is not None:
        metrics += [
            ("failing request", sized(failure.requested_bytes)),
            ("device memory free at the failure", sized(failure.device_free_bytes)),
            ("demand, a lower bound", sized(ledger.demand_bytes)),
        ]
    return metrics
