"""Recomputes what somebody says about a peak: each claim is accepted, corrected or refused. Pure.

Two numbers are the same if a reader could have read the one off a pack where the other stands:

- bytes: within half of the last place that the pack prints, which has two decimals of the largest binary unit; a size
  in words with fewer decimals (`3.2 GiB`) within half of its own last place, but no more than 0.05 of its unit and
  5 % of the size;
- shares: within 0.05 points, as the pack prints one decimal;
- lifetime and category: that of most of the bytes; a line: one that stacks with more than half of the bytes pass.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.claims.subjects import (
    Account,
    Holding,
    Refusal,
    is_file,
    readings,
    same_word,
    shown,
)
from headroom.evidence.model import Ledger, LiveBlock, Tick
from headroom.records.claims import Checked, Claim, Metric, Size, Subject
from headroom.records.diagnosis import Cause
from headroom.units import GIB, KIB, MIB, parse_bytes

_SHARE_POINTS: Final = 0.05
_MOST_OF_A_UNIT: Final = 0.05
_MOST_OF_A_SIZE: Final = 0.05
_DECIMALS: Final = re.compile(r"\s*\d+(?:\.(\d+))?\s*([A-Za-z]*)\s*")
_PLACE: Final = re.compile(r"(.+):(\d+)")

_METRICS: Final[dict[str, Metric]] = {"fragmentation": "unusable", "outside_torch": "non_torch"}


def check_claims(claims: Iterable[Claim], subject: Ledger | DeviceAnalysis) -> tuple[Checked, ...]:
    """Check claims one by one; see `check_claim`."""
    return tuple(check_claim(claim, subject) for claim in claims)


def check_claim(claim: Claim, subject: Ledger | DeviceAnalysis) -> Checked:
    """Recompute a claim from the account of a device.

    A claim that states nothing is accepted if its subject holds memory at the peak.
    """
    if isinstance(subject, DeviceAnalysis):
        known = (*subject.ledger.growth, *subject.settled_growth)
        account = Account(ledger=subject.ledger, growth=known, fragmentation=subject.fragmentation)
    else:
        account = Account(ledger=subject, growth=subject.growth, fragmentation=None)
    try:
        meant = readings(claim.subject, account)
        compared = [_compared(claim, one, account) for one in meant]
    except Refusal as refusal:
        return Checked(status="refused", claim=claim, reason=refusal.reason)
    wrong, right = min(compared, key=lambda result: len(result[0]))
    if wrong:
        reason = f"not as the ledger has it: {', '.join(wrong)}"
        return Checked(status="corrected", claim=claim, right=right, wrong=wrong, reason=reason)
    return Checked(status="accepted", claim=claim)


def claims_of(cause: Cause) -> tuple[Claim, ...]:
    """What a cause of the playbook says about the ledger, as claims.

    Its bytes are all that its stacks hold, or, where values pile up, what earlier updates or calls left in them.
    The line of a cause is on its stacks where an evaluation runs and where a line makes what grows; where values are
    kept it is the line that keeps them.
    """
    metric = _METRICS.get(cause.kind)
    if metric is not None:
        return (Claim(subject=Subject(metric=metric), size_bytes=cause.peak_bytes),)
    stacks = Subject(stack_ids=cause.stack_ids)
    if cause.kind in ("retained_graph", "collected_tensors"):
        return (Claim(subject=stacks, earlier_bytes=cause.peak_bytes),)
    if cause.kind == "growth":
        claims = [Claim(subject=stacks, earlier_bytes=cause.peak_bytes, growing=True)]
    else:
        claims = [Claim(subject=stacks, size_bytes=cause.peak_bytes)]
    at_line = cause.kind in ("evaluation_with_graph", "growth")
    if at_line and cause.file is not None and cause.line is not None:
        at = Subject(stack_ids=cause.stack_ids, file=cause.file, line=cause.line)
        claims.append(Claim(subject=at))
    return tuple(claims)


def _compared(claim: Claim, held: Holding, account: Account) -> tuple[tuple[str, ...], Claim]:
    """Names of the fields that are wrong, and the claim with the ledger's values."""
    truths: dict[str, object] = {}
    wrong: list[str] = []

    def compare(name: str, truth: object, same: bool) -> None:
        truths[name] = truth
        if not same:
            wrong.append(name)

    sizes: tuple[tuple[str, Size | None, Callable[[], int]], ...] = (
        ("size_bytes", claim.size_bytes, lambda: held.size_bytes),
        ("earlier_bytes", claim.earlier_bytes, lambda: _earlier(held, account.ledger.peak.tick)),
        (
            "bytes_per_tick",
            claim.bytes_per_tick,
            lambda: sum(one.bytes_per_tick for one in held.growth),
        ),
    )
    for name, said, truth_of in sizes:
        if said is not None:
            truth = truth_of()
            compare(name, truth, same_size(said, truth))
    if claim.share_percent is not None:
        peak_bytes = account.ledger.peak.allocated_bytes
        percent = 100 * held.size_bytes / peak_bytes if peak_bytes else 0.0
        same = abs(claim.share_percent - percent) <= _SHARE_POINTS + 1e-9
        compare("share_percent", round(percent, 2), same)
    if claim.growing is not None:
        growing = any(growth.leak for growth in held.growth)
        compare("growing", growing, claim.growing == growing)
    for name, word, word_of in (
        ("lifetime", claim.lifetime, lambda block: block.lifetime),
        ("category", claim.category, lambda block: block.category),
    ):
        if word is not None:
            main = _of_most(held.blocks, word_of)
            compare(name, main, same_word(main, word))
    if claim.line is not None:
        compare("line", _site(held), _passes(claim.line, held))
    return tuple(wrong), claim.model_copy(update=truths)


