"""Every reader this machine has, and why the others are missing. Nothing here is ever installed or downloaded."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from headroom import __version__
from headroom.eval.benchmarks.common import headroom
from headroom.eval.benchmarks.readers.measure import Commands

SCRIPTS: Final = Path(__file__).resolve().parent / "scripts"
PACK_TOKENS: Final = 32_000
OTHERS: Final = ("stormlog", "pt-snap-cli", "ptmem")
"""Distributions on PyPI that read a saved allocator snapshot, as of November 2026."""

NOT_MEASURED: Final = {
    "mosaic": "not on PyPI (the name there is a poster composer); its repository must be cloned",
    "SnapViewer": "not on PyPI; a Rust program that is built from its repository",
    "NVIDIA's and meta-pytorch's snapshot skills": "scripts inside repositories, not on PyPI",
    "memory_viz page": "computes its figures in the browser; its JavaScript is not in torch's wheel",
    "torch-snapkit": "writes snapshots for a web page and reads none",
    "watcherml, pytorch-memlab": "record a live program; neither reads an allocator snapshot",
    "torch-tb-profiler, HolisticTraceAnalysis, perfetto": "read profiler traces, not allocator snapshots",
}
"""What was looked at and has no row, with the reason."""

_VERSIONS: Final = """
import importlib.metadata, importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = None
spec = importlib.util.find_spec("torch")
found["torch at"] = spec.origin if spec else None
found["python"] = sys.version.split()[0]
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A way to read a snapshot.

    `commands` and `peak` give command lines from the path of the snapshot and a folder to write to. The last line that
    `peak` prints is JSON: `{"peaks": [{"device": 0 or null, "requested" and "allocated", or "stated": bytes}]}`.
    A reader without `peak` states none, and is measured for speed only; one without `commands` for accuracy only.
    """

    name: str
    version: str
    what: str
    peak_from: str
    commands: Callable[[Path, Path], Commands] | None
    peak: Callable[[Path, Path], Commands] | None = None
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The readers, and a sentence for each one that was not found."""

    readers: tuple[Reader, ...]
    missing: dict[str, str]


def find_readers(torch: Path | None, others: Path | None) -> Registry:
    """Look for every reader.

    Args:
        torch: An interpreter that has torch; its `torch.cuda._memory_viz` is run without importing torch.
        others: An interpreter that has any of `OTHERS`.
    """
    missing: dict[str, str] = {}
    readers = [*_baselines(), *_ours()]
    found = _installed(torch, ("torch",))
    if torch is not None and found.get("torch at"):
        viz = Path(found["torch at"] or "").parent / "cuda" / "_memory_viz.py"
        readers += _memory_viz(str(torch), viz, found["torch"] or "unknown")
    else:
        missing["torch.cuda._memory_viz"] = f"no torch in {torch}: name an interpreter by --torch"
    found = _installed(others, OTHERS)
    builders = {"stormlog": _stormlog, "pt-snap-cli": _pt_snap, "ptmem": _ptmem}
    for name, build in builders.items():
        version = found.get(name)
        if others is None or version is None:
            missing[name] = f"not in {others}" if others else "--others was not given"
        else:
            readers.append(build(others, version))
    return Registry(readers=tuple(readers), missing=missing)


