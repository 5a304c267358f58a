"""Readers of allocator snapshots, side by side in one run: speed, memory, and whether the peak is right.

    python -m headroom.eval.benchmarks.snapshot_readers --torch PYTHON --others PYTHON [--entries N]... [--repeats 3]
        [--folder DIR] [--only speed|accuracy] [--memory-gib 16] [--seconds 180] [--out FILE]

Speed: simulated snapshots (100 k, 1 M and 5 M entries, 40 frames a stack), each reader in processes of its own, in
rotating order, the file in the page cache. Accuracy: the peak that each reader states, on captures of an H200 and
on small simulated snapshots, in per cent of the true requested and of the true allocated bytes. Readers that are not
installed are named, never installed: `--torch` is an interpreter with torch (for `torch.cuda._memory_viz`), `--others`
one with any of stormlog, pt-snap-cli and ptmem. A reader past a limit is killed and reported as killed. Run it in a
checkout; `--folder` keeps the large snapshots, of which the one with 5 M entries takes 750 MB of disk.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from headroom.eval.benchmarks.common import ROOT, finish, print_table
from headroom.eval.benchmarks.readers.accuracy import (
    accuracy_json,
    accuracy_table,
    compare_peaks,
    failures,
)
from headroom.eval.benchmarks.readers.cases import captures, synthetic_cases
from headroom.eval.benchmarks.readers.measure import Limits
from headroom.eval.benchmarks.readers.registry import NOT_MEASURED, Reader, find_readers
from headroom.eval.benchmarks.readers.speed import (
    compare_speed,
    snapshot_of,
    speed_json,
    speed_table,
)

ENTRIES: Final = (100_000, 1_000_000, 5_000_000)
_GIB: Final = 1 << 30
_SHARE: Final = 0.8
"""Of the memory that is free: a reader that takes more than this would bring the machine down with it."""


def main() -> None:
    """See the module's docstring."""
    options = _options()
    registry = find_readers(options.torch, options.others)
    limits = Limits(memory_bytes=_memory_limit(options.memory_gib), seconds=options.seconds)
    figures: dict[str, Any] = {
        "limits": {"memory_bytes": limits.memory_bytes, "seconds": limits.seconds},
        "repeats": options.repeats,
    }
    with _folder(options.folder) as folder:
        if options.only != "accuracy":
            sizes = options.entries or ENTRIES
            figures["speed"] = _speed(registry.readers, sizes, folder, limits, options.repeats)
        if options.only != "speed":
            figures["accuracy"] = _accuracy(registry.readers, folder, limits)
    print()
    print_table(
        ("reader", "version", "where its peak comes from"),
        [(reader.name, reader.version, reader.peak_from) for reader in registry.readers],
    )
    for name, reason in {**registry.missing, **NOT_MEASURED}.items():
        print(f"- not measured: {name}: {reason}")
    figures["not_found"], figures["not_measured"] = registry.missing, NOT_MEASURED
    finish("snapshot_readers", figures, options.out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    default = ROOT / ".venv-torch" / "bin" / "python"
    parser.add_argument("--torch", type=Path, default=default if default.exists() else None)
    parser.add_argument("--others", type=Path)
    parser.add_argument("--entries", type=int, action="append")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep the simulated snapshots here")
    parser.add_argument("--only", choices=("speed", "accuracy"))
    parser.add_argument("--memory-gib", type=float, default=16)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    return options


def _memory_limit(gib: float) -> int:
    return min(int(gib * _GIB), int(psutil.virtual_memory().available * _SHARE))


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="headroom-snapshots-") as name:
        yield Path(name)


def _speed(
    readers: tuple[Reader, ...], sizes: tuple[int, ...], folder: Path, limits: Limits, repeats: int
) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for entries in sizes:
        snapshot = snapshot_of(entries, folder)
        results = compare_speed(readers, snapshot, limits, repeats)
        size_bytes = snapshot.stat().st_size
        print(f"\n{entries:,} entries, {size_bytes / 1e6:.1f} MB:\n")
        print_table(*speed_table(results))
        figures[str(entries)] = {"file_bytes": size_bytes, "readers": speed_json(results)}
    return figures


def _accuracy(readers: tuple[Reader, ...], folder: Path, limits: Limits) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, cases in (("captures", captures()), ("simulated", synthetic_cases(folder))):
        rows = compare_peaks(readers, cases, limits)
        print(f"\n{name}: error in per cent of requested / of allocated bytes\n")
        print_table(*accuracy_table(rows))
        for sentence in failures(rows):
            print(f"- fails: {sentence}")
        figures[name] = accuracy_json(rows)
    return figures


if __name__ == "__main__":
    main()
