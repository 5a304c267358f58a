"""Options that several commands share, declared once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Choice = Literal["auto", "cuda", "virtual"]
WHAT = "What runs"
WHERE = "Where it runs"

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="PROGRAM [ARGS]...", help="A script and its arguments."),
]
Module = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--module",
        metavar="MODULE",
        help="Run a module instead; ARGS follow.",
        rich_help_panel=WHAT,
    ),
]
Python = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="The program's interpreter. [default: the active environment]",
        rich_help_panel=WHAT,
    ),
]
Updates = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Stop the program after N updates.", rich_help_panel=WHAT
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        max=2**32 - 1,  # what numpy takes
        help="Seeds random, numpy and torch before the program starts.",
        rich_help_panel=WHAT,
    ),
]
DeviceOption = Annotated[
    Choice,
    typer.Option("--device", help="A real GPU, or the virtual one.", rich_help_panel=WHERE),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        metavar="CARD",
        help="The card that the virtual GPU simulates. [default: h200]",
        rich_help_panel=WHERE,
    ),
]
Capacity = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Cap what the device gives, such as 24GiB.", rich_help_panel=WHERE
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Let the program keep a variable that looks like a secret.",
        rich_help_panel=WHERE,
    ),
]
Network = Annotated[
    bool,
    typer.Option(
        "--allow-network", help="Let the program reach the network.", rich_help_panel=WHERE
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="End a run whose processes hold more host memory.",
        rich_help_panel=WHERE,
    ),
]
StoreFolder = Annotated[
    Path | None,
    typer.Option(
        "--store", metavar="FOLDER", help="Where runs are kept. [default: .headroom here]"
    ),
]
SnapshotDevice = Annotated[
    int | None,
    typer.Option("--device", min=0, metavar="N", help="One device of the snapshot only."),
]
Source = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where the program's files are: shows lines, drafts patches."),
]
Sample = Annotated[bool, typer.Option("--sample", help="Take a bundled real capture.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
