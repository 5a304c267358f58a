"""One campaign from sealed contract to result."""

from collections.abc import Callable

from headroom.agents.protocol import Agent
from headroom.campaign.control import run_control
from headroom.campaign.listener import Listener
from headroom.campaign.result import summarise
from headroom.campaign.rounds import Rounds, State
from headroom.campaign.runner import Runner, Settings
from headroom.campaign.target import resolve_target
from headroom.errors import BudgetError
from headroom.files import write_atomically
from headroom.journal import Journal
from headroom.records.contract import Contract
from headroom.records.trial import CampaignResult
from headroom.sandbox.protocol import Sandbox
from headroom.screen import Screen
from headroom.store import Store


def run_campaign(
    contract: Contract,
    *,
    agent: Agent,
    sandbox: Sandbox,
    store: Store,
    listener: Listener,
    settings: Settings,
    screening: bool,
) -> CampaignResult:
    """Run a campaign. Everything it did is in the journal, however it ends.

    Args:
        contract: Sealed.
        agent: Diagnoses and proposes.
        sandbox: Runs the program.
        store: Keeps runs and campaign.
        listener: Is told what happens.
        settings: How to run.
        screening: Whether candidates are tried on the virtual GPU before they are on the real one.

    Raises:
        UserError: The program or the target makes a campaign pointless.
        BudgetError: The seconds ran out before the control had finished.
        KeyboardInterrupt: The user stopped it.
    """
    campaign_id, folder = store.new_campaign()
    journal = Journal(folder / "journal.jsonl")
    write_atomically(folder / "contract.json", contract.to_json())
    journal.append("sealed", digest=contract.sealed, program=contract.program.label)
    listener.planned(contract, sandbox.describe(network=contract.network))
    runner = Runner(
        campaign_id=campaign_id,
        contract=contract,
        sandbox=sandbox,
        store=store,
        journal=journal,
        listener=listener,
        settings=settings,
    )
    screen = Screen(runner, available=screening)
    rounds = Rounds(
        runner=runner, agent=agent, screen=screen, store=store, journal=journal, listener=listener
    )
    result = _journalled(journal, lambda: _run(runner, rounds))
    write_atomically(folder / "result.json", result.to_json())
    write_atomically(folder / "patch.diff", result.patch)
    return result


def _journalled(journal: Journal, work: Callable[[], CampaignResult]) -> CampaignResult:
    """Do the work; the journal says how it ended, whatever way that was."""
    try:
        result = work()
    except KeyboardInterrupt:
        journal.append("interrupted")
        raise
    except Exception as error:
        journal.append("ended", error=str(error))
        raise
    journal.append(
        "ended",
        verdict=result.verdict,
        equivalence=result.equivalence,
        target_met=result.target_met,
    )
    return result


def _run(runner: Runner, rounds: Rounds) -> CampaignResult:
    control = run_control(runner)
    state = State(
        control=control,
        target_bytes=resolve_target(runner.contract.target, control.measured),
        best=control.measured,
        traced=control.traced,
    )
    stopped = None
    try:
        rounds.work(state)
    except BudgetError as error:
        stopped = error.message
    return summarise(runner, state, stopped)
