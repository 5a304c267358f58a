"""`headroom fix`: repair a program under a sealed contract."""

import hashlib
import os
from pathlib import Path
from typing import Annotated

import typer

from headroom.agents.playbook import Playbook
from headroom.campaign.campaign import run_campaign
from headroom.campaign.runner import Settings
from headroom.campaign.target import parse_target
from headroom.cli import options as opt
from headroom.cli.device import Chosen, choose_device, parse_capacity
from headroom.cli.output import print_json, set_json, to_stderr, to_stdout
from headroom.cli.program import find_program
from headroom.cli.run import parse_limit
from headroom.errors import PrerequisiteError
from headroom.records.contract import Budgets, Contract, Level, Policy
from headroom.records.run import Program
from headroom.records.trial import CampaignResult
from headroom.report.fix import print_result, to_markdown
from headroom.report.live import Live
from headroom.report.text import plain
from headroom.sandbox.process import ProcessSandbox
from headroom.store import Store, write_atomically

MET, NOT_MET, OUT_OF_BUDGET = 0, 1, 4


def fix(
    words: opt.Words = None,
    module: opt.Module = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="fit|60%|SIZE",
            help="The peak to reach. [default: fit after an out-of-memory error, else 70%]",
        ),
    ] = None,
    capacity: opt.Capacity = None,
    rounds: Annotated[int, typer.Option(min=1, max=6, help="Rounds of diagnose, patch, try.")] = 6,
    seconds: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Budget of the whole campaign.")
    ] = 3600,
    require: Annotated[
        Level, typer.Option(help="Keep nothing whose evidence is weaker.")
    ] = "predicted",
    updates: opt.Updates = None,
    seed: opt.Seed = 0,
    python: opt.Python = None,
    device: opt.DeviceOption = "auto",
    gpu: opt.Gpu = None,
    memory_limit: opt.MemoryLimit = None,
    env: opt.Env = None,
    allow_network: opt.Network = False,
    store: opt.StoreFolder = None,
    json: opt.Json = False,
) -> None:
    """Lower a program's peak, or make it fit, without changing what it computes.

    Your files stay as they are until `headroom apply`. Exit codes: 0 target met and a patch kept (on the virtual GPU
    this is a prediction), 1 not met, 2 the command line or the program has to change first, 3 something is missing
    here, 4 a budget ran out.
    """
    set_json(json)
    # Checked first: it costs nothing, and everything after it takes time.
    wanted, capacity_bytes, limit_bytes = (
        parse_target(target),
        parse_capacity(capacity),
        parse_limit(memory_limit),
    )
    if require == "verified":
        raise PrerequisiteError(
            "nothing can be verified yet: this version makes no confirmation runs",
            "headroom fix --require measured ...",
        )
    program, interpreter = find_program(
        "fix", words or [], module, python, devices=device != "virtual"
    )
    chosen = choose_device(device, gpu, interpreter)
    if require == "measured" and chosen.device == "virtual":
        raise PrerequisiteError(
            "a measurement needs a real GPU, and this run would be on the virtual one",
            "headroom fix --require predicted ...",
        )
    kept = Store.locate(store, cwd=Path(program.cwd))
    kept.prepare()
    contract = Contract(
        program=program,
        sources=entry_hash(program),
        device=chosen.device,
        card=chosen.name,
        capacity_bytes=capacity_bytes,
        target=wanted,
        policy=Policy(require=require),
        budgets=Budgets(rounds=rounds, seconds=seconds),
        seed=seed,
        updates_limit=updates,
        network=allow_network,
    ).seal()
    result = _work(
        contract,
        chosen,
        kept,
        Settings(
            keep_environment=tuple(env or ()), memory_limit_bytes=limit_bytes, card=chosen.card
        ),
    )
    write_atomically(kept.campaign_folder(result.campaign_id) / "report.md", to_markdown(result))
    if json:
        print_json(result.to_json())
    else:
        print_result(to_stdout(), result)
    raise typer.Exit(exit_code(result))


def _work(contract: Contract, chosen: Chosen, store: Store, settings: Settings) -> CampaignResult:
    console = to_stderr()
    if chosen.note:
        console.print(plain(chosen.note, "dim"))
    live = Live(console)
    try:
        return run_campaign(
            contract,
            agent=Playbook(),
            sandbox=ProcessSandbox(os.environ),
            store=store,
            listener=live,
            settings=settings,
            screening=chosen.device == "cuda",
        )
    finally:
        live.close()


def entry_hash(program: Program) -> dict[str, str]:
    """SHA-256 of the program's entry file."""
    if program.kind != "script":
        return {}
    content = Path(program.target).read_bytes()
    return {program.target: hashlib.sha256(content).hexdigest()}


def exit_code(result: CampaignResult) -> int:
    """0 when the target is met and a patch kept, 4 when a budget ended the campaign before that, else 1."""
    if result.target_met and result.kept is not None:
        return MET
    return OUT_OF_BUDGET if result.stopped_by is not None else NOT_MET
