"""What the detectors make of an analysed snapshot: causes, and draft patches where the source is there and fits."""

import os.path
from collections.abc import Sequence
from dataclasses import dataclass

from headroom.agents.checked import check_diagnosis
from headroom.agents.detectors import detect
from headroom.agents.edits import apply_patch, unified_diff
from headroom.agents.foreign import infer_call_sites
from headroom.agents.playbook import Playbook
from headroom.agents.protocol import Evidence
from headroom.agents.text import source_bytes
from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.records.diagnosis import Candidate, Cause
from headroom.records.run import CallSite
from headroom.snapshots.sources import Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A cause, and the first patch against it with its unified diff, which nobody has run; None where there is none."""

    cause: Cause
    candidate: Candidate | None = None
    diff: str | None = None


def diagnose(
    device: DeviceAnalysis,
    *,
    sources: Sources,
    roots: tuple[str, ...] = (),
    call_sites: tuple[CallSite, ...] | None = None,
    parameters_bytes: int = 0,
) -> tuple[Draft, ...]:
    """Ask the playbook, then the ledger alone; largest first, one draft a cause.

    Args:
        device: The device.
        sources: The program's files, by the path that the frames name.
        roots: Folders of the program.
        call_sites: What the recorder saw of module calls; inferred from the stacks where it saw none.
        parameters_bytes: Bytes of the parameters, where they are known.
    """
    evidence = Evidence(
        ledger=device.ledger,
        call_sites=infer_call_sites(device) if call_sites is None else call_sites,
        sources=sources.texts,
        parameters_bytes=parameters_bytes,
        pack="",
        roots=roots,
        device=device,
    )
    playbook = Playbook()
    diagnosis = check_diagnosis(playbook.diagnose(evidence), evidence).diagnosis
    candidates = playbook.propose(evidence, diagnosis, ())
    drafts = [_draft(cause, candidates, sources) for cause in diagnosis.causes]
    explained = {stack for draft in drafts for stack in draft.cause.stack_ids}
    drafts += [
        Draft(cause=cause)
        for cause in detect(device)
        if not (cause.stack_ids and set(cause.stack_ids) <= explained)
    ]
    return tuple(sorted(drafts, key=lambda draft: -draft.cause.peak_bytes))


def _draft(cause: Cause, candidates: Sequence[Candidate], sources: Sources) -> Draft:
    candidate = next((one for one in candidates if one.cause == cause), None)
    if candidate is None:
        return Draft(cause=cause)
    return Draft(cause=cause, candidate=candidate, diff=diff_of(candidate, sources))


def diff_of(candidate: Candidate, sources: Sources) -> str:
    """The patch as a diff of the local files, with paths below the folder that they share."""
    before = {path: source_bytes(text) for path, text in sources.texts.items()}
    after = apply_patch(candidate.patch, before).files
    local = {path: str(sources.files.get(path, path)) for path in after}
    folders = [os.path.dirname(path) for path in local.values()]  # noqa: PTH120 - text only
    root = os.path.commonpath(folders) if folders else "/"
    return unified_diff(
        {local[path]: before[path] for path in after},
        {local[path]: content for path, content in after.items()},
        root,
    )
