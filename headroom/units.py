"""Bytes and seconds as people write and read them. Inside the code bytes are `int`."""

import re
from typing import Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3

_UNITS: Final = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "K": KIB,
    "M": MIB,
    "G": GIB,
    "KIB": KIB,
    "MIB": MIB,
    "GIB": GIB,
    "TIB": 1024**4,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


def parse_bytes(text: str) -> int:
    """Read a size such as `12GiB`, `500 MB` or `1048576`.

    Bare `K`, `M` and `G` are binary, as in PyTorch's allocator settings; `KB`, `MB`, `GB` are decimal.

    Raises:
        ValueError: `text` is not a size.
    """
    match = _SIZE.fullmatch(text)
    factor = _UNITS.get(match.group(2).upper()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a size such as 12GiB or 900MiB")
    return int(float(match.group(1)) * factor)


def parse_percent(text: str) -> float | None:
    """Read `60%` as 0.6; None when `text` is not a percentage."""
    match = _PERCENT.fullmatch(text)
    return float(match.group(1)) / 100 if match else None


def format_bytes(size_bytes: int) -> str:
    """Write a size with a binary unit and two decimals, as PyTorch's messages do."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes} B"


def format_seconds(seconds: float) -> str:
    """Write a duration with about three significant digits."""
    if seconds < 0.1:
        return f"{seconds * 1e3:.2f} ms"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
