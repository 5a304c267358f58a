"""An analysis as a JSON document with stable names."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from headroom.evidence.analysis_model import Analysis, DeviceAnalysis, Difference
from headroom.evidence.explain.compare import headline
from headroom.evidence.model import BalanceSheet, Frame, Ledger, Quantities, StackUse
from headroom.snapshots.diagnose import Draft
from headroom.snapshots.oom_text import OomMessage, what_it_says
from headroom.snapshots.ranks import RankRow

SCHEMA_VERSION: Final = 1
_FRAMES: Final = 12


def document(
    analysis: Analysis,
    drafts: Sequence[Draft],
    *,
    title: str,
    difference: Difference | None = None,
) -> dict[str, Any]:
    """What `headroom analyze --json` prints.

    `devices[]` has `peak` and `live` (`requested_bytes`, `rounded_bytes`, `reserved_bytes`) and `unattributed_bytes`;
    `causes[]` has `kind`, `bytes`, `file`, `line`. Causes and patches are unverified: nothing was run.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "title": title,
        "facts": analysis.facts,
        "file_bytes": analysis.file_bytes,
        "settings": analysis.settings,
        "notes": list(analysis.notes),
        "devices": [_device(device) for device in analysis.devices],
        "causes": [_cause(draft) for draft in drafts],
        "difference": None if difference is None else _difference(difference),
    }


def _device(device: DeviceAnalysis) -> dict[str, Any]:
    ledger = device.ledger
    return {
        "device": ledger.device,
        "peak": _quantities(ledger.peaks),
        "live": _quantities(ledger.live),
        "demand_bytes": ledger.demand_bytes,
        "peak_entry": ledger.peak.entry,
        "unattributed_bytes": sum(ledger.unattributed.values()),
        "unattributed": dict(ledger.unattributed),
        "named_bytes": ledger.named_bytes,
        "complete": ledger.complete,
        "uncertain_bytes": ledger.uncertain_bytes,
        "contradictions": ledger.contradictions,
        "window": _plain(ledger.window),
        "failure": _failure(ledger),
        "balance": None if ledger.balance is None else _balance(ledger.balance),
        "pools": [
            {
                "stream": pool.stream,
                "pool": list(pool.pool),
                "at_peak": _quantities(pool.at_peak),
                "peak": _quantities(pool.peak),
                "live": _quantities(pool.live),
            }
            for pool in ledger.pools
        ],
        "composition": _plain(device.composition),
        "stacks": [_stack(use) for use in ledger.stacks],
        "growth": [_plain(growth) for growth in ledger.growth],
        "updates": [_plain(update) for update in device.updates],
        "fragmentation": _plain(device.fragmentation),
        "churn": _plain(device.churn),
        "timeline": _plain(device.timeline),
    }


def _quantities(found: Quantities | None) -> dict[str, int] | None:
    if found is None:
        return None
    return {
        "requested_bytes": found.requested_bytes,
        "rounded_bytes": found.allocated_bytes,
        "reserved_bytes": found.reserved_bytes,
    }


def _balance(balance: BalanceSheet) -> dict[str, Any]:
    return dataclasses.asdict(balance)


def _failure(ledger: Ledger) -> dict[str, Any] | None:
    failure = ledger.failure
    if failure is None:
        return None
    return {
        "requested_bytes": failure.requested_bytes,
        "live_bytes": failure.live_allocated_bytes,
        "device_free_bytes": failure.device_free_bytes,
        "stack": [_frame(frame) for frame in failure.stack[:_FRAMES]],
    }


def _stack(use: StackUse) -> dict[str, Any]:
    return {
        "id": use.id,
        "allocated_bytes": use.allocated_bytes,
        "requested_bytes": use.requested_bytes,
        "blocks": use.blocks,
        "backward": use.backward,
        "site": None if use.site is None else _frame(use.site),
        "frames": [_frame(frame) for frame in (use.user_frames or use.frames)[:_FRAMES]],
    }


def _frame(frame: Frame) -> dict[str, Any]:
    return {"file": frame.filename, "line": frame.line, "function": frame.name}


def _cause(draft: Draft) -> dict[str, Any]:
    cause, candidate = draft.cause, draft.candidate
    return {
        "kind": cause.kind,
        "bytes": cause.peak_bytes,
        "file": cause.file,
        "line": cause.line,
        "summary": cause.summary,
        "stack_ids": list(cause.stack_ids),
        "play": cause.play,
        "verified": False,
        "patch": None if candidate is None else draft.diff,
        "expected_saving_bytes": None if candidate is None else candidate.expected_saving_bytes,
        "numerics": None if candidate is None else candidate.numerics,
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "before_bytes": difference.before_bytes,
        "after_bytes": difference.after_bytes,
        "saved_bytes": difference.saved_bytes,
        "headline": headline(difference),
        "changes": [
            {**dataclasses.asdict(change), "saved_bytes": change.saved_bytes}
            for change in difference.changes
        ],
    }


def _plain(part: Any) -> Any:
    return None if part is None else dataclasses.asdict(part)


def message_document(message: OomMessage) -> dict[str, Any]:
    """A pasted out-of-memory message: the amounts it states, and what follows from them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "message": {
            **dataclasses.asdict(message),
            "demand_bytes": message.demand_bytes,
            "elsewhere_bytes": message.elsewhere_bytes,
        },
        "says": list(what_it_says(message)),
        "devices": [],
        "causes": [],
    }


def ranks_document(rows: Sequence[RankRow], chosen: int, detail: dict[str, Any]) -> dict[str, Any]:
    """A folder of ranks: a row each, and the whole analysis of the one that needs a closer look."""
    return {
        "schema_version": SCHEMA_VERSION,
        "ranks": [_plain(row) for row in rows],
        "odd_ranks": [row.rank for row in rows if row.odd],
        "analysed_rank": chosen,
        **{key: detail[key] for key in ("devices", "causes", "notes", "title")},
    }
