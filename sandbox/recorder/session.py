"""One recorded run: wires the hooks when the program imports torch, runs it, and writes the end."""

import atexit
import contextlib
import os
import platform
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from . import faults, seeds
from .attribution import Attribution
from .bootstrap import load_package
from .calls import Calls
from .config import Config, read_config
from .imports import after_import
from .launch import StopAfterUpdates, load, show, strip_own_frames
from .lines import Lines
from .losses import Losses
from .memory import Memory
from .names import Names
from .parameters import Parameters
from .progress import Progress
from .sources import source_hashes
from .updates import Updates

__all__ = ["Session", "begin", "leave", "load"]

VIRTUAL_NAME = "_headroom_virtual"
UNAVAILABLE_CODE = 125


class Session:
    """The hooks of one run, and what they need of each other."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lines = Lines(config.out / "events.jsonl")
        self.progress = Progress()
        self._memory: Memory | None = None
        self._updates: Updates | None = None
        self._calls: Calls | None = None
        self._parameters: Parameters | None = None
        self._virtual: Any = None
        self._numpy: str | None = None
        self.interrupted = False

    def start(self) -> None:
        """Seed, and wait for torch and numpy. They are not imported: the program decides whether and when."""
        self.lines.write(
            "start", pid=os.getpid(), python=platform.python_version(), seed=self.config.seed
        )
        seeds.seed_random(self.config.seed)
        after_import("numpy", self.lines.guarded(self._on_numpy))
        after_import("torch", self._on_torch)

    def _on_numpy(self, numpy: ModuleType) -> None:
        self._numpy = numpy.__version__
        seeds.seed_numpy(numpy, self.config.seed)

    def _on_torch(self, torch: ModuleType) -> None:
        if self.config.card is not None:
            self._install_virtual(torch)
        failed: list[str] = []
        seeded = self._try(failed, "seeds", lambda: seeds.seed_torch(torch, self.config.seed))
        self._wire(torch, failed)
        self.lines.write(
            "torch",
            torch=torch.__version__,
            cuda=torch.version.cuda,
            cudnn=_cudnn_version(torch),
            seeded=(["torch"] if seeded else []) + (["numpy"] if self._numpy else []),
            failed=failed,
        )

    def _install_virtual(self, torch: ModuleType) -> None:
        folder = Path(__file__).resolve().parent.parent / "virtual"
        package = load_package(VIRTUAL_NAME, folder)
        try:
            self._virtual = package.install(
                self.config.card, self.config.capacity_bytes, unlimited=self.config.unlimited
            )
        except package.Unsupported as error:
            self.lines.write("unavailable", reason=str(error))
            sys.stdout.flush()
            os._exit(UNAVAILABLE_CODE)

    def _wire(self, torch: ModuleType, failed: "list[str]") -> None:
        kind = "cuda" if self._virtual is None else "virtual"
        attribution = names = None
        if self.config.trace:
            attribution = Attribution(
                torch, self.lines, self.progress, compiles=self._virtual is None
            )
            names = Names(torch, self.config, self.lines, self.progress, attribution)
            # Before the losses: they turn an iterator of roots into a tuple for all that come after.
            self._try(failed, "attribution", attribution.install)
            attribution.backward.before_pass = self.lines.guarded(partial(names.grown, "call"))
        memory = Memory(torch, self.config, self.lines, self.progress, kind, attribution, names)
        losses = Losses(torch, self.lines, computed=self._virtual is None)
        parameters = Parameters(self.lines)
        begin, left = _followers(attribution, names, parameters)
        calls = Calls(
            torch, self.config, self.lines, self.progress, parameters, on_call=begin, on_left=left
        )
        updates = Updates(
            torch,
            self.lines,
            self.progress,
            losses,
            take_samples=calls.take_samples,
            after_update=lambda: self._after_update(memory, attribution, names),
            limit=self.config.updates,
            stop_at_once=self._stop_at_once,
            device_events=self._virtual is None,
        )
        hooks = (("memory", memory), ("losses", losses), ("calls", calls), ("updates", updates))
        for name, part in hooks:
            self._try(failed, name, part.install)
        self._memory, self._updates = memory, updates
        self._calls, self._parameters = calls, parameters

    @staticmethod
    def _try(failed: "list[str]", name: str, install: Any) -> bool:
        try:
            install()
        except Exception as error:
            failed.append(f"{name} ({type(error).__name__}: {error})")
            return False
        return True

    @staticmethod
    def _after_update(
        memory: Memory, attribution: "Attribution | None", names: "Names | None"
    ) -> None:
        if attribution is not None:
            attribution.labels.show()
        memory.write_peak(at_most_every_second=True)
        if names is not None:
            names.grown("update")

    def _stop_at_once(self) -> None:
        """End the process here and now: the program would not let itself be stopped by an exception."""
        self.finish(StopAfterUpdates())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def die_of_interrupt(self) -> None:
        """What the interpreter does at the very end after Ctrl-C: die of the signal, so that the caller sees it."""
        if self.interrupted:
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)

    def raised(self, error: BaseException) -> None:
        """Write what ended the main module, if it is a failure."""
        if not isinstance(error, StopAfterUpdates) and not _is_clean_exit(error):
            described = faults.describe(error, self.config)
            self.lines.write("raised", exception=described, oom=faults.is_oom(error))

    def finish(self, error: "BaseException | None") -> None:
        """Write everything that is only known at the end; a forked child has none of it."""
        if not self.lines.owned:
            return
        oom = error is not None and faults.is_oom(error)
        stopped = isinstance(error, StopAfterUpdates)
        memory = self._memory
        parts = [
            self._updates.finish if self._updates else None,
            self._parameters.finish if self._parameters else None,
            self._calls.write if self._calls else None,
            (lambda: memory.finish(oom=oom)) if memory else None,
            self._write_virtual if self._virtual is not None else None,
            self._write_sources,
        ]
        for part in parts:
            if part is not None:
                self.lines.guarded(part)()
        self.lines.write("end", stopped_after_updates=stopped)

    def _write_virtual(self) -> None:
        self.lines.write("virtual", **self._virtual.coverage())

    def _write_sources(self) -> None:
        self.lines.write("sources", files=source_hashes(self.config), numpy=self._numpy)


def _followers(
    attribution: "Attribution | None", names: "Names | None", parameters: Parameters
) -> "tuple[Callable[[Any, bool], None], Callable[[], None]]":
    """What happens at the beginning and at the end of an outermost module call."""

    def begin(module: Any, trains: bool) -> None:
        if names is not None:
            names.grown("call")
        if attribution is not None:
            attribution.begin_call(module, parameters.name_of(module), trains=trains)

    def left() -> None:
        if attribution is not None:
            attribution.end_call()

    return begin, left


def _cudnn_version(torch: ModuleType) -> "str | None":
    """`torch.backends.cudnn.version` would initialise CUDA to look at the devices; this only asks the library."""
    cudnn = getattr(torch._C, "_cudnn", None)
    with contextlib.suppress(Exception):
        return str(cudnn.getVersionInt()) if cudnn is not None else None
    return None


def _is_clean_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def begin(config_path: str) -> Session:
    """Everything that comes before the program."""
    session = Session(read_config(config_path))
    # Registered before the program's own handlers, so it runs after all of them.
    atexit.register(session.die_of_interrupt)
    session.start()
    return session


def leave(session: Session, error: "BaseException | None") -> None:
    """Leave as the program would have left, after what it raised, if anything.

    The order is the interpreter's own: the traceback, then the threads that are still at work, then exit handlers. The
    end is written between the last two, when all the work is done and the program's objects are still alive.
    """
    if error is not None:
        strip_own_frames(error)
        session.lines.guarded(session.raised)(error)
    code = _show(error)
    _wait_for_threads()
    session.lines.guarded(session.finish)(error)
    session.interrupted = isinstance(error, KeyboardInterrupt)
    sys.exit(code)


def _show(error: "BaseException | None") -> int:
    """Print what the interpreter would print of an uncaught exception; the exit code that it would leave with."""
    if error is None or isinstance(error, StopAfterUpdates):
        return 0
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code
        print(error.code, file=sys.stderr)
        return 1
    show(error)
    return 1


def _wait_for_threads() -> None:
    """Do what the interpreter does before exit handlers run: a program may train in a thread.

    That is more than joining: executors tell their idle workers to end here. The interpreter's own call then finds it
    done.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException:
        traceback.print_exc()  # as the interpreter goes on after Ctrl-C, too
