"""Text that came from a program or a file, made safe for a terminal."""

import unicodedata

from rich.text import Text


def visible(text: str) -> str:
    """The text without characters that steer a terminal or reorder what is read; tabs and line ends stay."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf"))


def plain(text: str, style: str = "") -> Text:
    """Text for rich, with no markup interpreted."""
    return Text(visible(text), style=style)
