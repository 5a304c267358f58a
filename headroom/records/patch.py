"""Exact line edits bound to the files they change."""

from pydantic import Field

from headroom.records.base import Part, Record


class Edit(Part):
    """Replace `old_lines` by `new_lines` in one file.

    `sha256` and `old_lines` are the proof; `start` and `end` are a hint. Lines carry no line terminator. An insertion
    has the line it goes before (or after) in both `old_lines` and `new_lines`.
    """

    path: str = Field(description="absolute path")
    sha256: str = Field(description="of the file's bytes before the edit")
    start: int = Field(ge=1, description="first line of old_lines, counted from 1")
    end: int = Field(description="last line of old_lines, inclusive")
    old_lines: tuple[str, ...] = Field(min_length=1)
    new_lines: tuple[str, ...]


class Patch(Record):
    """A set of edits: all apply, or none. All refer to the same original files."""

    title: str
    reason: str = Field(description="why this lowers the peak, for the reader")
    edits: tuple[Edit, ...] = Field(min_length=1)
