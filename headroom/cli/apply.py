"""`headroom apply`: put a campaign's patch into the user's files."""

import contextlib
import hashlib
import json as jsonlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from headroom.agents.edits import apply_patch
from headroom.cli import options as opt
from headroom.cli.output import print_json, set_json, to_stdout
from headroom.errors import PatchError, PrerequisiteError, UserError
from headroom.records.patch import Patch
from headroom.report.text import plain
from headroom.store import Store


def apply(
    name: Annotated[
        str, typer.Argument(metavar="CAMPAIGN", help="An ID, a unique part of one, or `last`.")
    ],
    check: Annotated[bool, typer.Option("--check", help="Only say whether it applies.")] = False,
    store: opt.StoreFolder = None,
    json: opt.Json = False,
) -> None:
    """Apply a campaign's patch to your files; refused when one of them has changed since."""
    set_json(json)
    kept = Store.locate(store, cwd=Path.cwd())
    campaign_id = kept.find(name)
    if not campaign_id.startswith("fix-"):
        raise UserError(f"{campaign_id} is a run, and only a campaign has a patch", "headroom runs")
    result = kept.result(campaign_id)
    if result.kept is None:
        raise UserError(f"{campaign_id} kept no patch", f"headroom show {campaign_id}")
    if is_applied(result.after_sources):
        raise UserError(
            f"the patch of {campaign_id} is in your files already", f"headroom show {campaign_id}"
        )
    changed = new_contents(result.kept)
    if not check:
        replace_all(changed)
    if json:
        print_json(
            jsonlib.dumps(
                {"campaign": campaign_id, "files": sorted(changed), "applied": not check}, indent=2
            )
        )
        return
    verb = "would change" if check else "changed"
    for path in sorted(changed):
        to_stdout().print(plain(f"{verb} {path}"), soft_wrap=True)


def is_applied(after_sources: Mapping[str, str]) -> bool:
    """Whether every changed file is what the patch makes of it."""
    return bool(after_sources) and all(
        Path(path).is_file() and hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
        for path, digest in after_sources.items()
    )


def new_contents(patch: Patch) -> dict[str, bytes]:
    """What the files will hold.

    Raises:
        PatchError: A file is gone, or is not what the patch was made for.
    """
    files = {}
    for edit in patch.edits:
        path = Path(edit.path)
        if not path.is_file():
            raise PatchError("missing_file", f"{path} is not there any more", "headroom fix ...")
        files[edit.path] = path.read_bytes()
    try:
        return dict(apply_patch(patch, files).files)
    except PatchError as error:
        raise PatchError(
            error.code, error.message, error.next_command or "headroom fix ..."
        ) from None


def replace_all(changed: Mapping[str, bytes]) -> None:
    """Replace all files or none: each is written beside the old one first, then renamed over it.

    Raises:
        PrerequisiteError: A folder cannot be written; nothing was changed.
    """
    drafts: dict[Path, Path] = {}
    try:
        for name, content in changed.items():
            path = Path(name).resolve()
            draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            drafts[path] = draft
            draft.write_bytes(content)
            draft.chmod(path.stat().st_mode & 0o7777)
    except OSError as error:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
        raise PrerequisiteError(f"{error.filename} cannot be written ({error.strerror})") from None
    for path, draft in drafts.items():
        draft.replace(path)
