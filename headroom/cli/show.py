"""`headroom show` and `headroom runs`: what the store holds."""

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headroom.cli import options as opt
from headroom.cli.output import print_json, set_json, to_stdout
from headroom.errors import UserError
from headroom.report.fix import headline, print_result
from headroom.report.run import print_run
from headroom.report.text import plain
from headroom.store import Store
from headroom.units import format_bytes


def show(
    name: Annotated[
        str, typer.Argument(metavar="RUN|CAMPAIGN", help="An ID, a unique part of one, or `last`.")
    ] = "last",
    store: opt.StoreFolder = None,
    json: opt.Json = False,
) -> None:
    """Show a run or a campaign."""
    set_json(json)
    kept = Store.locate(store, cwd=Path.cwd())
    found = kept.find(name)
    if found.startswith("run-"):
        record = kept.run(found)
        if json:
            print_json(record.to_json())
        else:
            print_run(to_stdout(), record)
        return
    for campaign_id, contract, ended in kept.unfinished():
        if campaign_id == found:
            raise UserError(
                f"the campaign over {contract.program.label} has no result ({ended}); "
                f"its journal is {kept.campaign_folder(found) / 'journal.jsonl'}",
                "headroom runs --all",
            )
    result = kept.result(found)
    if json:
        print_json(result.to_json())
    else:
        print_result(to_stdout(), result)


def runs(
    everything: Annotated[
        bool, typer.Option("--all", help="The runs that campaigns made, too.")
    ] = False,
    store: opt.StoreFolder = None,
    json: opt.Json = False,
) -> None:
    """List runs and campaigns, oldest first."""
    set_json(json)
    kept = Store.locate(store, cwd=Path.cwd())
    rows = _rows(kept, everything=everything)
    if json:
        print_json(jsonlib.dumps(rows, indent=2))
        return
    if not rows:
        raise UserError(f"{kept.folder} holds no runs yet", "headroom run train.py")
    table = Table(box=None, pad_edge=False)
    table.add_column("ID", no_wrap=True)
    for column in ("program", "device", "result", "peak"):
        table.add_column(column, overflow="fold")
    for row in rows:
        peak = row["peak_allocated_bytes"]
        table.add_row(
            *(plain(str(row[key])) for key in ("id", "program", "device", "result")),
            format_bytes(peak) if peak is not None else "",
        )
    to_stdout().print(table)


def _rows(store: Store, *, everything: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "id": record.run_id,
            "kind": "run",
            "program": record.program.label,
            "device": record.device,
            "result": record.outcome,
            "peak_allocated_bytes": record.peak_allocated_bytes,
        }
        for record in store.runs()
        if everything or record.campaign_id is None
    ]
    rows += [
        {
            "id": result.campaign_id,
            "kind": "campaign",
            "program": result.program,
            "device": result.device,
            "result": headline(result),
            "peak_allocated_bytes": result.after_peak_bytes or result.before_peak_bytes,
        }
        for result in store.results()
    ]
    rows += [
        {
            "id": campaign_id,
            "kind": "campaign",
            "program": contract.program.label,
            "device": contract.device,
            "result": ended,
            "peak_allocated_bytes": None,
        }
        for campaign_id, contract, ended in store.unfinished()
    ]
    return sorted(rows, key=lambda row: row["id"].split("-", 1)[1])
