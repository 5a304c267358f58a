"""Hot allocation paths: what a program allocates over and over, whatever of it is live at the peak."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from headroom.evidence.account.account import Account
from headroom.evidence.analysis_model import Churn, HotPath
from headroom.evidence.model import StackId, TickKind
from headroom.evidence.reading.history import NO_STACK, Action
from headroom.evidence.reading.stacks import display_frames, user_frames

MAX_PATHS: Final = 20

_ALLOC: Final = int(Action.ALLOC)
_APPEARS: Final = bytes((Action.SEGMENT_ALLOC, Action.SEGMENT_MAP))
_VANISHES: Final = bytes((Action.SEGMENT_FREE, Action.SEGMENT_UNMAP))
# `release_cached_blocks` of torch's allocator, before it asks the device again or gives up. An `empty_cache` right
# before a segment is mapped looks the same.
_FLUSH_ENDS: Final = re.compile(
    b"[" + re.escape(_VANISHES) + b"](?=[" + re.escape(_APPEARS + bytes((Action.OOM,))) + b"])"
)


def churn_of(account: Account, stack_ids: dict[int, StackId], *, paths: int = MAX_PATHS) -> Churn:
    """Count the allocations of a history by stack.

    Args:
        account: The device.
        stack_ids: IDs of the ledger's stacks by number of stack.
        paths: How many of the hottest to tell, by requested bytes. What has no stack is counted in the totals alone.
    """
    history = account.replay.history
    counts: Counter[int] = Counter()
    sizes: dict[int, int] = {}
    stacks, asked = history.stacks, history.sizes_bytes
    for entry, action in enumerate(history.actions):
        if action == _ALLOC:
            stack = stacks[entry]
            sizes[stack] = sizes.get(stack, 0) + asked[entry]
            counts[stack] += 1
    hottest = sorted(
        (stack for stack in sizes if stack != NO_STACK), key=lambda one: (-sizes[one], one)
    )[:paths]
    longest = _longest_us(account, hottest)
    kind, ticks = _ticks(account)
    return Churn(
        allocations=sum(counts.values()),
        requested_bytes=sum(sizes.values()),
        paths=tuple(
            _path(
                account,
                number,
                stack,
                stack_ids.get(stack),
                (counts[stack], sizes[stack], longest[stack]),
                (kind, ticks),
            )
            for number, stack in enumerate(hottest, start=1)
        ),
        segment_allocations=_count(history.actions, _APPEARS),
        segment_frees=_count(history.actions, _VANISHES),
        cache_flushes=len(_FLUSH_ENDS.findall(history.actions)),
    )


def _path(
    account: Account,
    number: int,
    stack: int,
    stack_id: StackId | None,
    used: tuple[int, int, int],
    ticks: tuple[TickKind | None, int],
) -> HotPath:
    frames = account.replay.stacks.frames(stack)
    own = user_frames(frames, account.roots)
    allocations, requested_bytes, longest_us = used
    kind, count = ticks
    return HotPath(
        id=f"H{number:02d}",
        stack=stack_id,
        site=own[0] if own else None,
        frames=display_frames(frames),
        allocations=allocations,
        requested_bytes=requested_bytes,
        longest_us=longest_us,
        per_tick=allocations / count if kind is not None else None,
        bytes_per_tick=requested_bytes / count if kind is not None else None,
        kind=kind,
    )


def _longest_us(account: Account, stacks: Iterable[int]) -> dict[int, int]:
    """The longest life that each of some stacks gave, up to the end of the history."""
    longest = dict.fromkeys(stacks, 0)
    lives, times = account.replay.lives, account.replay.history.times_us
    end = len(times)
    for stack, born, freed in zip(account.owners.stacks, lives.born, lives.freed, strict=True):
        known = longest.get(stack)
        if known is not None and born >= 0:
            lasted = times[freed if freed < end else -1] - times[born]
            if lasted > known:
                longest[stack] = lasted
    return longest


def _ticks(account: Account) -> tuple[TickKind | None, int]:
    """What to count by, and in how many of them the history has allocations."""
    ticks, actions = account.ticks, account.replay.history.actions
    if not ticks.known:
        return None, 0
    stretches = zip(ticks.ticks, pairwise([*ticks.starts, len(actions)]), strict=True)
    busy = [tick for tick, part in stretches if actions.find(_ALLOC, *part) >= 0]
    if len({tick.update for tick in ticks.ticks}) > 1:
        return "update", max(len({tick.update for tick in busy}), 1)
    return "call", max(len({tick.call for tick in busy}), 1)


def _count(actions: bytes, wanted: bytes) -> int:
    return sum(actions.count(action) for action in wanted)
