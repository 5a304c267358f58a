"""The two consoles, and JSON on standard output."""

import json
import sys
from typing import Any

from rich.console import Console

from headroom.errors import HeadroomError
from headroom.report.text import plain


def to_stdout() -> Console:
    """What was asked for."""
    return Console(highlight=False, soft_wrap=False)


def to_stderr() -> Console:
    """What is said on the way: progress, notes, errors."""
    return Console(stderr=True, highlight=False)


def print_json(text: str) -> None:
    """One JSON document, unadorned."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class _Mode:
    """Whether the command that is running was asked for JSON."""

    json = False


def set_json(wanted: bool) -> None:
    """Called first by every command: an error, too, is then printed as JSON."""
    _Mode.json = wanted


def print_error(error: HeadroomError) -> None:
    """One sentence and the next command."""
    if _Mode.json:
        content: dict[str, Any] = {"message": error.message, "next_command": error.next_command}
        print_json(json.dumps({"error": content}, indent=2))
        return
    console = to_stderr()
    console.print(plain(f"headroom: {error.message}", "red"), soft_wrap=True)
    if error.next_command:
        console.print(plain(f"    try: {error.next_command}"), soft_wrap=True)
