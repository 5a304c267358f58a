"""How stacks are told in a pack: grouped by user lines, frames by number, births in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from headroom.evidence.model import Frame, Ledger, LiveBlock, StackUse
from headroom.evidence.stacks import BACKWARD_PREFIX, display_frames
from headroom.evidence.text import quoted

# Of a longer chain of calls the innermost frames name the owner.
_USER_FRAMES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StackGroup:
    """Stacks that differ in library frames only: to a reader they are one line of code."""

    uses: tuple[StackUse, ...]

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all stacks of the group."""
        return sum(use.allocated_bytes for use in self.uses)

    @property
    def user_frames(self) -> tuple[Frame, ...]:
        """The user frames, which all stacks of the group share."""
        return self.uses[0].user_frames

    @property
    def backward(self) -> bool:
        """Whether the allocations happened in a backward."""
        return self.uses[0].backward


def group_stacks(stacks: Iterable[StackUse]) -> list[StackGroup]:
    """Groups by descending bytes; a stack without user frames stays alone."""
    members: dict[tuple[object, ...], list[StackUse]] = {}
    for use in stacks:
        key = (use.backward, use.user_frames) if use.user_frames else (use.id,)
        members.setdefault(key, []).append(use)
    groups = [StackGroup(uses=tuple(uses)) for uses in members.values()]
    # Sorting is stable and the stacks come in order of their IDs, so ties keep that order.
    groups.sort(key=lambda group: -group.allocated_bytes)
    return groups


class FrameTable:
    """Numbers frames in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[Frame, str] = {}

    def refer(self, group: StackGroup) -> str:
        """The frames of a group as numbers, innermost first: the operation, then the user's lines."""
        innermost = display_frames(group.uses[0].frames)[:1]
        chosen = [*innermost, *group.user_frames[:_USER_FRAMES]]
        numbers = [self._number(frame) for frame in dict.fromkeys(chosen)]
        left_out = len(group.user_frames) - _USER_FRAMES
        if left_out > 0:
            numbers.append(f"and {left_out} outer")
        return " ".join(numbers) or "none"

    def lines(self) -> list[tuple[str, str]]:
        """Number and text of each frame, in order."""
        return [(number, frame_label(frame, full=True)) for frame, number in self._numbers.items()]

    def _number(self, frame: Frame) -> str:
        return self._numbers.setdefault(frame, f"f{len(self._numbers) + 1}")


def frame_label(frame: Frame, *, full: bool = False) -> str:
    """A frame as quoted text; library paths begin after `site-packages`."""
    if frame.filename in ("??", ""):
        return quoted(frame.name)
    path = frame.filename if full else PurePosixPath(frame.filename).name
    for folder in ("/site-packages/", "/dist-packages/"):
        head, found, tail = path.partition(folder)
        path = f"…/{tail}" if found else head
    return quoted(f"{path}:{frame.line} {frame.name}")


def label(use: StackUse) -> str:
    """One label for a stack: the user's line, or the innermost library frame."""
    shown = display_frames(use.frames)
    node = ""
    if shown and shown[0].name.startswith(BACKWARD_PREFIX):
        node = f" (backward, {quoted(shown[0].name.removeprefix(BACKWARD_PREFIX))})"
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


def births(blocks: Sequence[LiveBlock], group: StackGroup, *, ticks_known: bool) -> str:
    """When the live blocks of a group were allocated, in updates and calls where the recording tells them."""
    members = {use.id for use in group.uses}
    born = [block.born for block in blocks if block.stack in members]
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
