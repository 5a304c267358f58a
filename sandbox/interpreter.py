"""The user's interpreter: which one it is, and whether it can run what is asked."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headroom.errors import PrerequisiteError

LEAST_PYTHON: Final = (3, 10)
LEAST_TORCH: Final = (2, 4)
"""2.4 is the first release with every hook the recorder needs; 2.11 and 2.13 are what it was tried on."""

PROBE: Final = Path(__file__).parent / "recorder" / "probe.py"
PROBE_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """A CUDA device that the interpreter's torch sees."""

    name: str
    total_memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A probed interpreter that can run programs under the recorder.

    `syntax` is what keeps the script from being Python to it, or None.
    """

    path: str
    python: str
    torch: str
    machine: str
    system: str
    cuda_devices: tuple[CudaDevice, ...]
    syntax: str | None = None


def active_interpreter(environment: Mapping[str, str]) -> str:
    """The interpreter of the active environment: a virtual one, conda's, else `python3` or `python` on the PATH.

    Headroom's own environment has no torch, so it counts only when it is the one that is active, or there is no other.
    """
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environment.get(variable)
        if prefix and (python := Path(prefix) / "bin" / "python").exists():
            return str(python)
    for name in ("python3", "python"):
        if found := shutil.which(name, path=environment.get("PATH")):
            return str(Path(found).absolute())
    return sys.executable


def probe(
    path: str, environment: Mapping[str, str], *, devices: bool, script: str | None = None
) -> Interpreter:
    """Ask an interpreter what it is.

    Args:
        path: The interpreter.
        environment: The environment that the program would get.
        devices: Whether to ask torch for CUDA devices as well, which takes seconds.
        script: A file to compile, to see whether it is Python.

    Raises:
        PrerequisiteError: It is no Python, too old, or has no torch that can be imported.
    """
    options = ["--devices"] if devices and has_cuda_driver() else []
    answer = _ask(path, environment, [*options, *(["--compile", script] if script else [])])
    choose = "headroom ... --python /path/to/python"
    if _numbers(answer["python"]) < LEAST_PYTHON:
        raise PrerequisiteError(
            f"{path} is Python {answer['python']}; the least that Headroom can record is "
            f"{LEAST_PYTHON[0]}.{LEAST_PYTHON[1]}",
            choose,
        )
    if answer["torch"] is None:
        raise PrerequisiteError(f"{path} has no torch", f"{choose}   (one that has torch)")
    if _numbers(answer["torch"]) < LEAST_TORCH:
        raise PrerequisiteError(
            f"{path} has torch {answer['torch']}; the least that Headroom can record is "
            f"{LEAST_TORCH[0]}.{LEAST_TORCH[1]}",
            f"{path} -m pip install --upgrade torch",
        )
    found = answer.get("devices", {"error": None, "cuda": []})
    if found["error"] is not None:
        raise PrerequisiteError(
            f"torch cannot be imported under {path}: {found['error']}", f"{path} -c 'import torch'"
        )
    return Interpreter(
        path=path,
        python=answer["python"],
        torch=answer["torch"],
        machine=answer["machine"],
        system=answer["system"],
        cuda_devices=tuple(CudaDevice(**device) for device in found["cuda"]),
        syntax=answer.get("syntax"),
    )


def has_cuda_driver() -> bool:
    """Whether a CUDA device can be there at all: a device file of the NVIDIA driver, or of WSL."""
    return any(os.path.exists(path) for path in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"))  # noqa: PTH110


def _ask(path: str, environment: Mapping[str, str], options: list[str]) -> dict[str, Any]:
    command = [path, str(PROBE), *options]
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrerequisiteError(
            f"{path} does not run as a Python interpreter: {error}",
            "headroom ... --python /path/to/python",
        ) from None
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise PrerequisiteError(
            f"{path} does not answer as a Python 3 interpreter does; it said: {said}",
            "headroom ... --python /path/to/python",
        ) from None
    if not isinstance(answer, dict):
        raise PrerequisiteError(
            f"{path} is not a Python interpreter", "headroom ... --python /path/to/python"
        )
    return answer


def _numbers(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13)."""
    return tuple(
        int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")[:2]
    )
