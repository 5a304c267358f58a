"""The `headroom` command: the list of commands, and the one place where errors become sentences and exit codes."""

import errno
import importlib
import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from headroom import __version__
from headroom.cli.output import print_error, to_stderr
from headroom.errors import HeadroomError, OwnError, PrerequisiteError, UserError

OWN_FAILURE = 125
_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.ENOENT}
)
INTERRUPTED = 130

COMMANDS = ("fix", "run", "analyze", "pack", "scrub", "show", "runs", "apply")
"""In the order of the help; each is a function of its own name."""

_MODULES = {"runs": "headroom.cli.show"}
# Everything after PROGRAM is the program's, so its options are not looked at.
_PROGRAM_FOLLOWS = frozenset({"fix", "run"})


def application(command: str) -> typer.Typer:
    """The application with one command, or with all where the first word names none.

    Importing what all commands need takes half a second, which `pack` would spend for nothing.
    """
    app = typer.Typer(
        name="headroom",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in (command,) if command in COMMANDS else COMMANDS:
        module = importlib.import_module(_MODULES.get(name, f"headroom.cli.{name}"))
        settings = {"allow_interspersed_args": False} if name in _PROGRAM_FOLLOWS else None
        app.command(context_settings=settings)(getattr(module, name))
    return app


def _version(asked: bool) -> None:
    if asked:
        print(f"headroom {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """From a CUDA out-of-memory error to a patch that is proven to fit."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; never show a traceback of ours for something the user can understand."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    runs_program = words[0] == "run"
    for stream in (sys.stdout, sys.stderr):
        # A terminal of another encoding gets a question mark for what it cannot show, not a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_in_order)
    try:
        app = application(words[0])
        code = app(
            args=stop_at_module(words, options_of(words[0], app)),
            prog_name="headroom",
            standalone_mode=False,
        )
    except HeadroomError as error:
        print_error(error)
        sys.exit(OWN_FAILURE if runs_program else error.exit_code)
    except TyperException as error:
        known = [words[0]] if words[0] in COMMANDS else []
        print_error(UserError(error.format_message(), " ".join(("headroom", *known, "--help"))))
        sys.exit(OWN_FAILURE if runs_program else UserError.exit_code)
    except Exception as error:
        said = machine_trouble(error) or internal_error(error)
        print_error(said)
        sys.exit(OWN_FAILURE if runs_program else said.exit_code)
    if code == INTERRUPTED and not runs_program:
        to_stderr().print("headroom: interrupted; what was done so far is kept: headroom runs")
    sys.exit(code if isinstance(code, int) else 0)


def _end_in_order(_number: int, _frame: object) -> None:
    """A terminal that closes, or a scheduler that ends the job, ends the program and cleans up as Ctrl-C does."""
    raise KeyboardInterrupt


def options_of(command: str, app: typer.Typer) -> dict[str, bool]:
    """The option strings of a command of an application, and whether each takes a value."""
    found = getattr(typer.main.get_command(app), "commands", {}).get(command)
    if found is None:
        return {}
    return {
        name: not getattr(parameter, "is_flag", False)
        for parameter in found.params
        for name in getattr(parameter, "opts", ())
        if name.startswith("-")
    }


def stop_at_module(words: list[str], options: dict[str, bool]) -> list[str]:
    """What follows `-m MODULE` is the program's, as with python itself: mark it so for the parser."""
    position = 1
    while position < len(words) and words[position].startswith("-") and words[position] != "--":
        name, _, value = words[position].partition("=")
        takes_next = options.get(name, False) and not value
        end = position + 1 + takes_next
        if name in ("-m", "--module"):
            return [*words[:end], "--", *words[end:]]
        position = end
    return words


def machine_trouble(error: Exception) -> HeadroomError | None:
    """A full or read-only disk, or a folder that is gone, in one sentence; None for anything else."""
    if not isinstance(error, OSError) or error.errno not in _MACHINE:
        return None
    where = f" at {error.filename}" if error.filename else ""
    return PrerequisiteError(
        f"{os.strerror(error.errno)}{where}", "HEADROOM_STORE=/some/writable/folder headroom ..."
    )


def internal_error(error: Exception) -> HeadroomError:
    """A bug of ours in one sentence; the traceback goes into a file that can be sent."""
    handle, path = tempfile.mkstemp(prefix="headroom-error-", suffix=".txt")
    with os.fdopen(handle, "w") as file:
        file.write(f"headroom {__version__}\n{traceback.format_exc()}")
    return OwnError(
        f"this is a bug of Headroom's own ({type(error).__name__}: {error}); nothing of yours was changed",
        f"cat {path}   (please report what it says)",
    )


if __name__ == "__main__":
    main()
