"""What a claim is about: the memory that its subject means, or why it means none. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headroom.evidence.analysis_model import Fragmentation
from headroom.evidence.model import Frame, Growth, Ledger, LiveBlock, StackId, StackUse
from headroom.evidence.pack.groups import layers_merged
from headroom.evidence.text import clean_text
from headroom.records.claims import Subject

_QUOTED: Final = 60


@dataclass(frozen=True, slots=True)
class Refusal(Exception):
    """There is nothing that a claim could be compared with; `reason` says why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What is known of a device: the ledger, and growth that came to rest."""

    ledger: Ledger
    growth: tuple[Growth, ...]
    fragmentation: Fragmentation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The memory that a subject means."""

    size_bytes: int
    blocks: tuple[LiveBlock, ...]
    stacks: tuple[StackUse, ...]
    growth: tuple[Growth, ...]


def readings(subject: Subject, account: Account) -> list[Holding]:
    """What the subject may mean; the first is what it means where no reading agrees with the claim."""
    if subject.metric is not None:
        return [_figure(subject, account)]
    if subject.growth_ids:
        return [_growing(subject, account)]
    uses = _stacks(subject.stack_ids, account.ledger)
    chosen = (subject.category, subject.module, subject.holder, subject.file)
    if all(one is None for one in chosen):
        if subject.line is not None:
            raise Refusal("a line needs the file that it is in")
        if not subject.stack_ids:
            raise Refusal("the claim names nothing that could be looked up")
        return [_holding(uses, account)]
    blocks = _narrowed(subject, uses if subject.stack_ids else None, account.ledger)
    if subject.file is None:
        return [_of_blocks(blocks, account)]
    inside = _through(subject.file, subject.line, account.ledger)
    found = [
        _of_blocks([block for block in blocks if block.stack in ids], account) for ids in inside
    ]
    found = [holding for holding in found if holding.blocks]
    if not found:
        place = subject.file if subject.line is None else f"{subject.file}:{subject.line}"
        raise Refusal(f"nothing that the claim names was allocated at {shown(place)}")
    return found


def _growing(subject: Subject, account: Account) -> Holding:
    if subject != Subject(growth_ids=subject.growth_ids):
        raise Refusal(
            "growth IDs stand alone: they already mean the blocks of one stack that pile up"
        )
    by_id = {str(growth.id): growth for growth in account.growth}
    growth = tuple(by_id[name] for name in _known(subject.growth_ids, by_id))
    uses = tuple(account.ledger.stack(one.stack) for one in growth)
    members = {use.id for use in uses}
    return Holding(
        size_bytes=sum(one.allocated_bytes for one in growth),
        blocks=tuple(block for block in account.ledger.blocks if block.stack in members),
        stacks=uses,
        growth=growth,
    )


def _figure(subject: Subject, account: Account) -> Holding:
    if subject != Subject(metric=subject.metric):
        raise Refusal("a metric stands alone: it is of the device as a whole")
    ledger, sheet, free = account.ledger, account.ledger.balance, account.fragmentation
    figures: dict[str | None, int | None] = {
        "peak": ledger.peak.allocated_bytes,
        "demand": ledger.demand_bytes,
        "reserved": sheet.reserved_bytes if sheet else None,
        "non_torch": sheet.non_torch_bytes if sheet else None,
        "free_in_segments": free.free_bytes if free else None,
        "unusable": free.unusable_bytes if free and free.request_bytes is not None else None,
    }
    size_bytes = figures[subject.metric]
    if size_bytes is None:
        raise Refusal(f"the snapshot does not tell the metric {subject.metric}")
    return Holding(size_bytes=size_bytes, blocks=(), stacks=(), growth=())


def _known(names: Sequence[str], by_id: Iterable[str]) -> list[str]:
    """The names, each once.

    Raises:
        Refusal: One of them is no ID.
    """
    missing = [name for name in names if name not in by_id]
    if missing:
        raise Refusal(f"no such ID: {', '.join(shown(name) for name in missing)}")
    return list(dict.fromkeys(names))


