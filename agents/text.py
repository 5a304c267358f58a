"""A file as lines and line ends, such that joining them gives back its bytes."""

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headroom.errors import PatchError

# Python counts `\n`, `\r\n` and a lone `\r` as line ends, and nothing else; `str.splitlines` counts more.
_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """A decoded file; `ends[i]` terminates `lines[i]`, and is empty only for an unterminated last line.

    `encoding` is that of the file's byte-order mark or encoding cookie (PEP 263), else UTF-8.
    """

    lines: tuple[str, ...]
    ends: tuple[str, ...]
    encoding: str

    @property
    def line_end(self) -> str:
        r"""The line end that most lines have; `\n` for a file without any."""
        counts = Counter(end for end in self.ends if end)
        return counts.most_common(1)[0][0] if counts else "\n"

    @property
    def terminated(self) -> bool:
        """Whether the last line has a line end."""
        return not self.ends or bool(self.ends[-1])

    def to_bytes(self) -> bytes:
        """The file again.

        Raises:
            UnicodeEncodeError: A line holds a character that the file's encoding lacks.
        """
        parts = zip(self.lines, self.ends, strict=True)
        return "".join(line + end for line, end in parts).encode(self.encoding)

    def changed(self, changes: Iterable["Change"]) -> "SourceText":
        """The text with changes made, all at once: each is about the lines of this text, and none overlap.

        Insertions at one place keep their order.

        Each new line takes the line end of the line in whose place it stands; a file whose last line was unterminated
        stays so.
        """
        lines, ends = list(self.lines), list(self.ends)
        # From the end, and an insertion after the replacement of the line before which it goes.
        for change in reversed(sorted(changes, key=lambda item: (item.start, item.count))):
            stop = change.start + change.count
            inherited = self.ends[change.start : stop] or (self.line_end,)
            padding = (inherited[-1],) * max(0, len(change.lines) - change.count)
            ends[change.start : stop] = (*inherited, *padding)[: len(change.lines)]
            lines[change.start : stop] = change.lines
        ends = [end or self.line_end for end in ends]
        if ends and not self.terminated:
            ends[-1] = ""
        return SourceText(lines=tuple(lines), ends=tuple(ends), encoding=self.encoding)


@dataclass(frozen=True, slots=True)
class Change:
    """Replace `count` lines from index `start` by `lines`."""

    start: int
    count: int
    lines: tuple[str, ...]


def read_text(data: bytes, path: str) -> SourceText:
    """Decode a file the way Python reads its sources.

    Raises:
        PatchError: `syntax`, when the bytes are no text in the encoding that the file declares.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise PatchError("syntax", f"{path} cannot be read as text: {error}") from error
    matches = [match.groups() for match in _LINE.finditer(text)]
    pairs = [(line, end) for line, end in matches if line or end]
    return SourceText(
        lines=tuple(line for line, _ in pairs),
        ends=tuple(end for _, end in pairs),
        encoding=encoding,
    )


def source_text(data: bytes) -> str:
    """A file's bytes as `Evidence.sources` holds them: UTF-8, with other bytes kept as lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def source_bytes(text: str) -> bytes:
    """The bytes behind an entry of `Evidence.sources`; the inverse of `source_text`."""
    return text.encode("utf-8", "surrogateescape")
