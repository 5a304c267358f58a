"""What an analysis says, in sentences and rows that the page and the terminal share."""

from typing import Final

from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.model import Ledger, Missing
from headroom.evidence.reading.stacks import user_frames
from headroom.report.page.names import Names
from headroom.units import MIB, format_bytes

REASONS: Final[dict[Missing, str]] = {
    "before recording": "allocated before the recording began: record from the program's first line",
    "lost by the ring": "its entry was overwritten in the ring: record with a larger `max_entries`",
    "no stack": "allocated where no Python stack was taken, as on autograd's threads: `headroom run` labels these",
    "private pool": "in a private pool (a CUDA graph's or a MemPool's) that keeps no stack",
}
"""Why bytes of the peak have no owner, and what would have told it."""


def refused_with_room(ledger: Ledger) -> str:
    """A sentence where the device had ample room for the refused request; empty otherwise.

    A request can need a segment of 2 MiB, 20 MiB or its own size rounded up to 2 MiB (torch's allocator), so twice the
    request and 64 MiB is more than any needs.
    """
    failure = ledger.failure
    if failure is None or failure.device_free_bytes < 2 * failure.requested_bytes + 64 * MIB:
        return ""
    if ledger.cap_bytes is not None:
        return f"The run was capped at {format_bytes(ledger.cap_bytes)} (`--capacity`)."
    return (
        f"The device had {format_bytes(failure.device_free_bytes)} free when {format_bytes(failure.requested_bytes)} "
        "was refused, which points to a limit set for the process "
        "(such as `torch.cuda.set_per_process_memory_fraction`)."
    )


def failing_line(ledger: Ledger, names: Names) -> str:
    """A sentence on the line whose request was refused; empty where nothing was, or no line is known."""
    failure = ledger.failure
    own = user_frames(failure.stack)[:1] if failure is not None else ()
    if failure is None or not own:
        return ""
    place = f"{names.path(own[0].filename)}:{own[0].line} ({own[0].name})"
    return f"The refused request came from {place}: that is where it failed, not what fills the memory."


def silences(device: DeviceAnalysis) -> list[str]:
    """Sentences on what the history of a device does not tell; empty where it is complete and exact."""
    ledger, said = device.ledger, []
    if not ledger.complete:
        said.append(
            "The history does not reach back to the first allocation, so the peak is that of the recorded window."
        )
    if ledger.window is not None and ledger.window.ring:
        said.append(
            "Its oldest entry is in the middle of the program's work: what came before may have peaked higher."
        )
    if ledger.uncertain_bytes:
        said.append(
            f"The peak may be up to {format_bytes(ledger.uncertain_bytes)} higher: blocks older than the recording."
        )
    if ledger.contradictions:
        said.append(
            f"The history contradicts itself in {ledger.contradictions} places, so no number here holds to the byte."
        )
    if not device.timeline.updates:
        said.append(
            "The history tells no updates, so growth from one update to the next cannot be seen."
        )
    return said


def fragmentation_matters(device: DeviceAnalysis) -> bool:
    """Whether free memory in pieces decided the failure, or a quarter of what was reserved was never allocated."""
    ledger, frag = device.ledger, device.fragmentation
    if frag.request_bytes is not None:
        return frag.whole
    return 4 * never_allocated_bytes(ledger) >= max(ledger.peak_reserved_bytes, 1)


def never_allocated_bytes(ledger: Ledger) -> int:
    """By how much reserved memory peaked above allocated memory."""
    return max(ledger.peak_reserved_bytes - ledger.peak.allocated_bytes, 0)


def fragmentation_text(device: DeviceAnalysis) -> str:
    """What free memory inside segments means, in one or two sentences."""
    frag = device.fragmentation
    if frag.request_bytes is None:
        return _free_at_the_end(device)
    free, unusable = format_bytes(frag.free_bytes), format_bytes(frag.unusable_bytes)
    fits = "would have fitted" if frag.whole else "would not have fitted either"
    part = "none of it" if frag.unusable_bytes >= frag.free_bytes else f"all but {unusable} of it"
    return (
        f"When {format_bytes(frag.request_bytes)} was refused, {free} was free inside segments and {part} usable "
        f"for the request; as one piece it {fits}."
    )


def _free_at_the_end(device: DeviceAnalysis) -> str:
    ledger, frag = device.ledger, device.fragmentation
    pieces = sum(key.pieces for key in frag.keys)
    largest_bytes = max((key.largest_bytes for key in frag.keys), default=0)
    above = (
        f"Reserved memory peaked at {format_bytes(ledger.peak_reserved_bytes)}, "
        f"{format_bytes(never_allocated_bytes(ledger))} above what was ever allocated."
    )
    if not pieces:
        return f"{above} Nothing is free inside segments at the end."
    noun = "piece" if pieces == 1 else "pieces"
    return (
        f"{above} At the end {format_bytes(frag.free_bytes)} is free inside segments, in {pieces:,} {noun}, "
        f"the largest {format_bytes(largest_bytes)}."
    )
