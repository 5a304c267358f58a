"""Files written whole or not at all, and never over what was read."""

import secrets
from collections.abc import Iterable
from pathlib import Path

from headroom.errors import UserError


def check_output(out: Path, command: str, *, inputs: Iterable[Path] = (), force: bool) -> None:
    """Whether a file may be written there: it is no folder, no input, and not there yet unless the user says so.

    Args:
        out: The file to write.
        command: What the user typed, without the option that names `out`.
        inputs: Files that are read: nobody means to lose these.
        force: Whether an existing file may be overwritten.

    Raises:
        UserError: It may not.
    """
    if out.is_dir():
        raise UserError(f"{out} is a folder", f"{command} {out / 'out.html'}")
    if any(out.exists() and path.exists() and out.samefile(path) for path in inputs):
        raise UserError(f"{out} is the snapshot itself", f"{command} another-name")
    if out.exists() and not force:
        raise UserError(f"{out} exists already", f"{command} {out} --force")
    if not out.resolve().parent.is_dir():
        raise UserError(f"{out.parent} is not a folder", f"mkdir -p {out.parent}")


def write_atomically(path: Path, text: str) -> None:
    """Write a whole UTF-8 file or nothing: a reader never sees half of it."""
    draft = path.with_name(path.name + f".{secrets.token_hex(4)}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
