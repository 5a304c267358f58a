"""`.headroom/`: runs and campaigns as folders of versioned files. Files are the truth; nothing else is kept.

.headroom/runs/RUN/        record.json, events.jsonl, config.json, stdout.txt, stderr.txt, snapshot.pickle
.headroom/campaigns/ID/    contract.json, journal.jsonl, result.json, patch.diff, report.md, packs/
"""

import json
import os
import secrets
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from headroom.errors import PrerequisiteError, UserError
from headroom.files import write_atomically
from headroom.journal import read_journal
from headroom.records.contract import Contract
from headroom.records.run import RunRecord
from headroom.records.trial import CampaignResult

R = TypeVar("R", RunRecord, CampaignResult, Contract)

FOLDER: Final = ".headroom"
VARIABLE: Final = "HEADROOM_STORE"


class Store:
    """The runs and campaigns under one folder.

    Args:
        folder: The store's own folder; made when something is first written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def locate(cls, given: Path | None, cwd: Path) -> "Store":
        """The store to use: the one given, else `HEADROOM_STORE`, else `.headroom` in the working directory."""
        variable = os.environ.get(VARIABLE)
        return cls((given or (Path(variable) if variable else cwd / FOLDER)).absolute())

    def prepare(self) -> None:
        """Make sure that the store can be written.

        Raises:
            PrerequisiteError: It cannot.
        """
        try:
            (self.folder / "runs").mkdir(parents=True, exist_ok=True)
            (self.folder / "campaigns").mkdir(exist_ok=True)
            ignore = self.folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
            probe = self.folder / f".write-{secrets.token_hex(4)}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise PrerequisiteError(
                f"{self.folder} cannot be written ({error.strerror})",
                f"{VARIABLE}=/some/writable/folder headroom ...",
            ) from None

    def new_run(self) -> tuple[str, Path]:
        """A fresh run ID and its empty folder."""
        return self._new("runs", "run")

    def new_campaign(self) -> tuple[str, Path]:
        """A fresh campaign ID and its empty folder."""
        return self._new("campaigns", "fix")

    def _new(self, kind: str, prefix: str) -> tuple[str, Path]:
        # Milliseconds first, so that names sort in the order in which things were started.
        now = datetime.now()
        name = f"{prefix}-{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}{secrets.token_hex(1)}"
        folder = self.folder / kind / name
        folder.mkdir(parents=True)
        return name, folder

    def run_folder(self, run_id: str) -> Path:
        """Where a run's artifacts lie."""
        return self.folder / "runs" / run_id

    def campaign_folder(self, campaign_id: str) -> Path:
        """Where a campaign's files lie."""
        return self.folder / "campaigns" / campaign_id

    def save_run(self, record: RunRecord) -> None:
        """Write a run's record into its folder."""
        write_atomically(self.run_folder(record.run_id) / "record.json", record.to_json())

    def runs(self) -> Iterator[RunRecord]:
        """All runs that have a record, oldest first. Unreadable ones are skipped; `run` says why."""
        for path in sorted((self.folder / "runs").glob("*/record.json")):
            try:
                yield RunRecord.from_json(path.read_text())
            except (OSError, ValueError, ValidationError, UserError):
                continue

    def results(self) -> Iterator[CampaignResult]:
        """All finished campaigns, oldest first."""
        for path in sorted((self.folder / "campaigns").glob("*/result.json")):
            try:
                yield CampaignResult.from_json(path.read_text())
            except (OSError, ValueError, ValidationError, UserError):
                continue

    def unfinished(self) -> Iterator[tuple[str, Contract, str]]:
        """Campaigns without a result, oldest first: ID, contract, and how the journal ends."""
        for path in sorted((self.folder / "campaigns").glob("*/contract.json")):
            journal = path.parent / "journal.jsonl"
            if (path.parent / "result.json").exists() or not journal.exists():
                continue
            last = read_journal(journal)[-1:]
            try:
                contract = Contract.from_json(path.read_text())
                yield path.parent.name, contract, how_it_ended(last)
            except (OSError, ValueError, ValidationError, UserError):
                continue

    def find(self, name: str) -> str:
        """The full ID for `name`: itself, a part that only one run or campaign has, or `last`.

        `last` is the last thing that the user started; a campaign's own runs do not count.

        Raises:
            UserError: None or several fit.
        """
        names = sorted(
            path.name
            for kind in ("runs", "campaigns")
            for path in (self.folder / kind).glob("*")
            if path.is_dir()
        )
        if name == "last" and names:
            return self._last(names)
        matching = [found for found in names if name in found]
        if name in names:
            return name
        if len(matching) == 1:
            return matching[0]
        trouble = "fits several" if matching else "is no run or campaign in"
        raise UserError(f"{name!r} {trouble} {self.folder}", "headroom runs")

    def _last(self, names: list[str]) -> str:
        of_campaigns = {record.run_id for record in self.runs() if record.campaign_id is not None}
        own = [name for name in names if name not in of_campaigns] or names
        return max(own, key=lambda name: name.split("-", 1)[1])

    def run(self, run_id: str) -> RunRecord:
        """Read one run's record.

        Raises:
            UserError: It has none, or it cannot be read.
        """
        return self._read(RunRecord, self.run_folder(run_id) / "record.json")

    def result(self, campaign_id: str) -> CampaignResult:
        """Read one campaign's result.

        Raises:
            UserError: It has none, or it cannot be read.
        """
        return self._read(CampaignResult, self.campaign_folder(campaign_id) / "result.json")

    def contract(self, campaign_id: str) -> Contract:
        """Read one campaign's contract.

        Raises:
            UserError: It has none, or it cannot be read.
        """
        return self._read(Contract, self.campaign_folder(campaign_id) / "contract.json")

    @staticmethod
    def _read(kind: type[R], path: Path) -> R:
        try:
            return kind.from_json(path.read_text())
        except OSError:
            raise UserError(
                f"{path.parent.name} has no {path.name}: it was not finished", "headroom runs"
            ) from None
        except (ValidationError, json.JSONDecodeError) as error:
            raise UserError(
                f"{path} is damaged: {str(error).splitlines()[0]}", "headroom runs"
            ) from None


def how_it_ended(last: list[dict[str, Any]]) -> str:
    """What the last entry of a journal says of a campaign that has no result."""
    if last and last[0]["kind"] == "interrupted":
        return "interrupted"
    if last and last[0]["kind"] == "ended":
        return f"ended: {last[0].get('error', '')}"
    return "not finished"
