"""Unified diffs that `git apply` accepts."""

import difflib
import os.path
import re
from collections.abc import Mapping
from pathlib import PurePath

# git puts a name in quotes, with C escapes, when it holds one of these; other bytes may stand as they are.
_QUOTED = re.compile(r'["\\\x00-\x1f\x7f]')


def unified_diff(before: Mapping[str, bytes], after: Mapping[str, bytes], root: str) -> str:
    r"""The diff from `before` to `after` with paths relative to `root`, in the form of `git diff`.

    Only files that `after` holds and that differ appear. A file outside `root` appears under its absolute path
    without the leading slash. Lines keep their own ends, so a CRLF file gives lines that end in CRLF, and bytes that
    are no UTF-8 are lone surrogates: encode with `surrogateescape` to write exactly what git has to read.

    Raises:
        KeyError: `after` holds a file that `before` lacks; a patch never creates files.
    """
    parts = []
    for path in sorted(after):
        if after[path] != before[path]:
            name = _relative(path, root)
            parts.append(_header(name) + _hunks(before[path], after[path]))
    return "".join(parts)


def _relative(path: str, root: str) -> str:
    relative = PurePath(os.path.relpath(path, root)).as_posix()
    return PurePath(path).as_posix().lstrip("/") if relative.startswith("../") else relative


def _header(name: str) -> str:
    old, new = _name(f"a/{name}"), _name(f"b/{name}")
    # git ends a name that holds a space with a tab, so that what follows is not read as a date.
    tab = "\t" if " " in name and not old.startswith('"') else ""
    return f"diff --git {old} {new}\n--- {old}{tab}\n+++ {new}{tab}\n"


def _name(name: str) -> str:
    if not _QUOTED.search(name):
        return name
    escaped = _QUOTED.sub(lambda match: f"\\{ord(match[0]):03o}", name)
    return f'"{escaped}"'


def _lines(data: bytes) -> list[str]:
    r"""Lines as git counts them, each with its `\n`; a carriage return is part of the line."""
    text = data.decode("utf-8", "surrogateescape")
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _hunks(before: bytes, after: bytes) -> str:
    old, new = _lines(before), _lines(after)
    body = list(difflib.unified_diff(old, new, n=3))[2:]
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in body
    )
