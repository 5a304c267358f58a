"""The pieces that tell stacks: a line of the index and a paragraph of detail for each group of near-identical ones."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from headroom.evidence.model import Frame, Holder, LiveBlock, StackUse
from headroom.evidence.pack.facts import fraction, share, sized
from headroom.evidence.pack.groups import (
    StackGroup,
    births,
    frame_label,
    label,
    layers_merged,
)
from headroom.evidence.pack.items import Cut, Item
from headroom.evidence.pack.windows import Windows
from headroom.evidence.reading.stacks import display_frames
from headroom.evidence.text import quoted
from headroom.units import format_bytes

_SHOWN_MEMBERS: Final = 8
_CHUNK: Final = 16
# Of a longer chain of calls the innermost frames name the owner.
_USER_FRAMES: Final = 8
_KINDS: Final = 3
_NAME_LIMIT: Final = 120
_CODE_LIMIT: Final = 160
# Detail is worth less than to be told of a stack at all, and all frames of a stack less than that.
_WORTH_DETAIL: Final = 0.5
# Even where the largest stacks hold little of the peak each, a reader has to see them.
_WORTH_LARGEST: Final = 0.15
_WORTH_FRAMES: Final = 0.25
_WORTH_ALL_FRAMES: Final = 0.02


class FrameTable:
    """Numbers frames in the order of their first use; the numbers do not depend on what is shown.

    Frames that read alike, such as overloads of a function of C++, have one number.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, frame: Frame) -> int:
        """The number of a frame, from 1."""
        return self._numbers.setdefault(frame_label(frame, full=True), len(self._numbers) + 1)

    def numbers(self, frames: Iterable[Frame]) -> tuple[int, ...]:
        """The numbers of frames in their order; what follows an equal one is left out."""
        return tuple(number for number, _ in groupby(self.number(frame) for frame in frames))

    def lines(self) -> tuple[str, ...]:
        """The line of each frame, in order of the numbers."""
        return tuple(f"- f{number} {told}" for told, number in self._numbers.items())


def stack_items(
    groups: Sequence[StackGroup],
    table: FrameTable,
    windows: Windows,
    *,
    peak_bytes: int,
    ticks_known: bool,
) -> Iterator[Item]:
    """All pieces about the groups, which come by descending bytes."""
    larger = ""
    for place, group in enumerate(groups):
        yield _index_item(place, group, peak_bytes, larger)
        larger = group.id
        yield _detail_item(place, group, windows, peak_bytes, ticks_known=ticks_known)
        yield from _frames_items(place, group, table, windows, peak_bytes)
        yield from _member_items(place, group, peak_bytes)


def _index_item(place: int, group: StackGroup, peak_bytes: int, larger: str) -> Item:
    """The line of a group; it is told after the next larger one only, however many tokens that takes."""
    named = group.uses[:_SHOWN_MEMBERS]
    size_bytes = sum(use.allocated_bytes for use in named)
    names = " ".join(use.id for use in named)
    more = len(group.uses) - len(named)
    total = f"{format_bytes(group.allocated_bytes)} {share(group.allocated_bytes, peak_bytes)}"
    main = _shares(group.blocks, lambda block: block.category)[0][0] if group.blocks else "other"
    category = f" {main}" if main != "other" else ""
    return Item(
        key=group.id,
        section="stacks",
        place=(place, 0),
        value=max(fraction(size_bytes, peak_bytes), _WORTH_LARGEST / (1 + place)),
        cut=Cut(noun="stack|s", count=len(named), size_bytes=size_bytes),
        index=f"{names}{f' and {more} more' if more else ''} {total}{category} {label(group.uses[0])}",
        ids=tuple(use.id for use in named),
        needs=larger,
    )


