"""The `headroom` command: the list of commands, and the one place where errors become sentences and exit codes."""

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from headroom import __version__
from headroom.cli.apply import apply
from headroom.cli.fix import fix
from headroom.cli.output import print_error, to_stderr
from headroom.cli.run import run
from headroom.cli.show import runs, show
from headroom.errors import HeadroomError, UserError

OWN_FAILURE = 125
INTERRUPTED = 130

app = typer.Typer(
    name="headroom",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Everything after PROGRAM is the program's, so its options are not looked at.
_OURS_FIRST = {"allow_interspersed_args": False}
app.command(context_settings=_OURS_FIRST)(fix)
app.command(context_settings=_OURS_FIRST)(run)
app.command()(show)
app.command()(runs)
app.command()(apply)


def _version(asked: bool) -> None:
    if asked:
        print(f"headroom {__version__}")
        raise typer.Exit


@app.callback()
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
    try:
        code = app(args=words, prog_name="headroom", standalone_mode=False)
    except HeadroomError as error:
        print_error(error)
        sys.exit(OWN_FAILURE if runs_program else error.exit_code)
    except TyperException as error:
        print_error(UserError(error.format_message(), " ".join(("headroom", *words[:1], "--help"))))
        sys.exit(OWN_FAILURE if runs_program else UserError.exit_code)
    except Exception as error:
        print_error(internal_error(error))
        sys.exit(OWN_FAILURE)
    if code == INTERRUPTED and not runs_program:
        to_stderr().print("headroom: interrupted; what was done so far is kept: headroom runs")
    sys.exit(code if isinstance(code, int) else 0)


def internal_error(error: Exception) -> HeadroomError:
    """A bug of ours in one sentence; the traceback goes into a file that can be sent."""
    handle, path = tempfile.mkstemp(prefix="headroom-error-", suffix=".txt")
    with os.fdopen(handle, "w") as file:
        file.write(f"headroom {__version__}\n{traceback.format_exc()}")
    return HeadroomError(
        f"this is a bug of Headroom's own ({type(error).__name__}: {error}); nothing of yours was changed",
        f"cat {path}   (please report what it says)",
    )


if __name__ == "__main__":
    main()
