"""`headroom run`: run a program once, recorded."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from headroom.cli import options as opt
from headroom.cli.device import choose_device, parse_capacity, parse_limit
from headroom.cli.output import print_json, set_json, to_stderr
from headroom.cli.program import find_program
from headroom.records.run import Pass, RunRecord
from headroom.report.run import one_line
from headroom.report.text import plain
from headroom.sandbox.process import ProcessSandbox
from headroom.sandbox.protocol import Limits, RunRequest, Terminal
from headroom.store import Store

SIGNAL_BASE = 128

Purpose = Annotated[
    Pass,
    typer.Option("--pass", help="measure: unperturbed; trace: with the allocator's history."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.1, metavar="SECONDS", help="End the run after this long.", rich_help_panel=opt.WHERE
    ),
]
InPlace = Annotated[
    bool,
    typer.Option(
        "--in-place", help="Let the program write into your folder.", rich_help_panel=opt.WHERE
    ),
]


def run(
    words: opt.Words = None,
    module: opt.Module = None,
    purpose: Purpose = "measure",
    updates: opt.Updates = None,
    seed: opt.Seed = 0,
    python: opt.Python = None,
    device: opt.DeviceOption = "auto",
    gpu: opt.Gpu = None,
    capacity: opt.Capacity = None,
    timeout: Timeout = None,
    memory_limit: opt.MemoryLimit = None,
    env: opt.Env = None,
    allow_network: opt.Network = False,
    in_place: InPlace = False,
    store: opt.StoreFolder = None,
    json: opt.Json = False,
) -> None:
    """Run a program once, unmodified, and record its memory.

    Headroom's options come before PROGRAM. The exit code is the program's own; 125 is Headroom's own failure.
    """
    set_json(json)
    # Read first: it costs nothing, and everything after it takes time.
    capacity_bytes, limit_bytes = parse_capacity(capacity), parse_limit(memory_limit)
    devices = device != "virtual"
    program, interpreter = find_program("run", words or [], module, python, devices=devices)
    chosen = choose_device(device, gpu, interpreter)
    if chosen.note:
        to_stderr().print(plain(chosen.note, "dim"))
    kept = Store.locate(store, cwd=Path(program.cwd))
    kept.prepare()
    run_id, folder = kept.new_run()
    request = RunRequest(
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
    )
    record = ProcessSandbox(os.environ, in_place=in_place).run(request, _terminal(as_json=json))
    kept.save_run(record)
    _tell(record, as_json=json)


def _terminal(*, as_json: bool) -> Terminal:
    """The program's output goes where it would, except that standard output is ours alone when it holds JSON."""
    stdout = sys.stderr.buffer if as_json else sys.stdout.buffer
    return Terminal(stdout=stdout, stderr=sys.stderr.buffer, stdin=True)


def _tell(record: RunRecord, *, as_json: bool) -> None:
    if as_json:
        print_json(record.to_json())
    else:
        to_stderr().print(plain(f"headroom: {one_line(record)}", "dim"), soft_wrap=True)
    raise typer.Exit(exit_code(record.exit_code, record.signal))


def exit_code(code: int | None, signal_name: str | None) -> int:
    """The program's exit code as a shell gives it: 128 + the signal's number where a signal ended it."""
    if code is not None:
        return code
    return SIGNAL_BASE + (signal.Signals[signal_name] if signal_name else signal.SIGKILL)
