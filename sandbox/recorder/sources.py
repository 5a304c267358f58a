"""The program's own files, by hash."""

import hashlib
import os
import sys
from pathlib import Path

from .config import Config
from .stacks import is_library


def source_hashes(config: Config) -> "dict[str, str]":
    """SHA-256 of every loaded Python file that lies under the program's roots, or that is its script.

    Paths are those that the program's own frames show, symbolic links and all.
    """
    files = {config.program.target} if config.program.kind == "script" else set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            files.add(file)
    hashes = {}
    for file in sorted(files):
        path = Path(file).resolve()
        own = file == config.program.target or any(
            path.is_relative_to(root) for root in config.roots
        )
        if own and not is_library(str(path)) and path.is_file():
            name = config.original(os.path.abspath(file))  # noqa: PTH100 - resolves no links
            hashes[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes
