"""From what was typed to a `Program`, and everything that can be wrong with it."""

import os
from pathlib import Path
from typing import Final

from headroom.errors import UserError
from headroom.records.run import Program
from headroom.sandbox.git import top_level
from headroom.sandbox.interpreter import Interpreter, active_interpreter, probe
from headroom.sandbox.overlay import program_roots

_LAUNCHERS: Final = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "srun"})
_LAUNCHER_MODULES: Final = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed"}
)


def find_program(
    command: str, typed: list[str], module: str | None, python: str | None, *, devices: bool
) -> tuple[Program, Interpreter]:
    """Find the program and the interpreter it runs under.

    Args:
        command: `run` or `fix`, for the sentences.
        typed: The positional words: PROGRAM and its arguments, or with `module` the arguments alone.
        module: The dotted name after `-m`.
        python: `--python`.
        devices: Whether torch has to be asked for CUDA devices.

    Raises:
        UserError: There is no such program, or it is nothing that can be run.
        PrerequisiteError: The interpreter cannot run it.
    """
    try:
        cwd = Path.cwd()
    except FileNotFoundError:
        raise UserError("the working directory is gone", "cd /some/folder") from None
    name = module if module is not None else (typed[0] if typed else None)
    if name is None:
        raise UserError("no program was named", f"headroom {command} train.py")
    _refuse_launchers(command, name, typed, module)
    script = None if module is not None else _find_script(command, name, cwd)
    path = _find_interpreter(python)
    interpreter = probe(
        path, os.environ, devices=devices, script=str(script) if script is not None else None
    )
    if interpreter.syntax is not None:
        raise UserError(
            f"{name} is not Python that {path} can compile: {interpreter.syntax}", f"{path} {name}"
        )
    folders = {cwd} if script is None else {cwd, script.parent, script.resolve().parent}
    program = Program(
        kind="script" if script is not None else "module",
        target=str(script) if script is not None else name,
        typed=name,
        args=tuple(typed if module is not None else typed[1:]),
        cwd=str(cwd),
        roots=tuple(
            map(str, program_roots(folders, {folder: top_level(folder) for folder in folders}))
        ),
        python=path,
    )
    return program, interpreter


def _refuse_launchers(command: str, name: str, typed: list[str], module: str | None) -> None:
    base = Path(name).name
    if base in _LAUNCHERS or module in _LAUNCHER_MODULES:
        script = next(
            (word for word in typed[module is None :] if word.endswith(".py")), "train.py"
        )
        raise UserError(
            f"{base} starts several processes, and Headroom records one process so far",
            f"headroom {command} {script}",
        )
    if module is None and base.startswith("python") and "." not in base.removeprefix("python3."):
        rest = " ".join(typed[1:]) or "train.py"
        raise UserError(
            "leave out the interpreter: Headroom starts it itself", f"headroom {command} {rest}"
        )


def _find_script(command: str, name: str, cwd: Path) -> Path:
    path = cwd / name
    if path.is_dir():
        raise UserError(f"{name} is a folder, not a script", f"headroom {command} {name}/train.py")
    if not path.is_file():
        found = sorted(found.name for found in cwd.glob("*.py"))
        raise UserError(
            f"there is no file {name} in {cwd}",
            f"headroom {command} {found[0] if found else 'train.py'}",
        )
    return Path(os.path.abspath(path))  # noqa: PTH100 - symbolic links stay: `__file__` shows them


def _find_interpreter(python: str | None) -> str:
    if python is None:
        return active_interpreter(os.environ)
    given = Path(python)
    if given.is_dir():
        given = given / "bin" / "python"
    if not given.is_file():
        raise UserError(
            f"there is no interpreter {python}", "headroom ... --python /path/to/python"
        )
    return str(given.absolute())
