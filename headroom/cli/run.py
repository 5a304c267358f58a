"""`headroom run`: run a program once, recorded."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from headroom.cli import options as opt
from headroom.cli.device import choose_device, parse_capacity
from headroom.cli.output import print_json, set_json, to_stderr
from headroom.cli.program import find_program
from headroom.errors import UserError
from headroom.report.run import one_line
from headroom.report.text import plain
from headroom.sandbox.process import ProcessSandbox
from headroom.sandbox.protocol import Limits, RunRequest, Terminal
from headroom.store import Store
from headroom.units import parse_bytes

SIGNAL_BASE = 128


def run(
    words: opt.Words = None,
    module: opt.Module = None,
    purpose: Annotated[
        Literal["measure", "trace"],
        typer.Option("--pass", help="measure: unperturbed; trace: with the allocator's history."),
    ] = "measure",
    updates: opt.Updates = None,
    seed: opt.Seed = 0,
    python: opt.Python = None,
    device: opt.DeviceOption = "auto",
    gpu: opt.Gpu = None,
    capacity: opt.Capacity = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="End the run after this long.",
            rich_help_panel=opt.WHERE,
        ),
    ] = None,
    memory_limit: opt.MemoryLimit = None,
    env: opt.Env = None,
    allow_network: opt.Network = False,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place", help="Let the program write into your folder.", rich_help_panel=opt.WHERE
        ),
    ] = False,
    store: opt.StoreFolder = None,
    json: opt.Json = False,
) -> None:
    """Run a program once, unmodified, and record its memory.

    Headroom's options come before PROGRAM. The exit code is the program's own; 125 is Headroom's own failure.
    """
    set_json(json)
    # Checked first: it costs nothing, and everything after it takes time.
    capacity_bytes, limit_bytes = parse_capacity(capacity), parse_limit(memory_limit)
    program, interpreter = find_program(
        "run", words or [], module, python, devices=device != "virtual"
    )
    chosen = choose_device(device, gpu, interpreter)
    console = to_stderr()
    if chosen.note:
        console.print(plain(chosen.note, "dim"))
    kept = Store.locate(store, cwd=Path(program.cwd))
    kept.prepare()
    run_id, folder = kept.new_run()
    record = ProcessSandbox(in_place=in_place).run(
        RunRequest(
            run_id=run_id,
            folder=folder,
            program=program,
            purpose=purpose,
            device=chosen.device,
            card=chosen.card,
            capacity_bytes=capacity_bytes,
            seed=seed,
            updates=updates,
            limits=Limits(seconds=timeout, memory_bytes=limit_bytes),
            network=allow_network,
            keep_environment=tuple(env or ()),
        ),
        Terminal(
            stdout=sys.stderr.buffer if json else sys.stdout.buffer,
            stderr=sys.stderr.buffer,
            stdin=True,
        ),
    )
    kept.save_run(record)
    if json:
        print_json(record.to_json())
    else:
        console.print(plain(f"headroom: {one_line(record)}", "dim"), soft_wrap=True)
    raise typer.Exit(exit_code(record.exit_code, record.signal))


def exit_code(code: int | None, signal_name: str | None) -> int:
    """The program's exit code as a shell gives it: 128 + the signal's number where a signal ended it."""
    if code is not None:
        return code
    return SIGNAL_BASE + (signal.Signals[signal_name] if signal_name else signal.SIGKILL)


def parse_limit(text: str | None) -> int | None:
    """Read `--memory-limit`.

    Raises:
        UserError: It is no size.
    """
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UserError(f"--memory-limit: {error}", "headroom ... --memory-limit 16GiB") from None
