"""How stacks are told in a pack: near-identical ones together, frames as quoted text, births in words."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from headroom.evidence.model import Frame, Ledger, LiveBlock, StackId, StackUse
from headroom.evidence.reading.stacks import BACKWARD_PREFIX, display_frames
from headroom.evidence.text import clean_text, quoted

_LONGEST_CYCLE: Final = 4
_FILE_LIMIT: Final = 80
_FULL_FILE_LIMIT: Final = 240
_FUNCTION_LIMIT: Final = 80

# `blocks.3.attn`, `history[3]`: numbers that only say which of many equal ones.
_LAYER: Final = re.compile(r"(?<=\[)\d+(?=\])|(?:(?<=\.)|^)\d+(?=\.|$)")
_GENERATED: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackGroup:
    """Stacks that are one line of code to a reader, and their blocks at the peak."""

    uses: tuple[StackUse, ...]
    blocks: tuple[LiveBlock, ...] = ()

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all stacks of the group."""
        return sum(use.allocated_bytes for use in self.uses)

    @property
    def user_frames(self) -> tuple[Frame, ...]:
        """The user frames of the largest stack; the others' differ in repetitions or generated names only."""
        return self.uses[0].user_frames

    @property
    def id(self) -> StackId:
        """The ID of its largest stack, by which the group goes."""
        return self.uses[0].id


def group_stacks(ledger: Ledger) -> list[StackGroup]:
    """Groups by descending bytes.

    Stacks are merged whose user frames are the same but for repetitions (recursion, wrappers around wrappers) and
    numbers in generated names, whatever library frames lie between; without any user frame, those whose library frames
    are the same in that sense.
    """
    blocks: dict[StackId, list[LiveBlock]] = {}
    for block in ledger.blocks:
        if block.stack is not None:
            blocks.setdefault(block.stack, []).append(block)
    members: dict[tuple[object, ...], list[StackUse]] = {}
    for use in ledger.stacks:
        members.setdefault(_likeness(use), []).append(use)
    groups = [
        StackGroup(
            uses=tuple(uses),
            blocks=tuple(block for use in uses for block in blocks.get(use.id, ())),
        )
        for uses in members.values()
    ]
    # Sorting is stable and the stacks come in order of their IDs, so ties keep that order.
    groups.sort(key=lambda group: -group.allocated_bytes)
    return groups


def _likeness(use: StackUse) -> tuple[object, ...]:
    frames = use.user_frames or use.frames
    told = [_frame_likeness(frame) for frame in display_frames(frames)]
    if not told:
        return ("alone", use.id)
    return (use.backward, bool(use.user_frames), without_cycles(told))


def _frame_likeness(frame: Frame) -> tuple[str, int, str]:
    # Files that torch.fx and inductor generate are numbered: `<eval_with_key>.3`.
    generated = frame.filename.startswith("<")
    path = _GENERATED.sub("*", frame.filename) if generated else frame.filename
    return path, frame.line, frame.name


def without_cycles(frames: Sequence[tuple[str, int, str]]) -> tuple[tuple[str, int, str], ...]:
    """Frames with each run of repetitions, of up to four frames at a time, told once."""
    kept: list[tuple[str, int, str]] = []
    for frame in frames:
        kept.append(frame)
        for length in range(1, _LONGEST_CYCLE + 1):
            if len(kept) >= 2 * length and kept[-length:] == kept[-2 * length : -length]:
                del kept[-length:]
                break
    return tuple(kept)


def layers_merged(name: str) -> str:
    """A module path or the name of a tensor with `*` in place of the numbers of layers."""
    return _LAYER.sub("*", name)


def frame_label(frame: Frame, *, full: bool = False) -> str:
    """A frame as quoted text; library paths begin after `site-packages`."""
    name = clean_text(_plain_name(frame.name), _FUNCTION_LIMIT)
    if frame.filename in ("??", "") or (name != frame.name and not full):
        return quoted(name)
    path = frame.filename if full else PurePosixPath(frame.filename).name
    for folder in ("/site-packages/", "/dist-packages/"):
        head, found, tail = path.partition(folder)
        path = f"…/{tail}" if found else head
    path = clean_text(path, _FULL_FILE_LIMIT if full else _FILE_LIMIT)
    return quoted(f"{path}:{frame.line} {name}")


def _plain_name(name: str) -> str:
    """A C++ function without result, template arguments and parameters; other names as they are."""
    if "::" not in name or name.startswith(BACKWARD_PREFIX):
        return name
    plain: list[str] = []
    depth = 0
    for char in name.replace("(anonymous namespace)", "anonymous").replace("->", ""):
        if char == "(" and not depth and plain:
            break
        depth += (char == "<") - (char == ">")
        if not depth and char != ">":
            plain.append(char)
    return "".join(plain).strip().rpartition(" ")[2] or name


def label(use: StackUse) -> str:
    """One label for a stack: the user's line, or the innermost library frame."""
    shown = display_frames(use.frames)
    node = ""
    if shown and shown[0].name.startswith(BACKWARD_PREFIX):
        named = quoted(shown[0].name.removeprefix(BACKWARD_PREFIX), _FUNCTION_LIMIT)
        node = f" (backward, {named})"
    elif use.backward:
        node = " (backward)"
    if use.site is not None:
        return frame_label(use.site) + node
    inner = [frame for frame in shown if not frame.name.startswith(BACKWARD_PREFIX)]
    return (frame_label(inner[0]) + " (library)" if inner else "no named frame") + node


def has_ticks(ledger: Ledger) -> bool:
    """Whether the recording told updates and calls: without labels everything stands at tick 0."""
    ticks = [ledger.peak.tick, *(block.born for block in ledger.blocks)]
    return any(tick is not None and (tick.update or tick.call) for tick in ticks)


def births(blocks: Iterable[LiveBlock], *, ticks_known: bool) -> str:
    """When live blocks were allocated, in updates and calls where the recording tells them."""
    born = [block.born for block in blocks]
    ticks = [tick for tick in born if tick is not None]
    told = []
    if ticks and ticks_known:
        updates, calls = {tick.update for tick in ticks}, {tick.call for tick in ticks}
        told.append(f"in {_range('update', updates)}, {_range('call', calls)}")
    elif ticks:
        told.append("within the recording")
    if len(ticks) < len(born):
        older = len(born) - len(ticks)
        told.append(f"{older} {'block' if older == 1 else 'blocks'} before the recording")
    return "; ".join(told)


def _range(noun: str, numbers: set[int]) -> str:
    lowest, highest = min(numbers), max(numbers)
    if lowest == highest:
        return f"{noun} {lowest}"
    return f"{len(numbers)} {noun}s from {lowest} to {highest}"
