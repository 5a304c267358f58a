"""The `process` sandbox: no container, but namespaces, limits and copy-on-write where the kernel allows them.

It stops: changes to the user's files under the program's folders, network traffic, secrets in the environment, runaway
time and resident memory, processes left behind. It does not stop: reading any file the user can read, writing outside
the program's folders, or deliberate attacks on the kernel or the GPU driver.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from headroom.errors import SandboxError
from headroom.records.run import Isolation, RunRecord
from headroom.sandbox import overlay
from headroom.sandbox.collect import Surroundings, collect
from headroom.sandbox.environment import program_environment
from headroom.sandbox.git import git_state
from headroom.sandbox.protocol import HISTORY_ENTRIES, RunRequest, Terminal
from headroom.sandbox.scratch import remove_tree, scratch_folder
from headroom.sandbox.supervisor import supervise

_HERE: Final = Path(__file__).resolve().parent
ENTER: Final = _HERE / "enter.py"
BOOTSTRAP: Final = _HERE / "recorder" / "bootstrap.py"
ARTIFACTS: Final = ("events.jsonl", "snapshot.pickle", "names.jsonl", "config.json")

_NOT_STOPPED: Final = (
    "reading any file that you can read",
    "writing outside the program's folders",
    "attacks on the kernel or the GPU driver",
)

How = Literal["overlay", "bind", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What this machine allows an ordinary process to do with namespaces."""

    overlay: bool
    mounts: bool
    network: bool


@functools.cache
def abilities() -> Abilities:
    """Try it, once: kernels, containers and distributions differ too much to be guessed."""
    with tempfile.TemporaryDirectory(prefix="headroom-probe-") as folder:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(ENTER), "--probe", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        remove_tree(Path(folder))
        Path(folder).mkdir()
    try:
        return Abilities(**json.loads(done.stdout))
    except ValueError:
        return Abilities(overlay=False, mounts=False, network=False)


class ProcessSandbox:
    """Runs programs as processes of this user, as isolated as the kernel allows.

    Args:
        environment: What the program's environment is made from.
        in_place: Run in the user's folder itself; what the program writes stays there.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, in_place: bool = False
    ) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self._in_place = in_place

    def run(self, request: RunRequest, terminal: Terminal) -> RunRecord:
        """See `Sandbox.run`."""
        started_at = datetime.now(UTC)
        roots = () if self._in_place else tuple(map(Path, request.program.roots))
        if not roots and request.changed_files:
            raise SandboxError("a changed program cannot run in place", "leave out --in-place")
        scratch = scratch_folder(map(Path, request.program.roots), request.run_id)
        try:
            return self._run_in(scratch, roots, request, terminal, started_at)
        finally:
            remove_tree(scratch)

    def describe(self, *, network: bool) -> str:
        """See `Sandbox.describe`."""
        able = abilities()
        files = "its folder copy-on-write" if able.overlay else "a copy of its folder"
        if network:
            reach = "network allowed"
        else:
            reach = (
                "network cut off"
                if able.network
                else "network NOT cut off: the kernel does not allow it"
            )
        return f"process sandbox: {files}, {reach}; what it writes elsewhere is real"

    def _run_in(
        self,
        scratch: Path,
        roots: tuple[Path, ...],
        request: RunRequest,
        terminal: Terminal,
        started_at: datetime,
    ) -> RunRecord:
        covered = overlay.with_mounts_below(roots, _mountinfo()) if roots else ()
        layers = overlay.make_layers(covered, scratch, request.changed_files)
        how = self._how(layers)
        moved = {str(la.lower): str(la.upper) for la in layers} if layers and how == "none" else {}
        environment, removed = program_environment(
            self._environment, request.keep_environment, virtual=request.device == "virtual"
        )
        cut_network = not request.network and abilities().network
        out = scratch / "out"
        out.mkdir()
        config = out / "config.json"
        config.write_text(json.dumps(recorder_config(request, out, moved)), encoding="utf-8")
        plan = {
            "argv": [request.program.python, str(BOOTSTRAP), str(config)],
            "env": environment,
            "cwd": _moved(request.program.cwd, moved),
            "layers": [[str(la.lower), str(la.upper), str(la.work)] for la in layers],
            "keep": [str(path) for path in overlay.left_out(layers)] if how == "bind" else [],
            "files": how,
            "network": cut_network,
            "report": str(scratch / "entered.json"),
        }
        ended = self._enter(scratch, plan, request, terminal)
        _keep_artifacts(out, request.folder)
        return collect(
            request,
            ended,
            Surroundings(
                started_at=started_at,
                git=git_state(Path(request.program.cwd)),
                written_files=overlay.written_files(layers, request.changed_files)
                if how == "overlay"
                else (),
                isolation=_isolation(request, how, bool(layers), cut_network, removed, bool(moved)),
            ),
        )

    def _how(self, layers: tuple[overlay.Layer, ...]) -> How:
        if not layers:
            return "none"
        if abilities().overlay:
            return "overlay"
        overlay.copy_into(layers)
        if abilities().mounts:
            for path in overlay.left_out(layers):
                _place_for(path, layers).mkdir(parents=True, exist_ok=True)
            return "bind"
        for path in overlay.left_out(layers):
            _place_for(path, layers).symlink_to(path)
        return "none"

    @staticmethod
    def _enter(scratch: Path, plan: dict[str, Any], request: RunRequest, terminal: Terminal) -> Any:
        plan_file = scratch / "plan.json"
        plan_file.write_text(json.dumps(plan), encoding="utf-8")
        plan_file.chmod(0o600)
        ended = supervise(
            [sys.executable, "-I", "-S", str(ENTER), str(plan_file)],
            {},
            request.limits,
            terminal,
            request.folder,
        )
        try:
            error = json.loads(Path(plan["report"]).read_text(encoding="utf-8"))["error"]
        except (OSError, ValueError):
            error = None if ended.stopped else "the sandbox ended before the program began"
        if error is not None:
            raise SandboxError(
                f"the sandbox could not be set up: {error}", "headroom run --in-place ..."
            )
        return ended


def _mountinfo() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _place_for(path: Path, layers: tuple[overlay.Layer, ...]) -> Path:
    """Where a path of the user's lies in the copy."""
    holding = [layer for layer in layers if path.is_relative_to(layer.lower)]
    layer = max(holding, key=lambda layer: len(layer.lower.parts))
    return layer.upper / path.relative_to(layer.lower)


