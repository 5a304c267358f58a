"""Seconds, memory and output of every reader on the same files, in turn."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headroom.eval.benchmarks.common import ROOT, median
from headroom.eval.benchmarks.readers.measure import Limits, Outcome, Run, run_reader, warm
from headroom.eval.benchmarks.readers.registry import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Runs of one reader on one file, together. `outcome` is `ok` only if every run was."""

    reader: Reader
    runs: tuple[Run, ...]

    @property
    def outcome(self) -> Outcome:
        """The first outcome that is not `ok`, if any."""
        return next((run.outcome for run in self.runs if run.outcome != "ok"), "ok")


def snapshot_of(entries: int, folder: Path) -> Path:
    """A simulated snapshot of that many entries, made unless the folder has it.

    Raises:
        SystemExit: It could not be made, most often for want of memory (about 700 bytes an entry) or disk.
    """
    path = folder / f"{entries}.pickle"
    if not path.is_file():
        unfinished = path.with_suffix(".part")
        # A process of its own: see readers.cases.
        module = "headroom.eval.benchmarks.readers.cases"
        command = [sys.executable, "-m", module, str(entries), str(unfinished)]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode != 0:
            raise SystemExit(f"no snapshot of {entries} entries could be made in {folder}")
        unfinished.rename(path)
    return path


def compare_speed(
    readers: Sequence[Reader], snapshot: Path, limits: Limits, repeats: int
) -> list[Speed]:
    """Run every reader `repeats` times, in rotating order. One that fails or is killed is not run again."""
    timed = [reader for reader in readers if reader.commands is not None]
    runs: dict[str, list[Run]] = {reader.name: [] for reader in timed}
    for repeat in range(repeats):
        shift = repeat % len(timed)
        for reader in timed[shift:] + timed[:shift]:
            if any(run.outcome != "ok" for run in runs[reader.name]):
                continue
            assert reader.commands is not None
            warm(snapshot)
            run = run_reader(reader.commands, snapshot, limits, own_home=not reader.ours)
            runs[reader.name].append(run)
            print(f"{reader.name}: {run.outcome}, {run.wall_seconds:.2f} s", file=sys.stderr)
    return [Speed(reader=reader, runs=tuple(runs[reader.name])) for reader in timed]


def speed_table(results: Sequence[Speed]) -> tuple[list[str], list[list[str]]]:
    """Columns and lines of a table. A reader that did not finish has no figures, only where it was when it ended."""
    columns = ["reader", "version", "wall", "range", "CPU", "peak RSS", "output"]
    return columns, [_line(result) for result in results]


def _line(result: Speed) -> list[str]:
    first = [result.reader.name, result.reader.version]
    if result.outcome != "ok":
        last = result.runs[-1]
        reached = f"{last.wall_seconds:.1f} s, {_mib(last.peak_rss_bytes)}"
        told = f" ({last.error})" if last.error else ""
        return [*first, f"**{result.outcome}** after {reached}{told}", "–", "–", "–", "–"]
    walls = [run.wall_seconds for run in result.runs]
    cpu_seconds = median([run.cpu_seconds for run in result.runs])
    return [
        *first,
        f"{median(walls):.2f} s",
        f"{min(walls):.2f} … {max(walls):.2f}",
        f"{cpu_seconds:.2f} s",
        _mib(max(run.peak_rss_bytes for run in result.runs)),
        _output(result.runs[-1].output_bytes),
    ]


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MiB"


def _output(size_bytes: int) -> str:
    return _mib(size_bytes) if size_bytes >= 10 << 20 else f"{size_bytes / 1024:,.0f} KiB"


def speed_json(results: Sequence[Speed]) -> list[dict[str, Any]]:
    """Everything behind the table."""
    return [
        {
            "reader": result.reader.name,
            "version": result.reader.version,
            "what": result.reader.what,
            "outcome": result.outcome,
            "runs": [
                {
                    "outcome": run.outcome,
                    "wall_seconds": run.wall_seconds,
                    "cpu_seconds": run.cpu_seconds,
                    "peak_rss_bytes": run.peak_rss_bytes,
                    "output_bytes": run.output_bytes,
                    "error": run.error,
                }
                for run in result.runs
            ],
        }
        for result in results
    ]
