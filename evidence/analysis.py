"""Everything that a snapshot explains, for each of its devices."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headroom.evidence.account.account import Account, DeviceFacts, account_for
from headroom.evidence.account.allocator import SizeRules, size_rules
from headroom.evidence.account.names import NameWalk
from headroom.evidence.analysis_model import Analysis, DeviceAnalysis
from headroom.evidence.explain.churn import churn_of
from headroom.evidence.explain.composition import compose
from headroom.evidence.explain.course import read_course
from headroom.evidence.explain.fragmentation import fragmentation_of
from headroom.evidence.explain.growth import inferred_growth, judge_growth
from headroom.evidence.explain.timeline import timeline_of, update_peaks
from headroom.evidence.ledger import chosen_devices, ledger_of
from headroom.evidence.model import Growth, Ledger, StackId
from headroom.evidence.reading.history import NO_STACK
from headroom.evidence.reading.safe_pickle import paused_collector
from headroom.evidence.reading.snapshot import Snapshot
from headroom.evidence.text import NAME_LIMIT, clean_text
from headroom.units import format_bytes

# More settings than torch has are a made-up file's.
_MAX_SETTINGS: Final = 64
_MAX_INFERRED: Final = 5


def analyse(
    snapshot: Snapshot,
    *,
    device: int | None = None,
    roots: Sequence[str] = (),
    walks: Sequence[NameWalk] = (),
    facts: DeviceFacts | None = None,
    file_bytes: int = 0,
) -> Analysis:
    """Explain a snapshot.

    Args:
        snapshot: A snapshot, ours or anybody's.
        device: Index of the device; by default all of them.
        roots: Folders of the program, which tell the user's frames from those of libraries.
        walks: What the recorder named, walk by walk.
        facts: What else is known of the device.
        file_bytes: Size of the file.

    Raises:
        SnapshotError: The snapshot has no such device, or nothing at all, or its sizes are impossible.
    """
    rules = size_rules(snapshot.settings)
    devices: list[DeviceAnalysis] = []
    notes = list(snapshot.notes)
    with paused_collector():
        for one in chosen_devices(snapshot, device):
            account = account_for(snapshot, one, roots=tuple(roots), walks=walks, facts=facts)
            explained, said = explain(account, rules)
            devices.append(explained)
            notes += said
    return Analysis(
        devices=tuple(devices),
        settings=_settings(snapshot),
        file_bytes=file_bytes,
        notes=tuple(notes),
    )


def explain(account: Account, rules: SizeRules) -> tuple[DeviceAnalysis, list[str]]:
    """Explain one device, with sentences on what can only be inferred of it.

    Args:
        account: The device.
        rules: The allocator's settings.
    """
    ledger = ledger_of(account)
    course = read_course(account)
    stack_ids = _stack_ids(account, ledger)
    ledger = replace(ledger, growth=judge_growth(ledger.growth, account, stack_ids))
    explained = DeviceAnalysis(
        ledger=ledger,
        composition=compose(account, course, ledger),
        timeline=timeline_of(account, course, stack_ids),
        updates=update_peaks(account),
        settled_growth=tuple(growth for growth in ledger.growth if not growth.leak),
        fragmentation=fragmentation_of(account, rules),
        churn=churn_of(account, stack_ids),
    )
    growth = inferred_growth(account, course, stack_ids)[:_MAX_INFERRED]
    return explained, [_growth_note(ledger, one) for one in growth]


def _growth_note(ledger: Ledger, growth: Growth) -> str:
    site = ledger.stack(growth.stack).site
    where = f" ({site.filename}:{site.line})" if site is not None else ""
    return (
        f"No label tells updates; by the optimizer's stacks, {growth.stack}{where} of device {ledger.device} holds "
        f"blocks of {growth.ticks} updates at the peak, {format_bytes(growth.bytes_per_tick)} each: "
        f"{'it still grows' if growth.leak else 'it came to rest'}."
    )


def _stack_ids(account: Account, ledger: Ledger) -> dict[int, StackId]:
    """The ledger's IDs by number of stack."""
    numbers = account.owners.stacks
    at_peak = {numbers[row] for row in account.replay.rows_allocated(account.replay.peak_entry)}
    by_content = {use.frames: use.id for use in ledger.stacks}
    frames = account.replay.stacks.frames
    return {stack: by_content[frames(stack)] for stack in at_peak if stack != NO_STACK}


def _settings(snapshot: Snapshot) -> dict[str, str]:
    """The allocator's settings as text, cleaned: a file may hold anything there."""
    return {
        clean_text(str(name), NAME_LIMIT): clean_text(str(value)[:NAME_LIMIT], NAME_LIMIT)
        for name, value in list(snapshot.settings.items())[:_MAX_SETTINGS]
    }
