"""What all records have in common."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError

from headroom.errors import UserError

T = TypeVar("T")


class Part(BaseModel):
    """A piece of a record: frozen, and tolerant of fields that a later version added.

    Losses may be NaN or infinite, and JSON has neither, so they are written as the strings `"NaN"` and `"Infinity"`;
    `null` is kept for "was not computed".
    """

    model_config = ConfigDict(
        extra="ignore", frozen=True, populate_by_name=True, ser_json_inf_nan="strings"
    )


class Record(Part):
    """A document of its own in the store, with a schema version."""

    schema_version: int = 1
    newest_version: ClassVar[int] = 1

    def to_json(self, indent: int | None = 2) -> str:
        """Serialise with aliases (`pass`, not `purpose`), which is what stays stable for readers.

        File names and arguments may hold bytes that are no text; JSON has no place for them, so they become `?`.
        """
        try:
            return self.model_dump_json(by_alias=True, indent=indent)
        except PydanticSerializationError:
            return type(self)(**_as_text(self.model_dump())).model_dump_json(
                by_alias=True, indent=indent
            )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a record back.

        Raises:
            UserError: It was written by a newer Headroom.
            pydantic.ValidationError: It is not such a record.
        """
        version = json.loads(text).get("schema_version", 1)
        if isinstance(version, int) and version > cls.newest_version:
            raise UserError(
                f"this {cls.__name__} has schema version {version}, and this Headroom reads up to {cls.newest_version}",
                "pip install --upgrade headroom-gpu",
            )
        return cls.model_validate_json(text)


def _as_text(value: Any) -> Any:
    """The value with every lone surrogate in its strings replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_as_text(name): _as_text(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(part) for part in value]
    return value


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: the same value always gives the same bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: Any) -> str:
    """SHA-256, in hex, of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def read_json_lines(text: str, validate: Callable[[str], T], what: str) -> list[T]:
    """Validate lines that the recorder wrote.

    The last line may be torn (the program was killed while writing it) and is then left out.

    Args:
        text: The file.
        validate: Makes a line's record, or raises pydantic's ValidationError.
        what: What a line should be, for the error's sentence.

    Raises:
        ValueError: A line that is not the last is no such record of this version.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    found: list[T] = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(validate(line))
        except ValidationError as error:
            if number == len(lines):
                break
            raise ValueError(f"line {number} is not {what}: {error.errors()[0]['msg']}") from error
    return found
