"""Blocks of one stack that pile up over updates or calls.

What survives from three or more different updates at the peak is kept by something: the current update explains one, a
last loss or output that is still referenced explains a second. Warm-up (parameters, optimizer state, workspaces) is
born at one tick, and the activations of a loop over layers too, so neither counts.

A leak still grows; warm-up comes to rest (caches that fill, buffers that are made when they are first needed). It is a
leak where something survives from the last third of the ticks since the first survivor. The newest two ticks show
nothing: what they hold is explained by the present update and by what is kept from the last.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from statistics import median_low
from typing import Final

from headroom.evidence.account.account import Account
from headroom.evidence.explain.course import Course
from headroom.evidence.model import Growth, GrowthId, LiveBlock, StackId, Tick, TickKind
from headroom.evidence.reading.history import Action

MIN_TICKS: Final = 3

# Updates come first: what piles up over updates does so over calls too, and updates are what a reader counts.
_KINDS: Final[tuple[tuple[TickKind, Callable[[Tick], int]], ...]] = (
    ("update", lambda tick: tick.update),
    ("call", lambda tick: tick.call),
)


def find_growth(blocks: Iterable[LiveBlock]) -> tuple[Growth, ...]:
    """Find what piles up among the blocks that are live at the peak.

    Args:
        blocks: Live blocks; those without a stack or without a birth in the history are passed over.

    Returns:
        Growth by descending bytes, with IDs G01, G02, ... `bytes_per_tick` is the median over the ticks.
    """
    births: list[tuple[StackId | None, Tick, int]] = [
        (block.stack, block.born, block.allocated_bytes)
        for block in blocks
        if block.born is not None
    ]
    return _find(births)


def inferred_growth(
    account: Account, course: Course, stack_ids: Mapping[int, StackId]
) -> tuple[Growth, ...]:
    """What piles up over updates that no label tells, but an optimizer's stacks; empty where labels tell them.

    Args:
        account: The device.
        course: Its course.
        stack_ids: IDs of the ledger's stacks by number of stack.
    """
    if course.unit_kind != "inferred update":
        return ()
    lives, peak = account.replay.lives, account.replay.peak_entry
    rows = [row for row in account.replay.rows_allocated(peak) if lives.born[row] >= 0]
    births = (
        (
            stack_ids.get(account.owners.stacks[row]),
            Tick(update=course.unit_of[lives.born[row]], call=0),
            lives.allocated_bytes[row],
        )
        for row in rows
    )
    return _find(births)


def _find(births: Iterable[tuple[StackId | None, Tick, int]]) -> tuple[Growth, ...]:
    by_stack: dict[StackId, list[tuple[Tick, int]]] = defaultdict(list)
    newest = {kind: 0 for kind, _ in _KINDS}
    for stack, born, size_bytes in births:
        for kind, count_of in _KINDS:
            newest[kind] = max(newest[kind], count_of(born))
        if stack is not None:
            by_stack[stack].append((born, size_bytes))
    found = [
        (stack, kind, per_tick)
        for stack, parts in by_stack.items()
        for kind, per_tick in _piles_up(parts)
    ]
    found.sort(key=lambda item: (-sum(item[2].values()), item[0]))
    return tuple(
        Growth(
            id=GrowthId(f"G{number:02d}"),
            stack=stack,
            kind=kind,
            ticks=len(per_tick),
            bytes_per_tick=median_low(per_tick.values()),
            allocated_bytes=sum(per_tick.values()),
            leak=_still_grows(per_tick, newest[kind]),
        )
        for number, (stack, kind, per_tick) in enumerate(found, start=1)
    )


def judge_growth(
    growth: Iterable[Growth], account: Account, stack_ids: Mapping[int, StackId]
) -> tuple[Growth, ...]:
    """Judge growth by the whole history, since the peak may be long before its end.

    Updates that are alike peak alike, and the first of them is the peak. What piled up until then either goes on piling
    up until the failure, or the end of the history, or came to rest. What is freed by then was a leak only if it was
    freed as the program ended; where ticks went by after it was freed, it rises and falls (the micro-batches of an
    update, the predictions of an evaluation).

    Args:
        growth: What piles up at the peak.
        account: The device.
        stack_ids: IDs of the ledger's stacks by number of stack.
    """
    found = tuple(growth)
    if not found:
        return found
    lives, ticks, history = account.replay.lives, account.ticks, account.replay.history
    failure = history.last(Action.OOM)
    moment = failure if failure >= 0 else len(history) - 1
    wanted = {one.stack for one in found}
    numbers = {number: stack for number, stack in stack_ids.items() if stack in wanted}
    born: dict[StackId, set[Tick]] = defaultdict(set)
    peak = account.replay.peak_entry
    let_go: dict[StackId, int] = {}
    for number, birth, freed in zip(account.owners.stacks, lives.born, lives.freed, strict=True):
        if number not in numbers or birth < 0:
            continue
        stack = numbers[number]
        if birth <= moment < freed:
            born[stack].add(ticks.at(birth))
        elif birth <= peak < freed:
            let_go[stack] = max(let_go.get(stack, 0), freed)
    counts = dict(_KINDS)
    judged: list[Growth] = []
    for one in found:
        count_of = counts[one.kind]
        survivors = {count_of(tick) for tick in born[one.stack]}
        enough = len(survivors) >= MIN_TICKS
        newest = count_of(ticks.at(moment))
        if enough:
            leak = _still_grows(survivors, newest)
        else:
            freed_at = count_of(ticks.at(let_go.get(one.stack, moment)))
            leak = one.leak and newest - freed_at < MIN_TICKS
        judged.append(replace(one, leak=leak))
    return tuple(judged)


def _still_grows(ticks: Iterable[int], newest: int) -> bool:
    """Whether a survivor is from the last third of the ticks, the newest two left aside."""
    last = newest - 2
    shown = [tick for tick in ticks if tick <= last]
    # With so few ticks that none is left, nothing shows that it came to rest.
    return not shown or 3 * (last - max(shown)) <= last - min(shown)


def _piles_up(births: list[tuple[Tick, int]]) -> list[tuple[TickKind, dict[int, int]]]:
    """The first kind of tick of which enough different ones are present, with bytes per tick; empty if none."""
    for kind, count_of in _KINDS:
        per_tick: dict[int, int] = defaultdict(int)
        for tick, size_bytes in births:
            per_tick[count_of(tick)] += size_bytes
        if len(per_tick) >= MIN_TICKS:
            return [(kind, per_tick)]
    return []
