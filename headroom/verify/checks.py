"""Comparisons of a candidate's run with the original's, from the records alone.

Where the original ran out of memory it got only so far; then what it did is a prefix of what the candidate did, and the
checks compare the prefix. What was not recorded is not compared: the check's `passed` is None.
"""

import math
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeVar

from headroom.records.run import RunRecord
from headroom.records.trial import Check
from headroom.verify.operations import check_operations

Number = TypeVar("Number", int, float)

LOSS_DIFFERENCE_CHANGED = 0.05
"""Losses further apart than this (relative) are another training. A choice, made wide on purpose.

Below it nothing is decided from losses at training precision, where right and wrong patches look alike: the result
stays `unproven`.
"""


def compare(original: RunRecord, candidate: RunRecord) -> tuple[Check, ...]:
    """All checks, in the order in which they are shown."""
    return (*compare_work(original, candidate), check_losses(original, candidate))


def compare_work(original: RunRecord, candidate: RunRecord) -> tuple[Check, ...]:
    """The checks that need no arithmetic: they hold on a virtual GPU as well, where there is one more."""
    operations = check_operations(original, candidate)
    return (
        check_parameters(original, candidate),
        check_updates(original, candidate),
        check_samples(original, candidate),
        check_gradients(original, candidate),
        check_evaluation(original, candidate),
        *((operations,) if operations is not None else ()),
    )


def describe(failed: Check) -> str:
    """A failed check in words."""
    return f"{failed.name}: {failed.value} instead of {failed.expected} {failed.where}".rstrip()


def is_whole(record: RunRecord) -> bool:
    """Whether the run did all of its work."""
    return record.outcome == "completed"


def check_parameters(original: RunRecord, candidate: RunRecord) -> Check:
    """The same parameters, by name, shape, dtype and requires-grad."""
    before, after = original.parameters, candidate.parameters
    if not before:
        return Check(name="parameters", passed=None, value="none seen in the original")
    missing = Counter(before) - Counter(after)
    added = Counter(after) - Counter(before)
    # An original that ran out of memory may not have come to all of its modules.
    same = not missing and (not added or not is_whole(original))
    first = next(iter(missing or added), None)
    return Check(
        name="parameters",
        passed=same,
        value=f"{len(after)} tensors, {_count(after)} elements",
        expected=f"{len(before)} tensors, {_count(before)} elements",
        where="" if same or first is None else f"{first.name} {list(first.shape)} {first.dtype}",
    )


def _count(parameters: Sequence[object]) -> int:
    return sum(math.prod(getattr(parameter, "shape", ())) for parameter in parameters)


def check_updates(original: RunRecord, candidate: RunRecord) -> Check:
    """The same number of updates; at least as many where the original ended early."""
    if is_whole(original):
        passed, expected = candidate.updates == original.updates, str(original.updates)
    else:
        passed, expected = candidate.updates >= original.updates, f"at least {original.updates}"
    return Check(name="updates", passed=passed, value=str(candidate.updates), expected=expected)


def check_samples(original: RunRecord, candidate: RunRecord) -> Check:
    """The same number of rows for each update that both made."""
    pairs = _pairs(original.samples_per_update, candidate.samples_per_update)
    if not pairs:
        return Check(name="samples", passed=None, value="no update to compare")
    different = [(index, before, after) for index, before, after in pairs if before != after]
    if not different:
        return Check(name="samples", passed=True, value=f"equal in {len(pairs)} updates")
    index, before, after = different[0]
    return Check(
        name="samples",
        passed=False,
        value=str(after),
        expected=str(before),
        where=f"update {index}",
    )


def check_gradients(original: RunRecord, candidate: RunRecord) -> Check:
    """Gradients come back to the same calls, and as many parameters have one at each update that both made.

    This is what a `detach` or `no_grad` in the wrong place breaks, whatever it does to the losses.
    """
    difference = _first_difference(original, candidate, "reached_rows")
    if difference is not None:
        rows, expected, where = difference
        value = f"a gradient came back to {rows} rows"
        return Check(name="gradients", passed=False, value=value, expected=expected, where=where)
    pairs = _pairs(original.gradients_per_update, candidate.gradients_per_update)
    for index, before, after in pairs:
        if before != after:
            return Check(
                name="gradients",
                passed=False,
                value=f"{after} parameters had one",
                expected=str(before),
                where=f"update {index}",
            )
    if not pairs:
        return Check(name="gradients", passed=None, value="no update to compare")
    return Check(name="gradients", passed=True, value=f"equal in {len(pairs)} updates")


