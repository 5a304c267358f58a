"""`headroom fix`: repair a program under a sealed contract."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headroom.agents.playbook import Playbook
from headroom.campaign.campaign import run_campaign
from headroom.campaign.runner import Settings
from headroom.campaign.target import parse_target
from headroom.cli import options as opt
from headroom.cli.device import Chosen, choose_device, parse_capacity, parse_limit
from headroom.cli.output import print_json, set_json, to_stderr, to_stdout
from headroom.cli.program import find_program
from headroom.errors import PrerequisiteError
from headroom.files import write_atomically
from headroom.records.contract import Budgets, Contract, Level, Policy, Target
from headroom.records.run import Program
from headroom.records.trial import CampaignResult
from headroom.report.fix import print_result, to_markdown
from headroom.report.live import Live
from headroom.report.text import plain
from headroom.sandbox.process import ProcessSandbox
from headroom.store import Store

MET, NOT_MET, OUT_OF_BUDGET = 0, 1, 4

TargetText = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="fit|60%|SIZE",
        help="The peak to reach. [default: fit after an out-of-memory error, else 70%]",
    ),
]
Rounds = Annotated[int, typer.Option(min=1, max=6, help="Rounds of diagnose, patch, try.")]
Seconds = Annotated[
    float, typer.Option(min=1, metavar="SECONDS", help="Budget of the whole campaign.")
]
Require = Annotated[Level, typer.Option(help="Keep nothing whose evidence is weaker.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What was typed, read and found to make sense; everything that goes into the contract but the program."""

    target: Target
    policy: Policy
    budgets: Budgets
    capacity_bytes: int | None
    seed: int
    updates: int | None
    network: bool


def fix(
    words: opt.Words = None,
    module: opt.Module = None,
    target: TargetText = None,
    capacity: opt.Capacity = None,
    rounds: Rounds = 6,
    seconds: Seconds = 3600,
    require: Require = "predicted",
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
    here, 4 a budget ran out, 125 a bug of Headroom's own.
    """
    set_json(json)
    # Read first: it costs nothing, and everything after it takes time.
    terms = Terms(
        target=parse_target(target),
        policy=Policy(require=require),
        budgets=Budgets(rounds=rounds, seconds=seconds),
        capacity_bytes=parse_capacity(capacity),
        seed=seed,
        updates=updates,
        network=allow_network,
    )
    limit_bytes = parse_limit(memory_limit)
    program, chosen = _find("fix", words, module, python, device, gpu, require)
    kept = Store.locate(store, cwd=Path(program.cwd))
    kept.prepare()
    settings = Settings(
        keep_environment=tuple(env or ()), memory_limit_bytes=limit_bytes, card=chosen.card
    )
    _carry_out(seal(terms, program, chosen), chosen, kept, settings, as_json=json)


def _find(
    command: str,
    words: list[str] | None,
    module: str | None,
    python: str | None,
    device: opt.Choice,
    gpu: str | None,
    require: Level,
) -> tuple[Program, Chosen]:
    """The program and the device, if they can give what the contract will require."""
    if require == "verified":
        raise PrerequisiteError(
            "nothing can be verified yet: this version makes no confirmation runs",
            "headroom fix --require measured ...",
        )
    devices = device != "virtual"
    program, interpreter = find_program(command, words or [], module, python, devices=devices)
    chosen = choose_device(device, gpu, interpreter)
    if require == "measured" and chosen.device == "virtual":
        raise PrerequisiteError(
            "a measurement needs a real GPU, and this run would be on the virtual one",
            "headroom fix --require predicted ...",
        )
    return program, chosen


def seal(terms: Terms, program: Program, chosen: Chosen) -> Contract:
    """The contract of a campaign, before any compute is spent."""
    return Contract(
        program=program,
        sources=entry_hash(program),
        device=chosen.device,
        card=chosen.name,
        capacity_bytes=terms.capacity_bytes,
        target=terms.target,
        policy=terms.policy,
        budgets=terms.budgets,
        seed=terms.seed,
        updates_limit=terms.updates,
        network=terms.network,
    ).seal()


def _carry_out(
    contract: Contract, chosen: Chosen, store: Store, settings: Settings, *, as_json: bool
) -> None:
    console = to_stderr()
    if chosen.note:
        console.print(plain(chosen.note, "dim"))
    live = Live(console)
    try:
        result = run_campaign(
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
    report = store.campaign_folder(result.campaign_id) / "report.md"
    write_atomically(report, to_markdown(result))
    if as_json:
        print_json(result.to_json())
    else:
        print_result(to_stdout(), result)
    raise typer.Exit(exit_code(result))


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
