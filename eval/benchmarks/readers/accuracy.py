"""Peaks that readers state, against the truth."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headroom.eval.benchmarks.readers.cases import Case
from headroom.eval.benchmarks.readers.measure import Limits, run_reader
from headroom.eval.benchmarks.readers.registry import Reader

_FINE: Final = 0.005
"""Per cent: below this two decimals would show zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one reader said of one case. Bytes are None where it stated nothing; `error` then says why.

    Most readers state one figure and do not say which ledger it is of; it is then held against both.
    """

    requested_bytes: int | None
    allocated_bytes: int | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A case with the answers to it, by the reader's name."""

    case: Case
    answers: dict[str, Answer]


def compare_peaks(readers: Sequence[Reader], cases: Iterable[Case], limits: Limits) -> list[Row]:
    """Ask every reader that states a peak about every case."""
    asked = [reader for reader in readers if reader.peak is not None]
    return [
        Row(case=case, answers={reader.name: _ask(reader, case, limits) for reader in asked})
        for case in cases
    ]


def _ask(reader: Reader, case: Case, limits: Limits) -> Answer:
    assert reader.peak is not None
    run = run_reader(reader.peak, case.snapshot, limits, own_home=not reader.ours)
    if run.outcome != "ok":
        error = f"{run.outcome}: {run.error}" if run.error else run.outcome
        return Answer(requested_bytes=None, allocated_bytes=None, error=error)
    return read_answer(run.stdout, case.device)


def read_answer(stdout: str, device: int) -> Answer:
    """The answer for a device; a reader that adds up all devices answers for any of them."""
    peaks: list[dict[str, Any]] = json.loads(stdout.splitlines()[-1])["peaks"]
    for peak in peaks:
        if peak["device"] in (device, None):
            return Answer(
                requested_bytes=peak.get("requested", peak.get("stated")),
                allocated_bytes=peak.get("allocated", peak.get("stated")),
            )
    told = f"says nothing of device {device}"
    return Answer(requested_bytes=None, allocated_bytes=None, error=told)


def error_percent(stated_bytes: int, true_bytes: int) -> float:
    """Signed error in per cent of the truth."""
    return (stated_bytes - true_bytes) / true_bytes * 100


def format_error(stated_bytes: int | None, true_bytes: int) -> str:
    """An error for a table: `0` is exact to the byte, and only that."""
    if stated_bytes is None:
        return "fails"
    percent = error_percent(stated_bytes, true_bytes)
    if percent == 0:
        return "0"
    return f"{percent:+.1e}" if abs(percent) < _FINE else f"{percent:+.2f}"


def accuracy_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Columns and lines of a table: error of each reader in requested and in allocated bytes."""
    names = list(rows[0].answers) if rows else []
    lines = []
    for row in rows:
        line = [row.case.name, f"{row.case.requested_bytes:,}", f"{row.case.allocated_bytes:,}"]
        for name in names:
            answer = row.answers[name]
            requested = format_error(answer.requested_bytes, row.case.requested_bytes)
            allocated = format_error(answer.allocated_bytes, row.case.allocated_bytes)
            failed = answer.requested_bytes is None and answer.allocated_bytes is None
            line.append("fails" if failed else f"{requested} / {allocated}")
        lines.append(line)
    return ["case", "requested", "allocated", *names], lines


def failures(rows: Sequence[Row]) -> list[str]:
    """A sentence for each answer that the table calls `fails`."""
    return [
        f"{name} on {row.case.name}: {answer.error}"
        for row in rows
        for name, answer in row.answers.items()
        if answer.error
    ]


def accuracy_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Everything behind the table."""
    return [
        {
            "case": row.case.name,
            "device": row.case.device,
            "requested_bytes": row.case.requested_bytes,
            "allocated_bytes": row.case.allocated_bytes,
            "readers": {
                name: {
                    "requested_bytes": answer.requested_bytes,
                    "allocated_bytes": answer.allocated_bytes,
                    "error": answer.error,
                }
                for name, answer in row.answers.items()
            },
        }
        for row in rows
    ]
