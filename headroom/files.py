"""Files written whole or not at all."""

import secrets
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a whole UTF-8 file or nothing: a reader never sees half of it."""
    draft = path.with_name(path.name + f".{secrets.token_hex(4)}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
