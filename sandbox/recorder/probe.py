"""Tells what an interpreter is: run as a script of its own, prints one JSON line.

    python probe.py [--devices] [--compile SCRIPT]

`--devices` imports torch and asks it for CUDA devices, which takes seconds; without it only versions are looked up.
`--compile` says what, if anything, keeps a file from being Python to this interpreter.
"""

import json
import platform
import sys
from typing import Any


def torch_version() -> "str | None":
    """The installed torch's version, without importing it."""
    try:
        from importlib import metadata
    except ImportError:  # before Python 3.8, which is too old anyway
        return None
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def devices() -> "dict[str, Any]":
    """What torch sees of CUDA; `error` says why it could not even be imported."""
    try:
        import torch
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "cuda": []}
    found = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            found.append({"name": properties.name, "total_memory_bytes": properties.total_memory})
    return {"error": None, "cuda": found}


def syntax_error(path: str) -> "str | None":
    """The sentence of the SyntaxError that compiling a file gives, or None."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            compile(file.read(), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)
    except ValueError as error:  # a null byte
        return str(error)
    return None


def main() -> None:
    """See the module's docstring."""
    answer: dict[str, Any] = {
        "executable": sys.executable,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "torch": torch_version(),
    }
    if "--devices" in sys.argv[1:] and answer["torch"] is not None:
        answer["devices"] = devices()
    if "--compile" in sys.argv[1:]:
        answer["syntax"] = syntax_error(sys.argv[-1])
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