def recorder_config(request: RunRequest, out: Path, moved: Mapping[str, str]) -> dict[str, Any]:
    """What the recorder is told, as plain JSON values (`recorder/config.py` reads it)."""
    program = request.program
    return {
        "version": 1,
        "program": {
            "kind": program.kind,
            "target": _moved(program.target, moved) if program.kind == "script" else program.target,
            "typed": program.typed,
            "args": list(program.args),
        },
        "pass": request.purpose,
        "out": str(out),
        "roots": [_moved(root, moved) for root in program.roots],
        "moved": {copy: original for original, copy in moved.items()},
        "seed": request.seed,
        "updates": request.updates,
        "capacity_bytes": request.capacity_bytes,
        "unlimited": request.unlimited,
        "history_entries": HISTORY_ENTRIES,
        "card": request.card if request.device == "virtual" else None,
    }


def _moved(path: str, moved: Mapping[str, str]) -> str:
    for original, copy in moved.items():
        if path == original or path.startswith(original + "/"):
            return copy + path[len(original) :]
    return path


def _keep_artifacts(out: Path, folder: Path) -> None:
    for name in ARTIFACTS:
        if (out / name).exists():
            shutil.move(out / name, folder / name)


def _isolation(
    request: RunRequest,
    how: How,
    layered: bool,
    cut_network: bool,
    removed: tuple[str, ...],
    moved: bool,
) -> Isolation:
    not_stopped = list(_NOT_STOPPED)
    if moved:
        not_stopped.append("the program ran in a copy of its folder, under another path")
    if not request.network and not cut_network:
        not_stopped.append("network traffic: the kernel allows no network namespace here")
    return Isolation(
        kind="process",
        network="none" if cut_network else "allowed" if request.network else "not isolated",
        files="overlay" if how == "overlay" else "copy" if layered else "in place",
        removed_environment=removed,
        memory_limit_bytes=request.limits.memory_bytes,
        time_limit_seconds=request.limits.seconds,
        not_stopped=tuple(not_stopped),
    )
