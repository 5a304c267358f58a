"""The child process that reads a stranger's file: limits first, then the file, then the analysis back through a pipe.

Run as `python -P -m headroom.snapshots.child`, the request on standard input, the answer on standard output.
"""

import gc
import os
import resource
import sys
import traceback
from pathlib import Path

from headroom.errors import SnapshotError
from headroom.evidence.analysis import analyse
from headroom.evidence.reading.safe_pickle import load_plain
from headroom.evidence.reading.scrub import scrub_tree, write_scrubbed
from headroom.evidence.reading.snapshot import Snapshot, parse_snapshot
from headroom.snapshots.limits import Limits
from headroom.snapshots.request import ReadAnswer, ReadRequest, pack_message, unpack_message


def set_limits(limits: Limits) -> None:
    """Hold this process to its limits for good: it writes no core and opens no more than it needs."""
    _limit(resource.RLIMIT_AS, limits.address_space_bytes)
    # A second between them: the first limit ends this process by SIGXCPU, which tells it from a kill by the system.
    _limit(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    _, given = resource.getrlimit(kind)
    hard = soft if hard is None else hard
    hard = hard if given == resource.RLIM_INFINITY else min(hard, given)
    resource.setrlimit(kind, (min(soft, hard), hard))


def answer(request: ReadRequest) -> ReadAnswer:
    """Do what is asked; a file that is refused is an answer, too."""
    try:
        if request.task == "scrub":
            return _scrub(request)
        snapshot = _read(request.path)
        return ReadAnswer(
            analysis=analyse(
                snapshot,
                device=request.device,
                roots=request.roots,
                walks=request.walks,
                facts=request.facts,
                file_bytes=Path(request.path).stat().st_size,
            )
        )
    except SnapshotError as error:
        return ReadAnswer(refused=error.message)
    except RecursionError:
        return ReadAnswer(refused="The snapshot file is refused: its data are nested without end.")
    except MemoryError:
        return ReadAnswer(
            refused="The snapshot file is refused: it asks for far more memory than a snapshot of its size needs."
        )
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return ReadAnswer(
            refused=f"The snapshot could not be read ({type(error).__name__} in {where.name}); "
            "if torch wrote this file, please report it with a copy made by `headroom scrub`."
        )


def _read(path: str) -> Snapshot:
    with Path(path).open("rb") as file:
        return parse_snapshot(load_plain(file))


def _scrub(request: ReadRequest) -> ReadAnswer:
    with Path(request.path).open("rb") as file:
        tree = load_plain(file)
    parse_snapshot(tree)
    target = Path(request.scrub_to or os.devnull)
    write_scrubbed(scrub_tree(tree), target)
    return ReadAnswer(written_bytes=target.stat().st_size)


def main() -> None:
    """Read the request, take the limits, answer, and leave without tidying up a million objects."""
    # Whatever prints, prints elsewhere: standard output carries the answer alone.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = unpack_message(sys.stdin.buffer.read())
    set_limits(request.limits)
    gc.disable()
    out.write(pack_message(answer(request)))
    out.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
