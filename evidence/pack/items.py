"""The pieces that a pack is put together from, before anybody has decided which of them fit."""

from dataclasses import dataclass
from typing import Final, Literal

Section = Literal["facts", "stacks", "timeline", "heap", "growth", "source"]

SECTIONS: Final[tuple[Section, ...]] = ("facts", "stacks", "timeline", "heap", "growth", "source")

WHOLE: Final = -1
"""The part of a section that stands for all of it."""

# Above every fraction of a peak, so that these come first whatever they cost.
ALWAYS: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a piece is counted where it had to be left out, and the bytes of the peak that it holds, if any.

    `noun` has a `|s` where its plural takes one.
    """

    noun: str
    count: int = 1
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One piece: lines in its section, a line of the index, the IDs that it introduces.

    `value` is the fraction of the peak that it explains; `key` names it, and it is shown only with the piece that
    `needs` names. `refs` are IDs to be named behind its last line if their own pieces are shown. `frames` are numbers
    in the table of frames. `place` orders the pieces of one section; its first number is the part of the section, which
    an opening of the draft may introduce.
    """

    key: str
    section: Section
    place: tuple[int, ...]
    value: float
    cut: Cut
    lines: tuple[str, ...] = ()
    index: str = ""
    ids: tuple[str, ...] = ()
    needs: str = ""
    refs: tuple[str, ...] = ()
    refs_label: str = "see"
    frames: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Everything that could be said: the pieces, the table of frames, and the sentences that open each section."""

    items: tuple[Item, ...]
    frames: tuple[str, ...]
    openings: dict[tuple[Section, int], tuple[str, ...]]
    peak_bytes: int