def _earlier(held: Holding, now: Tick) -> int:
    """Bytes that piled up, or that were left by an earlier update or call in stacks that do not grow."""
    growing = {growth.stack for growth in held.growth}
    left = sum(
        block.allocated_bytes
        for block in held.blocks
        if block.stack not in growing and _is_older(block, now)
    )
    return left + sum(growth.allocated_bytes for growth in held.growth)


def _is_older(block: LiveBlock, now: Tick) -> bool:
    # What is older than the first call is the model itself.
    born = block.born
    return born is not None and born.call >= 1 and (born.update, born.call) < (now.update, now.call)


def same_size(said: Size, exact_bytes: int) -> bool:
    """Whether a size could have been read off where the exact one stands; see the rules of this module.

    Raises:
        Refusal: It is no size.
    """
    printed = next((unit for unit in (GIB, MIB, KIB) if exact_bytes >= unit), 0)
    tolerance = 0.005 * printed
    if isinstance(said, int):
        return abs(said - exact_bytes) <= tolerance
    match = _DECIMALS.fullmatch(said)
    try:
        said_bytes = parse_bytes(said)
        unit = parse_bytes(f"1{match[2]}") if match else 1
    except ValueError as error:
        raise Refusal(f"{shown(said)} is no size such as 3.17 GiB") from error
    decimals = len(match[1] or "") if match else 0
    own = min(0.5 * 10**-decimals, _MOST_OF_A_UNIT) * unit if unit > 1 else 0
    own = min(own, _MOST_OF_A_SIZE * exact_bytes)
    # One byte for what parse_bytes cuts off.
    return abs(said_bytes - exact_bytes) <= max(tolerance, own) + (1 if printed else 0)


def _of_most(blocks: Iterable[LiveBlock], word_of: Callable[[LiveBlock], str]) -> str:
    sizes: dict[str, int] = {}
    for block in blocks:
        sizes[word_of(block)] = sizes.get(word_of(block), 0) + block.allocated_bytes
    return max(sorted(sizes), key=lambda word: sizes[word], default="unknown")


def _passes(line: str, held: Holding) -> bool:
    match = _PLACE.fullmatch(line.strip())
    if match is None:
        raise Refusal(f"{shown(line)} is no line such as train.py:41")
    file, number = match[1], int(match[2])
    through = sum(
        use.allocated_bytes
        for use in held.stacks
        if any(
            is_file(frame, file) and frame.line == number for frame in use.user_frames or use.frames
        )
    )
    return 2 * through > sum(use.allocated_bytes for use in held.stacks)


def _site(held: Holding) -> str | None:
    """The user line that most of the bytes were allocated at; None where no stack has one."""
    sizes: dict[str, int] = {}
    for use in held.stacks:
        if use.site is not None:
            place = f"{use.site.filename}:{use.site.line}"
            sizes[place] = sizes.get(place, 0) + use.allocated_bytes
    return max(sorted(sizes), key=lambda place: sizes[place], default=None)
