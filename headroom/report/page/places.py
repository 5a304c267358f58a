"""The lines of the program that hold the peak, with what, when and for how long."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.model import Category, Ledger, LiveBlock, StackId, Tick
from headroom.report.page.names import Names
from headroom.units import format_bytes

# Where the largest line has less than this part of the peak, naming it would mislead.
_SPREAD: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One line of the program with all it holds at the peak. `category` is that of most of its bytes."""

    where: str
    function: str
    path: str
    stacks: tuple[StackId, ...]
    allocated_bytes: int
    blocks: int
    category: Category
    inferred: bool
    lifetime: str
    module: str
    when: str


def places(ledger: Ledger, names: Names) -> list[Place]:
    """Lines by descending bytes. Stacks without a line of the user's go by their innermost library frame."""
    members: dict[tuple[str, str, str], list[StackId]] = defaultdict(list)
    for use in ledger.stacks:
        name = names.place(use)
        members[name.where, name.text, name.path].append(use.id)
    blocks = blocks_by_stack(ledger)
    found = []
    for (where, text, path), ids in members.items():
        mine = [block for one in ids for block in blocks.get(one, ())]
        category, inferred = main_category(mine)
        found.append(
            Place(
                where=where,
                function=text.removeprefix(where).strip(),
                path=path,
                stacks=tuple(ids),
                allocated_bytes=sum(block.allocated_bytes for block in mine),
                blocks=len(mine),
                category=category,
                inferred=inferred,
                lifetime=most(mine, lambda block: block.lifetime),
                module=most(mine, lambda block: block.module),
                when=births(mine),
            )
        )
    return sorted(found, key=lambda place: (-place.allocated_bytes, place.where))


def blocks_by_stack(ledger: Ledger) -> dict[StackId, list[LiveBlock]]:
    """Blocks at the peak under the stack that allocated them; those without one are left out."""
    found: dict[StackId, list[LiveBlock]] = defaultdict(list)
    for block in ledger.blocks:
        if block.stack is not None:
            found[block.stack].append(block)
    return found


def main_category(blocks: Iterable[LiveBlock]) -> tuple[Category, bool]:
    """The category with the most bytes, and whether it was inferred for most of those."""
    sizes: Counter[Category] = Counter()
    inferred: Counter[Category] = Counter()
    for block in blocks:
        sizes[block.category] += block.allocated_bytes
        inferred[block.category] += block.allocated_bytes if block.inferred else 0
    if not sizes:
        return "other", True
    category = sizes.most_common(1)[0][0]
    return category, 2 * inferred[category] >= sizes[category]


def most(blocks: Iterable[LiveBlock], name_of: Callable[[LiveBlock], str]) -> str:
    """The name that holds the most bytes; empty where there is none."""
    sizes: Counter[str] = Counter()
    for block in blocks:
        sizes[name_of(block)] += block.allocated_bytes
    return sizes.most_common(1)[0][0] if sizes else ""


def births(blocks: Sequence[LiveBlock]) -> str:
    """When blocks were allocated: `update 3`, `updates 1 to 9`, `before the recording`."""
    ticks = [block.born for block in blocks if block.born is not None]
    told = []
    if any(tick.update or tick.call for tick in ticks):
        told.append(_range("update", {tick.update for tick in ticks}))
    if len(ticks) < len(blocks):
        told.append("before the recording")
    return " and ".join(told)


def tick_text(tick: Tick | None, missing: str) -> str:
    """`update 3, call 7`; `missing` where there is none."""
    return missing if tick is None else f"update {tick.update}, call {tick.call}"


def _range(noun: str, numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{noun} {low}" if low == high else f"{noun}s {low} to {high}"


def percent(part: int, whole: int) -> str:
    """`19 %`; `<1 %` for what is not nothing."""
    if not whole or not part:
        return "0 %"
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 0.95 else "<1 %"


def fills(ledger: Ledger, names: Names) -> str:
    """One sentence on what fills the peak."""
    whole = ledger.peak.allocated_bytes
    if not whole:
        return "Nothing is allocated in the recorded window."
    found = places(ledger, names)
    parts = [
        f"{one.where} holds {format_bytes(one.allocated_bytes)} ({percent(one.allocated_bytes, whole)})"
        for one in found[:2]
    ]
    if found and len(found) > _SPREAD and found[0].allocated_bytes * _SPREAD < whole:
        most_bytes = format_bytes(found[0].allocated_bytes)
        parts = [f"{len(found):,} lines share it, none with more than {most_bytes}"]
    ownerless = sum(ledger.unattributed.values())
    if ownerless and (not found or ownerless * 10 >= whole):
        parts.append(f"{format_bytes(ownerless)} ({percent(ownerless, whole)}) has no owner")
    return "; ".join(parts) + "."


def never_freed(device: DeviceAnalysis, names: Names) -> str:
    """A sentence where the largest line only ever adds: born in the history and never freed in it; empty otherwise.

    Parameters and the like are meant to stay, and before a failure everything is still there.
    """
    ledger = device.ledger
    if ledger.failure is not None:
        return ""
    for place in places(ledger, names)[:1]:
        mine = [block for block in ledger.blocks if block.stack in place.stacks]
        stays = all(block.born is not None and block.lives_until is None for block in mine)
        meant = place.category in ("parameter", "optimizer_state", "buffer", "gradient")
        if stays and not meant and len(mine) > 1:
            return f"None of the {len(mine):,} blocks of {place.where} is freed before the history ends."
    return ""