def _member_items(place: int, group: StackGroup, peak_bytes: int) -> Iterator[Item]:
    """The smaller members of a large group, some at a time."""
    for start in range(_SHOWN_MEMBERS, len(group.uses), _CHUNK):
        uses = group.uses[start : start + _CHUNK]
        size_bytes = sum(use.allocated_bytes for use in uses)
        yield Item(
            key=uses[0].id,
            section="stacks",
            place=(place, 3 + start),
            value=fraction(size_bytes, peak_bytes),
            cut=Cut(noun="stack|s", count=len(uses), size_bytes=size_bytes),
            lines=(f"- as {group.id}, bytes each: {_each(uses)}",),
            ids=tuple(use.id for use in uses),
            needs=group.id,
        )


def _each(uses: Iterable[StackUse]) -> str:
    return ", ".join(f"{use.id} {use.allocated_bytes}" for use in uses)


def _detail_item(
    place: int,
    group: StackGroup,
    windows: Windows,
    peak_bytes: int,
    *,
    ticks_known: bool,
) -> Item:
    named = group.uses[:_SHOWN_MEMBERS]
    blocks = sum(use.blocks for use in group.uses)
    total = f"{sized(group.allocated_bytes)}, {share(group.allocated_bytes, peak_bytes)}"
    lines = [
        "",
        f"### {', '.join(use.id for use in named)}: {total}, {_count(blocks, 'block')}",
    ]
    if len(group.uses) > 1:
        lines.append(f"- {len(group.uses)} stacks, {_differing(group)}; bytes each: {_each(named)}")
    code = windows.code(group.uses[0].site)
    shown = f": {quoted(code.strip(), _CODE_LIMIT)}" if code else ""
    when = births(group.blocks, ticks_known=ticks_known)
    lines.append(f"- allocated at {label(group.uses[0])}{shown}, {when}")
    lines += [f"- {told}" for told in _described(group.blocks)]
    return Item(
        key=f"{group.id} detail",
        section="stacks",
        place=(place, 1),
        value=_WORTH_DETAIL * fraction(group.allocated_bytes, peak_bytes),
        cut=Cut(noun="detail|s of stacks", size_bytes=group.allocated_bytes),
        lines=tuple(lines),
        needs=group.id,
    )


def _frames_items(
    place: int, group: StackGroup, table: FrameTable, windows: Windows, peak_bytes: int
) -> Iterator[Item]:
    """The frames that a reader needs, and all of the largest stack, library included, where these are more."""
    numbers, left_out = _frame_numbers(group, table)
    shown = " ".join(f"f{number}" for number in numbers) or "none"
    yield Item(
        key=f"{group.id} frames",
        section="stacks",
        place=(place, 2),
        value=_WORTH_FRAMES * fraction(group.allocated_bytes, peak_bytes),
        cut=Cut(noun="list|s of frames"),
        lines=(f"- frames: {shown}{f' and {left_out} outer' if left_out > 0 else ''}",),
        needs=f"{group.id} detail",
        refs=windows.showing(group.user_frames),
        refs_label="source",
        frames=numbers,
    )
    frames = display_frames(group.uses[0].frames)
    if len(dict.fromkeys(frames)) <= len(numbers):
        return
    every = table.numbers(frames)
    told = " ".join(f"f{number}" for number in every)
    yield Item(
        key=f"{group.id} all frames",
        section="stacks",
        place=(place, 3),
        value=_WORTH_ALL_FRAMES * fraction(group.uses[0].allocated_bytes, peak_bytes),
        cut=Cut(noun="list|s of all frames"),
        lines=(f"- all frames of {group.id}: {told}",),
        needs=f"{group.id} frames",
        frames=tuple(dict.fromkeys(every)),
    )


def _frame_numbers(group: StackGroup, table: FrameTable) -> tuple[tuple[int, ...], int]:
    """Innermost first: the operation, then the user's lines; and how many of these are left out."""
    innermost = display_frames(group.uses[0].frames)[:1]
    own = display_frames(group.user_frames)
    chosen = dict.fromkeys([*innermost, *own[:_USER_FRAMES]])
    return table.numbers(chosen), len(own) - _USER_FRAMES


def _differing(group: StackGroup) -> str:
    if len({use.user_frames for use in group.uses}) == 1 and group.user_frames:
        return "which differ in library frames only"
    return "which differ in repeated frames, numbers of generated code or library frames only"


