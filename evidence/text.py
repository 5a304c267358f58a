"""Text from a snapshot is hostile: it reaches terminals, web pages and prompts.

Names and paths are stripped of everything that is not a visible character, so that nothing can move the cursor, hide,
turn the reading direction or start a new line, and they are cut to a length.
"""

import unicodedata
from typing import Final

PATH_LIMIT: Final = 1024
NAME_LIMIT: Final = 300

# Controls, format characters (bidi marks, zero width, tag characters), surrogates, private use, unassigned, and the two
# separators that act as line breaks.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean_text(text: object, limit: int) -> str:
    """Visible characters of a text, at most `limit` of them; what is no text becomes an empty one."""
    if not isinstance(text, str):
        return ""
    # Twice the limit is enough to look at: whoever hides more than that gets a shorter text.
    head = text[: 2 * limit]
    if not (head.isascii() and head.isprintable()):
        head = "".join(char for char in head if unicodedata.category(char) not in _HIDDEN)
    return head if len(head) <= limit else head[: limit - 1] + "…"


def clean_line(line: str, limit: int) -> str:
    """A line of source as it may be shown: tabs become four spaces, hidden characters a visible sign."""
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) in _HIDDEN else char
        for char in line[: 2 * limit].replace("\t", "    ")
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def quoted(text: str, limit: int = PATH_LIMIT) -> str:
    """A text as a Markdown code span, which it cannot end."""
    return "`" + clean_text(text, limit).replace("`", "'") + "`"
