"""Balance sheets of a device, closed to the byte: at the peak, and at the end of the history."""

from collections.abc import Iterable
from typing import Final

from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.model import BalanceSheet, PoolAccount

_DEFAULT_POOL: Final = (0, 0)


def sheets(device: DeviceAnalysis) -> list[tuple[str, BalanceSheet, str]]:
    """Balance sheets at the peak and at the end: heading, sheet, and what its cached bytes are.

    At the end the ledger does not tell apart what is free and what was freed but is held for another stream.
    """
    ledger = device.ledger
    last = max(ledger.entries - 1, ledger.peak.entry)
    given = ledger.balance
    at_peak = _at_peak(device) if given is None or given.entry != ledger.peak.entry else given
    found = [("At the peak", at_peak, "free inside segments")]
    if last != ledger.peak.entry:
        found.append(
            ("At the end", _at_end(device, last), "free inside segments, or held for a stream")
        )
    return found


def _at_peak(device: DeviceAnalysis) -> BalanceSheet:
    ledger, timeline = device.ledger, device.timeline
    reserved = sum(account.at_peak.reserved_bytes for account in ledger.pools)
    if not ledger.pools:
        reserved = (
            timeline.reserved_bytes[timeline.peak_index]
            if timeline.reserved_bytes
            else ledger.peak_reserved_bytes
        )
    private = sum(
        account.at_peak.reserved_bytes - account.at_peak.allocated_bytes
        for account in _private(ledger.pools)
    )
    return _sheet(
        entry=ledger.peak.entry,
        requested_bytes=ledger.peak.requested_bytes,
        allocated_bytes=ledger.peak.allocated_bytes,
        pending_bytes=ledger.pending_bytes,
        private_bytes=private,
        reserved_bytes=reserved,
    )


def _at_end(device: DeviceAnalysis, entry: int) -> BalanceSheet:
    ledger = device.ledger
    private = sum(
        account.live.reserved_bytes - account.live.allocated_bytes
        for account in _private(ledger.pools)
    )
    return _sheet(
        entry=entry,
        requested_bytes=ledger.live_requested_bytes,
        allocated_bytes=ledger.live_allocated_bytes,
        pending_bytes=0,
        private_bytes=private,
        reserved_bytes=ledger.reserved_bytes,
    )


def _private(pools: Iterable[PoolAccount]) -> list[PoolAccount]:
    return [account for account in pools if account.pool != _DEFAULT_POOL]


def _sheet(
    *,
    entry: int,
    requested_bytes: int,
    allocated_bytes: int,
    pending_bytes: int,
    private_bytes: int,
    reserved_bytes: int,
) -> BalanceSheet:
    return BalanceSheet(
        entry=entry,
        requested_bytes=requested_bytes,
        rounding_bytes=allocated_bytes - requested_bytes,
        allocated_bytes=allocated_bytes,
        pending_bytes=pending_bytes,
        cached_bytes=reserved_bytes - allocated_bytes - pending_bytes - private_bytes,
        private_cached_bytes=private_bytes,
        reserved_bytes=reserved_bytes,
    )