def _installed(python: Path | None, names: tuple[str, ...]) -> dict[str, str | None]:
    """Versions of distributions in an interpreter, and where its torch lies; empty where it cannot be run."""
    if python is None:
        return {}
    try:
        done = subprocess.run(
            [str(python), "-c", _VERSIONS, *names], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    versions: dict[str, str | None] = json.loads(done.stdout)
    return versions


def _script(python: str, name: str, *words: str) -> tuple[str, ...]:
    return (python, str(SCRIPTS / name), *words)


def _baselines() -> list[Reader]:
    python = sys.executable
    version = f"Python {sys.version.split()[0]}"
    return [
        Reader(
            name="pickle.load, gc off",
            version=version,
            what="the floor: every entry as a dictionary, nothing done with it",
            peak_from="–",
            commands=lambda snapshot, work: (_script(python, "load.py", str(snapshot)),),
        ),
        Reader(
            name="naive forward sum",
            version="ours, 20 lines",
            what="adds every alloc, takes off every free_completed",
            peak_from="requested bytes summed forward from nothing, per device",
            commands=lambda snapshot, work: (_script(python, "naive.py", str(snapshot)),),
            peak=lambda snapshot, work: (_script(python, "naive.py", str(snapshot)),),
        ),
    ]


def _ours() -> list[Reader]:
    """Our commands where they exist; the same work through the library, and the peaks, always."""
    python = sys.executable
    readers = [
        Reader(
            name="headroom (library)",
            version=__version__,
            what="read, ledger, evidence pack, in one process of the library",
            peak_from="replay backwards from the final segments, per device; two ledgers",
            commands=lambda snapshot, work: (
                _script(python, "evidence.py", str(snapshot), str(work / "pack.md")),
            ),
            peak=lambda snapshot, work: (_script(python, "evidence.py", str(snapshot), "--peaks"),),
            ours=True,
        )
    ]
    if _is_command("pack"):
        readers.append(_command("pack", "--tokens", str(PACK_TOKENS)))
    if _is_command("analyze"):
        readers += [
            replace(
                _command("analyze", "--json"),
                peak=lambda snapshot, work: (_script(python, "analyze_peak.py", str(snapshot)),),
            ),
            # What the other pages stand beside. The command runs in the reader's own folder.
            _command("analyze", "--html", "page.html"),
        ]
    return readers


def _is_command(name: str) -> bool:
    return headroom(name, "--help").returncode == 0


def _command(name: str, *words: str) -> Reader:
    return Reader(
        name=f"headroom {name} {words[0]}",
        version=__version__,
        what=f"`headroom {name} SNAPSHOT {' '.join(words)}`, from its start to its end",
        peak_from="replay backwards from the final segments, per device; two ledgers",
        commands=lambda snapshot, work: (
            (sys.executable, "-m", "headroom", name, str(snapshot), *words),
        ),
        ours=True,
    )


def _memory_viz(python: str, viz: Path, version: str) -> list[Reader]:
    """Each of its commands; the file is run by itself, so torch is not imported."""
    states_none = "states none: the page computes it in the browser"
    readers = [
        Reader(
            name=f"memory_viz {name}",
            version=f"torch {version}",
            what="the snapshot pickled again, in base64, inside a page",
            peak_from=states_none,
            commands=lambda snapshot, work, name=name: (  # type: ignore[misc]
                (python, str(viz), name, str(snapshot), "-o", str(work / "plot.html")),
            ),
        )
        for name in ("trace_plot", "segment_plot")
    ]
    for name, none in (
        ("trace", "states none; its TOTAL MEM is the last entry's number plus its size"),
        ("stats", "states none: allocated bytes at the end only"),
    ):
        readers.append(
            Reader(
                name=f"memory_viz {name}",
                version=f"torch {version}",
                what="text",
                peak_from=none,
                commands=lambda snapshot, work, name=name: (  # type: ignore[misc]
                    (python, str(viz), name, str(snapshot)),
                ),
            )
        )
    readers.append(
        Reader(
            name="memory_viz memory",
            version=f"torch {version}",
            what="lines for flamegraph.pl, which is left out (it would be downloaded)",
            peak_from="states none: blocks at the end only",
            commands=lambda snapshot, work: (
                _script(python, "viz_memory.py", str(viz), str(snapshot), str(work / "memory.txt")),
            ),
        )
    )
    return readers


def _stormlog(python: Path, version: str) -> Reader:
    def words(snapshot: Path, work: Path) -> tuple[str, ...]:
        page = str(work / "page.html")
        return _script(str(python), "stormlog_html.py", str(snapshot), page)

    return Reader(
        name="stormlog attributed page",
        version=version,
        what="render_attributed_html of a saved snapshot, device 0",
        peak_from="requested bytes summed forward from nothing, one device",
        commands=lambda snapshot, work: (words(snapshot, work),),
        peak=lambda snapshot, work: ((*words(snapshot, work), "--peaks"),),
    )


def _pt_snap(python: Path, version: str) -> Reader:
    command = str(python.absolute().parent / "pt-snap")

    def both(snapshot: Path, work: Path) -> Commands:
        database = str(work / f"{snapshot.name}.db")
        return (
            (command, "import", str(snapshot), "--output-dir", str(work), "--no-focus", "--json"),
            (command, "report", "peak-memory", database, "--json"),
        )

    return Reader(
        name="pt-snap import + report",
        version=version,
        what="replay into SQLite, then the report of the peak",
        peak_from="replay backwards: rounded bytes of the segments at the end, less requested bytes of the entries",
        commands=both,
        peak=lambda snapshot, work: (
            _script(str(python), "pt_snap_peak.py", command, str(snapshot), str(work)),
        ),
    )


def _ptmem(python: Path, version: str) -> Reader:
    command = str(python.absolute().parent / "ptmem")
    return Reader(
        name="ptmem --summary",
        version=version,
        what="text summary; writes a cache beside the snapshot",
        peak_from="rounded bytes of the segments at the end, less requested bytes, one sum over all devices",
        commands=lambda snapshot, work: ((command, "--summary", str(snapshot)),),
        peak=lambda snapshot, work: (_script(str(python), "ptmem_peak.py", str(snapshot)),),
    )
