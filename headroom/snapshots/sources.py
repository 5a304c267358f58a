"""The source text for the frames of a snapshot: found under a folder the user names, and checked against the frames."""

import ast
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from headroom.agents.text import source_text
from headroom.evidence.analysis_model import Analysis
from headroom.evidence.explain.line_map import closest
from headroom.evidence.model import Frame

_MAX_FILES: Final = 50_000
_MAX_SOURCE_BYTES: Final = 4 * 2**20
_SKIPPED: Final = frozenset(
    {".git", "__pycache__", "node_modules", ".venv", "venv", "site-packages", ".headroom"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Texts by the path that the frames name, the local file behind each, and sentences on what does not fit."""

    texts: dict[str, str]
    files: dict[str, Path]
    notes: tuple[str, ...] = ()


NO_SOURCES: Final = Sources(texts={}, files={})


def find_sources(analysis: Analysis, folder: Path) -> Sources:
    """Look under a folder for the user's files that a snapshot names.

    A file is taken for one of them when its path ends alike, in as many parts as tell it from others; it is used only
    where the functions that the frames name stand on the lines that they name. Nothing outside the folder is read: a
    snapshot from a stranger may name any file.
    """
    frames = user_frames_of(analysis)
    local = _python_files(folder)
    texts: dict[str, str] = {}
    files: dict[str, Path] = {}
    notes: list[str] = []
    for name in sorted(frames):
        path = _best(name, local)
        if path is None:
            continue
        text = _read(path)
        if text is None:
            continue
        wrong = misfits(text, frames[name])
        if wrong:
            line = wrong[0]
            notes.append(
                f"{path} is another version than the one recorded: line {line.line} is not in {line.name}"
            )
        else:
            texts[name], files[name] = text, path
    if not texts and not notes:
        notes.append(f"{folder} holds none of the files that the snapshot names")
    return Sources(texts=texts, files=files, notes=tuple(notes))


def user_frames_of(analysis: Analysis) -> dict[str, set[Frame]]:
    """The user's frames by file, of all stacks of all devices."""
    found: dict[str, set[Frame]] = defaultdict(set)
    for device in analysis.devices:
        for use in device.ledger.stacks:
            for frame in use.user_frames:
                found[frame.filename].add(frame)
        for path in device.churn.paths:
            if path.site is not None:
                found[path.site.filename].add(path.site)
    return found


def _python_files(folder: Path) -> dict[str, list[Path]]:
    """Files by name, without what belongs to environments and tools."""
    found: dict[str, list[Path]] = defaultdict(list)
    count = 0
    for parent, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(names):
            if name.endswith(".py") or "." not in name:
                found[name].append(Path(parent) / name)
                count += 1
        if count > _MAX_FILES:
            break
    return found


def _best(name: str, local: Mapping[str, list[Path]]) -> Path | None:
    """The file whose path shares the most parts with the frame's, from the end; None where two share as many."""
    last = PurePosixPath(name.replace("\\", "/")).name
    found = closest(name, (str(path.resolve()) for path in local.get(last, ())))
    return Path(found) if found is not None else None


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > _MAX_SOURCE_BYTES:
            return None
        content = path.read_bytes()
        content.decode()
    except (OSError, UnicodeDecodeError):
        return None
    return source_text(content)


def misfits(text: str, frames: Iterable[Frame]) -> list[Frame]:
    """Frames that cannot come from this text: their line is not inside a function of their name.

    Comprehensions and lambdas have no name of their own, so they fit anywhere.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return sorted(frames, key=lambda frame: frame.line)
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            spans[node.name].append((first, node.end_lineno or node.lineno))
    spans["<module>"].append((1, text.count("\n") + 1))
    wrong = [
        frame
        for frame in frames
        if frame.line
        and (frame.name == "<module>" or not frame.name.startswith("<"))
        and not any(first <= frame.line <= last for first, last in spans.get(frame.name, ()))
    ]
    return sorted(wrong, key=lambda frame: frame.line)
