"""Balance sheets of a device, closed to the byte: at the peak, at the failing request, at the end of the history."""

from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.model import BalanceSheet


def sheets(device: DeviceAnalysis) -> list[tuple[str, BalanceSheet]]:
    """Balance sheets with their headings; moments that are the same entry stand once."""
    ledger = device.ledger
    found: list[tuple[str, BalanceSheet]] = []
    for heading, sheet in (
        ("At the peak", ledger.balance),
        ("At the failing request", ledger.failure_balance),
        ("At the end", ledger.end_balance),
    ):
        if sheet is not None and not any(sheet.entry == other.entry for _, other in found):
            found.append((heading, sheet))
    return found