def _described(blocks: Sequence[LiveBlock]) -> Iterator[str]:
    """What is known of the blocks: kinds, modules, names of tensors, and who holds them."""
    if not blocks:
        return
    categories = _shares(blocks, lambda block: block.category)
    phases = _shares([block for block in blocks if block.phase], lambda block: str(block.phase))
    if categories[0][0] != "other" or len(categories) > 1:
        told = f"category: {_told(categories)}{_inferred(blocks)}; "
        told += f"lifetime: {_told(_shares(blocks, lambda block: block.lifetime))}"
        yield told + (f"; phase: {_told(phases)}" if phases else "")
    modules = _kinds([block for block in blocks if block.module], lambda block: block.module)
    if modules:
        yield f"modules: {modules}"
    names = _kinds([block for block in blocks if block.name], lambda block: block.name)
    if names:
        yield f"tensors: {names}"
    held = [block for block in blocks if block.holder is not None]
    if held:
        yield f"held by {_holders(held)}"


def _inferred(blocks: Sequence[LiveBlock]) -> str:
    guessed = sum(block.allocated_bytes for block in blocks if block.inferred)
    if guessed == 0:
        return ""
    whole = guessed == sum(block.allocated_bytes for block in blocks)
    return " (inferred)" if whole else f" ({format_bytes(guessed)} of it inferred)"


def _shares(
    blocks: Iterable[LiveBlock], name_of: Callable[[LiveBlock], str]
) -> list[tuple[str, int]]:
    """Bytes by name, largest first."""
    sizes: dict[str, int] = {}
    for block in blocks:
        name = name_of(block)
        sizes[name] = sizes.get(name, 0) + block.allocated_bytes
    return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


def _told(shares: Sequence[tuple[str, int]]) -> str:
    if len(shares) == 1:
        return shares[0][0]
    told = [f"{name} {format_bytes(size)}" for name, size in shares[:_KINDS]]
    return ", ".join(told + ([f"{len(shares) - _KINDS} more"] if len(shares) > _KINDS else []))


def _kinds(blocks: Sequence[LiveBlock], name_of: Callable[[LiveBlock], str]) -> str:
    """Names that differ in the number of a layer as one, with how many there are."""
    exact: dict[str, set[str]] = {}
    for block in blocks:
        exact.setdefault(layers_merged(name_of(block)), set()).add(name_of(block))
    shares = _shares(blocks, lambda block: layers_merged(name_of(block)))
    told = []
    for name, size_bytes in shares[:_KINDS]:
        many = f" ({len(exact[name])} of them)" if len(exact[name]) > 1 else ""
        told.append(f"{quoted(name, _NAME_LIMIT)}{many} {format_bytes(size_bytes)}")
    if len(shares) > _KINDS:
        told.append(f"{len(shares) - _KINDS} more")
    return ", ".join(told)


def _holders(blocks: Sequence[LiveBlock]) -> str:
    sizes: dict[Holder, int] = {}
    many: dict[Holder, set[str]] = {}
    for block in blocks:
        if block.holder is not None:
            own = block.holder
            merged = Holder(
                kind=own.kind,
                name=layers_merged(own.name),
                file=own.file,
                line=own.line,
                function=own.function,
            )
            sizes[merged] = sizes.get(merged, 0) + block.allocated_bytes
            many.setdefault(merged, set()).add(own.name)
    ranked = sorted(sizes.items(), key=lambda item: (-item[1], item[0].name, item[0].line))
    told = []
    for holder, size_bytes in ranked[:_KINDS]:
        times = f" ({len(many[holder])} of them)" if len(many[holder]) > 1 else ""
        where = Frame(filename=holder.file, line=holder.line, name=holder.function)
        place = f" at {frame_label(where)}" if holder.file else ""
        name = quoted(holder.name, _NAME_LIMIT)
        told.append(f"{holder.kind} {name}{times}{place} {format_bytes(size_bytes)}")
    if len(ranked) > _KINDS:
        told.append(f"{len(ranked) - _KINDS} more")
    return ", ".join(told)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
