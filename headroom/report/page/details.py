"""What a row of the table of stacks opens to: frames with source, blocks, and who holds them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headroom.evidence.model import Frame, Holder, LiveBlock, StackId, StackUse
from headroom.evidence.reading.stacks import display_frames
from headroom.evidence.source import source_windows
from headroom.evidence.text import clean_line, clean_text
from headroom.report.page.limits import Cutter
from headroom.report.page.names import Names
from headroom.report.page.places import tick_text

_SOURCE_CONTEXT = 3


class Details:
    """Collects the details of stacks; frames and windows of source are told once each."""

    def __init__(self, names: Names, cutter: Cutter, sources: Mapping[str, str]) -> None:
        self._names, self._cutter, self._sources = names, cutter, sources
        self._numbers: dict[Frame, int] = {}
        self._windows: dict[int, tuple[int, list[str]]] = {}

    def add(self, use: StackUse, blocks: Sequence[LiveBlock]) -> dict[str, Any]:
        """Plain values for the script; frames by number, those of the user's own code apart."""
        limits = self._cutter.limits
        shown = display_frames(use.frames) or use.frames
        user = set(use.user_frames)
        return {
            "frames": [self._number(frame, frame in user) for frame in shown[: limits.frames]],
            "user": [self._numbers[frame] for frame in shown[: limits.frames] if frame in user],
            "left": max(len(shown) - limits.frames, 0),
            "blocks": self._blocks(blocks),
            "held": [self._holder(holder) for holder in _holders(blocks)[: limits.blocks]],
            "pools": sorted({f"stream {b.stream}, pool {b.pool}" for b in blocks})[:4],
        }

    def tables(self) -> dict[str, Any]:
        """What the numbers stand for: frames as path, line, name and full path; windows by number of frame."""
        return {
            "frames": [
                [self._text(self._names.line(frame)), self._text(frame.name), self._full(frame)]
                for frame in self._numbers
            ],
            "windows": self._windows,
        }

    def _full(self, frame: Frame) -> str:
        """The whole path, where it says more than the short one."""
        full = self._text(f"{frame.filename}:{frame.line}")
        return "" if full == self._names.line(frame) else full

    def _number(self, frame: Frame, is_user: bool) -> int:
        number = self._numbers.get(frame)
        if number is None:
            number = self._numbers[frame] = len(self._numbers)
            if is_user and len(self._windows) < self._cutter.limits.windows:
                self._window(number, frame)
        return number

    def _window(self, number: int, frame: Frame) -> None:
        windows = source_windows(
            self._sources, {frame.filename: [frame.line]}, context=_SOURCE_CONTEXT
        )
        for window in windows:
            lines = [clean_line(line, self._cutter.limits.text) for line in window.lines]
            self._windows[number] = (window.first_line, lines)

    def _blocks(self, blocks: Sequence[LiveBlock]) -> list[list[Any]]:
        """Blocks that are alike in one row: bytes of one, how many, name, module, born, lives until."""
        alike: Counter[tuple[int, str, str, str, str]] = Counter()
        ticks = any(block.born and (block.born.update or block.born.call) for block in blocks)
        for block in blocks:
            born = tick_text(block.born, "before the recording")
            until = tick_text(block.lives_until, "the end")
            if not ticks:
                born = "in the recording" if block.born else born
                until = "within it" if block.lives_until else until
            key = (block.allocated_bytes, block.name, block.module, born, until)
            alike[key] += 1
        ranked = sorted(alike.items(), key=lambda item: (-item[0][0] * item[1], item[0]))
        limit = self._cutter.limits.blocks
        rows: list[list[Any]] = [
            [size, count, self._text(name), self._text(module), born, until]
            for (size, name, module, born, until), count in ranked[:limit]
        ]
        left = ranked[limit:]
        if left:
            size = sum(key[0] * count for key, count in left)
            rows.append([size, 0, f"{sum(count for _, count in left):,} more blocks", "", "", ""])
        return rows

    def _holder(self, holder: Holder) -> str:
        place = f"{self._names.path(holder.file)}:{holder.line}" if holder.file else ""
        where = f" at {place}" if place else ""
        inside = f" in {holder.function}" if holder.function else ""
        return self._text(f"{holder.kind} {holder.name}{inside}{where}")

    def _text(self, text: str) -> str:
        return clean_text(text, self._cutter.limits.text)


def _holders(blocks: Sequence[LiveBlock]) -> list[Holder]:
    sizes: Counter[Holder] = Counter()
    for block in blocks:
        if block.holder is not None:
            sizes[block.holder] += block.allocated_bytes
    return [holder for holder, _ in sizes.most_common()]


def details_of(
    stacks: Sequence[StackUse], blocks: Mapping[StackId, Sequence[LiveBlock]], details: Details
) -> dict[str, Any]:
    """Details by ID, with the tables their numbers refer to."""
    found = {use.id: details.add(use, blocks.get(use.id, ())) for use in stacks}
    return {"stacks": found, **details.tables()}
