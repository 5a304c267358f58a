"""What recording costs: the same program without Headroom and in each pass, in turn, in one run.

    python -m headroom.eval.benchmarks.recorder_cost --python PATH [--cpu] [--batch N]... [--repeats 5] [--out FILE]

A small batch leaves a GPU waiting for the host, so that all of the recorder's work shows; a large one hides it. With
`--cpu` a small model trains on the CPU. The program times its own steps, so start-up and teardown do not count. Each
repeat runs all three, in rotating order, and gives a ratio of medians; the result is the median ratio over the
repeats, with its range.
"""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from headroom.eval.benchmarks.common import PROGRAMS, finish, headroom, median, print_table

PASSES = ("plain", "measure", "trace")


def run_once(python: str, name: str, steps: list[str]) -> dict[str, Any]:
    """Run the program plainly or in a pass; what it printed about its own steps."""
    program = [str(PROGRAMS / "steps.py"), *steps]
    if name == "plain":
        done = subprocess.run([python, *program], capture_output=True, text=True, check=False)
    else:
        done = headroom("run", "--device", "cuda", "--pass", name, "--python", python, *program)
        if (
            done.returncode == 125
        ):  # no CUDA here: the program then trains on the CPU, recorded all the same
            done = headroom("run", "--device", "auto", "--pass", name, "--python", python, *program)
    for line in done.stdout.splitlines():
        if line.startswith("STEPS "):
            figures: dict[str, Any] = json.loads(line.removeprefix("STEPS "))
            return figures
    raise SystemExit(f"{name}: the program printed no steps\n{done.stderr[-2000:]}")


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    words = [f"steps={options.steps}"] if options.steps else []
    words += ["device=cpu"] if options.cpu else []
    rows, results = [], {}
    for batch in options.batch or (None,):
        name = f"batch {batch}" if batch else "default batch"
        sized = [*words, f"batch={batch}"] if batch else words
        results[name] = compare_passes(options.python, sized, options.repeats)
        rows += [_row(name, pass_name, figures) for pass_name, figures in results[name].items()]
    print_table(("size", "pass", "median step", "against plain", "range", "peak bytes"), rows)
    finish("recorder_cost", {"repeats": options.repeats, "sizes": results}, options.out)


def compare_passes(python: str, words: list[str], repeats: int) -> dict[str, dict[str, Any]]:
    """Medians, ratios and peaks of each pass, run in turn."""
    medians: dict[str, list[float]] = {name: [] for name in PASSES}
    peaks: dict[str, Any] = {}
    losses: dict[str, set[float]] = {name: set() for name in PASSES}
    for repeat in range(repeats):
        for name in PASSES[repeat % 3 :] + PASSES[: repeat % 3]:
            figures = run_once(python, name, words)
            medians[name].append(median(figures["seconds"]))
            peaks[name] = figures["peak_bytes"]
            losses[name].add(figures["loss"])
    result = {}
    for name in PASSES:
        ratios = [mine / plain for mine, plain in zip(medians[name], medians["plain"], strict=True)]
        result[name] = {
            "median_step_seconds": median(medians[name]),
            "ratio": median(ratios),
            "ratios": ratios,
            "peak_bytes": peaks[name],
            "losses": sorted(losses[name]),
        }
    return result


def _row(size: str, name: str, figures: dict[str, Any]) -> list[str]:
    ratios = figures["ratios"]
    return [
        size,
        name,
        f"{figures['median_step_seconds'] * 1e3:.2f} ms",
        f"{figures['ratio'] - 1:+.2%}",
        f"{min(ratios) - 1:+.2%} … {max(ratios) - 1:+.2%}",
        str(figures["peak_bytes"]),
    ]


if __name__ == "__main__":
    main()