def _stacks(names: Sequence[str], ledger: Ledger) -> tuple[StackUse, ...]:
    by_id = {str(use.id): use for use in ledger.stacks}
    return tuple(by_id[name] for name in _known(names, by_id))


def _narrowed(
    subject: Subject, uses: Sequence[StackUse] | None, ledger: Ledger
) -> tuple[LiveBlock, ...]:
    """The blocks that every given field of the subject leaves, but for the file and line.

    Raises:
        Refusal: Nothing is left.
    """
    members = None if uses is None else {use.id for use in uses}
    left = tuple(block for block in ledger.blocks if members is None or block.stack in members)
    tests: tuple[tuple[str, str | None, Callable[[LiveBlock, str], bool]], ...] = (
        ("category", subject.category, lambda block, name: same_word(block.category, name)),
        ("module", subject.module, lambda block, name: _within(block.module, name)),
        ("holder", subject.holder, lambda block, name: _held(block, name)),
    )
    for what, name, test in tests:
        if name is not None:
            left = tuple(block for block in left if test(block, name))
            if not left:
                raise Refusal(f"nothing at the peak has the {what} {shown(name)}")
    return left


def same_word(one: str, other: str) -> bool:
    """Whether two words are the same but for case and `_`."""
    return one.replace("_", " ").lower() == other.replace("_", " ").strip().lower()


def _within(module: str, name: str) -> bool:
    """Whether a module is the named one or inside it; `*` stands for the number of any layer."""
    return any(
        path == name or path.startswith(f"{name}.")
        for path in (module, layers_merged(module))
        if path
    )


def _held(block: LiveBlock, name: str) -> bool:
    return block.holder is not None and name in (
        block.holder.name,
        layers_merged(block.holder.name),
    )


def _through(file: str, line: int | None, ledger: Ledger) -> tuple[set[StackId], set[StackId]]:
    """Stacks whose innermost user line it is, and all that pass through it.

    Raises:
        Refusal: No stack, or stacks of several files, are meant.
    """
    passing: set[StackId] = set()
    innermost: set[StackId] = set()
    files: set[str] = set()
    for use in ledger.stacks:
        for frame in use.user_frames or use.frames:
            if is_file(frame, file) and line in (None, frame.line):
                files.add(frame.filename)
                passing.add(use.id)
                if frame == use.site:
                    innermost.add(use.id)
    if len(files) > 1:
        raise Refusal(f"{shown(file)} may be any of {len(files)} files; give more of the path")
    if not passing:
        place = file if line is None else f"{file}:{line}"
        raise Refusal(f"no stack at the peak passes through {shown(place)}")
    return innermost, passing


def is_file(frame: Frame, file: str) -> bool:
    """Whether a frame is in a file, which is named by its path or the end of it."""
    path, wanted = frame.filename.replace("\\", "/"), file.replace("\\", "/").removeprefix("./")
    return path == wanted or (bool(wanted) and path.endswith(f"/{wanted}"))


def _holding(uses: Sequence[StackUse], account: Account) -> Holding:
    members = {use.id for use in uses}
    return Holding(
        size_bytes=sum(use.allocated_bytes for use in uses),
        blocks=tuple(block for block in account.ledger.blocks if block.stack in members),
        stacks=tuple(uses),
        growth=tuple(growth for growth in account.growth if growth.stack in members),
    )


def _of_blocks(blocks: Sequence[LiveBlock], account: Account) -> Holding:
    members = {block.stack for block in blocks}
    return Holding(
        size_bytes=sum(block.allocated_bytes for block in blocks),
        blocks=tuple(blocks),
        stacks=tuple(use for use in account.ledger.stacks if use.id in members),
        growth=tuple(growth for growth in account.growth if growth.stack in members),
    )


def shown(text: str) -> str:
    """What somebody wrote, as it may be repeated in a sentence."""
    return repr(clean_text(text, _QUOTED))