def check_evaluation(original: RunRecord, candidate: RunRecord) -> Check:
    """The same rows through each module from each function, evaluation included."""
    if not original.call_sites:
        return Check(name="evaluation", passed=None, value="no module call seen")
    difference = _first_difference(original, candidate, "rows")
    if difference is not None:
        rows, expected, where = difference
        return Check(
            name="evaluation", passed=False, value=f"{rows} rows", expected=expected, where=where
        )
    total = sum(site.rows for site in candidate.call_sites)
    return Check(name="evaluation", passed=True, value=f"{total} rows through modules")


def _first_difference(
    original: RunRecord, candidate: RunRecord, count: Literal["rows", "reached_rows"]
) -> tuple[int, str, str] | None:
    """Where a count of rows, by calling function and module, differs: what it is, what it should be, and where.

    Where the original ended early it is a lower bound.
    """
    before, after = _rows(original, count), _rows(candidate, count)
    whole = is_whole(original)
    for key in {**before, **after} if whole else before:
        rows, got = before[key], after[key]
        if got < rows or (whole and got != rows):
            expected = f"{rows} rows" if whole else f"at least {rows} rows"
            return got, expected, f"{key[1]} called in {key[0]}, in {key[2]} mode"
    return None


def _rows(
    record: RunRecord, count: Literal["rows", "reached_rows"]
) -> Counter[tuple[str, str, str]]:
    rows: Counter[tuple[str, str, str]] = Counter()
    for site in record.call_sites:
        mode = "eval" if site.eval_calls else "training"
        rows[site.function, site.module, mode] += getattr(site, count)
    return rows


def _pairs(
    before: Sequence[Number | None], after: Sequence[Number | None]
) -> list[tuple[int, Number, Number]]:
    """The updates of which both runs have a figure: index from 1, and both figures."""
    both = enumerate(zip(before, after, strict=False), 1)
    return [
        (index, one, other) for index, (one, other) in both if one is not None and other is not None
    ]


def check_losses(original: RunRecord, candidate: RunRecord) -> Check:
    """Bitwise equal losses. `passed` is None when they differ by no more than can still be the same training."""
    pairs = _pairs(original.losses, candidate.losses)
    if not pairs:
        return Check(name="losses", passed=None, value="none computed in both runs")
    different = [pair for pair in pairs if not _same(pair[1], pair[2])]
    total = max(len(candidate.losses), len(original.losses))
    if not different:
        return _equal_losses(pairs, total)
    worst = max(_relative(before, after) for _, before, after in different)
    index, before, after = different[0]
    return Check(
        name="losses",
        passed=False if worst > LOSS_DIFFERENCE_CHANGED else None,
        value=f"{len(different)} of {len(pairs)} differ, by up to {worst:.1e} relative",
        expected="bitwise equal",
        where=f"update {index}: {after!r} instead of {before!r}",
    )


def _equal_losses(pairs: list[tuple[int, float, float]], total: int) -> Check:
    """Equal as far as they go. Once a loss is not finite, right and wrong patches look alike: it shows nothing."""
    finite = [index for index, before, _ in pairs if math.isfinite(before)]
    value = f"{len(pairs)} of {total} compared, all bitwise equal"
    if len(finite) < len(pairs):
        return Check(
            name="losses",
            passed=None,
            value=f"{value}, but {len(pairs) - len(finite)} are not finite",
            expected="finite losses",
        )
    if len(pairs) < total:
        return Check(
            name="losses", passed=None, value=value, expected="the original got no further"
        )
    return Check(name="losses", passed=True, value=value)


def _same(before: float, after: float) -> bool:
    if math.isnan(before) or math.isnan(after):
        return math.isnan(before) and math.isnan(after)
    return before == after and math.copysign(1, before) == math.copysign(1, after)


def _relative(before: float, after: float) -> float:
    if not (math.isfinite(before) and math.isfinite(after)):
        return math.inf
    return abs(before - after) / max(abs(before), abs(after), sys.float_info.min)
