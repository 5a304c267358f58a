"""Snapshots of runs: of the store, and the bundled one; with everything that the recorder saw beside them."""

import hashlib
from dataclasses import replace
from pathlib import Path

from headroom.agents.text import source_bytes
from headroom.cli.snapshots import Loaded
from headroom.errors import HeadroomError, UserError
from headroom.records.run import RunRecord
from headroom.sample import sample_folder, sample_source_folder
from headroom.snapshots.files import plain_file
from headroom.snapshots.reader import read_analysis
from headroom.snapshots.recorded import device_facts, facts_of, read_sources, read_walks
from headroom.snapshots.sources import Sources, find_sources
from headroom.store import Store


def load_stored(
    name: str, *, store: Path | None, source: Path | None, device: int | None
) -> Loaded:
    """Read the snapshot of a run in the store.

    Raises:
        UserError: There is no such run, or it left no snapshot.
    """
    try:
        kept = Store.locate(store, cwd=Path.cwd())
        record = kept.run(kept.find(name))
    except HeadroomError:
        raise UserError(
            f"{name} is no file here, and no run of the store", "headroom analyze --sample"
        ) from None
    return load_run(record, kept.run_folder(record.run_id), source=source, device=device)


def load_run(
    record: RunRecord, folder: Path, *, source: Path | None = None, device: int | None = None
) -> Loaded:
    """Read the snapshot of a run, with everything that the recorder saw beside it.

    Raises:
        UserError: The run left none.
    """
    if record.snapshot is None:
        raise UserError(
            f"{record.run_id} has no snapshot: it was a {record.purpose} pass, or ended before it wrote one",
            f"headroom run --pass trace {record.program.typed}",
        )
    walks, unread = read_walks(record, folder)
    with plain_file(folder / record.snapshot) as plain:
        analysis = read_analysis(
            plain,
            device=device,
            roots=record.program.roots,
            walks=walks,
            facts=device_facts(record),
        )
    sources = run_sources(record) if source is None else find_sources(analysis, source)
    return Loaded(
        title=f"{record.program.label} ({record.run_id})",
        analysis=replace(
            analysis,
            notes=(*analysis.notes, *unread, *sources.notes, *caught(record)),
            facts=facts_of(record),
        ),
        sources=sources,
        record=record,
    )


def load_bundled(*, device: int | None = None) -> Loaded:
    """The bundled capture: a real run on an H200 that evaluates without `no_grad`."""
    folder = sample_folder()
    record = RunRecord.from_json((folder / "record.json").read_text())
    return load_run(record, folder, source=sample_source_folder(), device=device)


def caught(record: RunRecord) -> tuple[str, ...]:
    """A note where the program went on after running out of memory."""
    if record.oom is None or record.outcome == "oom":
        return ()
    times = "once" if record.oom.count == 1 else f"{record.oom.count} times"
    return (f"the program ran out of memory {times}, caught the error and went on",)


def run_sources(record: RunRecord) -> Sources:
    """The program's own files where they are still those of the run: lines of another version would mislead."""
    texts = read_sources(record, {})
    current = {
        path: text
        for path, text in texts.items()
        if hashlib.sha256(source_bytes(text)).hexdigest() == record.sources.get(path)
    }
    changed = sorted(set(texts) - set(current))
    notes = tuple(
        f"{len(changed)} of the program's files have changed since the run: {first}"
        for first in changed[:1]
    )
    return Sources(
        texts=current,
        files={path: Path(path) for path in current},
        notes=notes,
    )
