"""Whether the virtual GPU can work in this interpreter; every refusal is one sentence."""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .cards import CARDS

TRIED_VERSIONS = ((2, 11), (2, 13))
"""Versions of torch that the tests run on."""
OLDEST_VERSION = (2, 11)
INSTALLED_MARK = "_headroom_virtual_gpu"
"""Attribute of `torch._C` that says the virtual GPU is there."""

_NEEDED = (
    "_C._ensureCUDADeviceGuardSet",
    "_C._from_dlpack",
    "_C._dispatch_get_all_op_names",
    "_C._dispatch_has_kernel_for_dispatch_key",
    "_C._dispatch_library",
    "_C._current_autograd_node",
    "_C.DisableTorchFunction",
    "_C.DispatchKeySet",
    "_C.Generator",
    "_C._get_sdp_priority_order",
    "cuda._lazy_init",
    "cuda._lazy_call",
    "cuda._cached_device_count",
    "Tag.nondeterministic_seeded",
)
"""Private names of torch that are relied on."""


class Unsupported(Exception):
    """The virtual GPU cannot work here; the message is one sentence."""


def unsupported_reason(
    card: str = "h200",
    *,
    machine: str | None = None,
    system: str | None = None,
    torch: Any = None,
) -> str | None:
    """Why the virtual GPU cannot work here, or None.

    Args:
        card: the card asked for.
        machine: the processor, this one by default.
        system: the operating system, this one by default.
        torch: the torch module, imported if left out.
    """
    if card not in CARDS:
        return f"no card is called {card!r}; known are {', '.join(CARDS)}"
    machine = platform.machine() if machine is None else machine
    if machine not in ("x86_64", "AMD64"):
        return f"the virtual GPU needs an x86-64 processor, this is {machine}"
    system = platform.system() if system is None else system
    if system != "Linux":
        return f"the virtual GPU needs Linux, this is {system}"
    if sys.implementation.name != "cpython":
        return f"the virtual GPU needs CPython, this is {sys.implementation.name}"
    try:
        module = importlib.import_module("torch") if torch is None else torch
    except ImportError:
        return "torch is not installed in this interpreter"
    return _torch_reason(module)


def untried_version(torch: Any) -> str | None:
    """A sentence for `coverage()` when this version of torch was not tried."""
    version = _version(torch)
    if version in TRIED_VERSIONS:
        return None
    return f"torch {torch.__version__} was not tried with the virtual GPU; {_tried()} were."


def _torch_reason(torch: Any) -> str | None:
    version = _version(torch)
    if version is None or version < OLDEST_VERSION:
        return f"the virtual GPU does not know torch {torch.__version__}; {_tried()} were tried"
    if torch.version.hip is not None:
        return "the virtual GPU simulates CUDA, and this torch is built for ROCm"
    missing = _missing(torch, _NEEDED)
    if missing is not None:
        return f"torch {torch.__version__} has no torch.{missing}, which the virtual GPU needs"
    if getattr(torch._C, INSTALLED_MARK, False):
        return "the virtual GPU is installed already"
    if torch.cuda.is_initialized():
        return "CUDA is initialised already; the virtual GPU must come before it"
    count = getattr(torch._C, "_cuda_getDeviceCount", None)
    if count is not None and count() > 0:
        return "a real CUDA device is visible; start the program with CUDA_VISIBLE_DEVICES empty"
    from . import hooks  # after the checks: it needs glibc

    problem = hooks.layout_problem(Path(torch.__file__).parent)
    return (
        None
        if problem is None
        else f"the virtual GPU does not fit torch {torch.__version__}: {problem}"
    )


def _missing(torch: Any, names: Iterable[str]) -> str | None:
    for name in names:
        place = torch
        for part in name.split("."):
            if not hasattr(place, part):
                return name
            place = getattr(place, part)
    return None


def _version(torch: Any) -> tuple[int, int] | None:
    parts = str(torch.__version__).split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return None


def _tried() -> str:
    return " and ".join(f"{major}.{minor}" for major, minor in TRIED_VERSIONS)
