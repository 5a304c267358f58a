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
# Letters and marks that show nothing: Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt beyond those
# categories, and the blank Braille pattern.
_BLANK: Final = frozenset(
    map(
        chr,
        (
            0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0,
            *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0),
        ),
    )
)  # fmt: skip


def _is_hidden(char: str) -> bool:
    return char in _BLANK or unicodedata.category(char) in _HIDDEN


def clean_text(text: object, limit: int) -> str:
    """Visible characters of a text, at most `limit` of them; what is no text becomes an empty one."""
    if not isinstance(text, str):
        return ""
    # Twice the limit is enough to look at: whoever hides more than that gets a shorter text.
    head = text[: 2 * limit]
    if not (head.isascii() and head.isprintable()):
        head = "".join(char for char in head if not _is_hidden(char))
    return head if len(head) <= limit else head[: limit - 1] + "…"


def clean_line(line: str, limit: int) -> str:
    """A line of source as it may be shown: tabs become four spaces, hidden characters a visible sign."""
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if _is_hidden(char) else char
        for char in line[: 2 * limit].replace("\t", "    ")
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def quoted(text: str, limit: int = PATH_LIMIT) -> str:
    """A text as a Markdown code span, which it cannot end."""
    return "`" + clean_text(text, limit).replace("`", "'") + "`"
