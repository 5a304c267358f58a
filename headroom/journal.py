"""A campaign's append-only journal: one JSON line for each thing that was decided or done, in order."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Journal:
    """Appends entries; each is on the disk before the next step begins.

    Args:
        path: The file; continued if it exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = len(read_journal(path)) if path.exists() else 0

    def append(self, kind: str, **data: Any) -> None:
        """Write one entry: its number, time, kind, and what belongs to it (JSON values)."""
        self._count += 1
        entry = {
            "number": self._count,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": kind,
            **data,
        }
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All entries; a last line that was torn while being written is left out."""
    entries = []
    for line in path.read_text().splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            break
    return entries
