"""What the recorder is told, as `sandbox/process.py` writes it."""

import json
from dataclasses import dataclass
from pathlib import Path

VERSION = 1


@dataclass(frozen=True)
class Program:
    """The program: `target` is a script's absolute path or a module's dotted name."""

    kind: str
    target: str
    typed: str
    args: list[str]


@dataclass(frozen=True)
class Config:
    """One run. `moved` maps a copied folder to the original, whose paths the records use."""

    program: Program
    trace: bool
    out: Path
    roots: list[str]
    moved: dict[str, str]
    seed: int
    updates: int | None
    capacity_bytes: int | None
    unlimited: bool
    history_entries: int
    card: str | None

    def original(self, path: str) -> str:
        """The path that the user knows, for one inside a copied folder."""
        for copy, original in self.moved.items():
            if path.startswith(copy + "/"):
                return original + path[len(copy) :]
        return path


def read_config(path: str) -> Config:
    """Read the file; it was written by the same version of Headroom, so anything unexpected is a bug."""
    raw = json.loads(Path(path).read_text())
    if raw["version"] != VERSION:
        raise ValueError(f"config version {raw['version']}, expected {VERSION}")
    return Config(
        program=Program(**raw["program"]),
        trace=raw["pass"] == "trace",
        out=Path(raw["out"]),
        roots=raw["roots"],
        moved=raw["moved"],
        seed=raw["seed"],
        updates=raw["updates"],
        capacity_bytes=raw["capacity_bytes"],
        unlimited=raw["unlimited"],
        history_entries=raw["history_entries"],
        card=raw["card"],
    )
