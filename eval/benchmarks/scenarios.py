"""`headroom fix` over the scenarios, as a table.

python -m headroom.eval.benchmarks.scenarios --python PATH [--device auto] [--store FOLDER] [--out FILE]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from headroom.eval.benchmarks.common import SCENARIOS, finish, headroom, print_table
from headroom.units import format_bytes, format_seconds

CAPACITY: Final = {
    "evaluation_graph": "8GiB",
    "retained_graph": "8GiB",
    "oversized_batch": "8GiB",
    "deep_model": "8GiB",
}
"""A cap under which each original fails, whatever card runs it."""


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows, results = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        store = options.store or temporary
        for name, capacity in CAPACITY.items():
            started = time.monotonic()
            done = headroom(
                "fix", "--json", "--device", options.device, "--capacity", capacity, "--store", str(store),
                "--python", options.python, str(SCENARIOS / f"{name}.py"),
            )  # fmt: skip
            seconds = time.monotonic() - started
            result = (
                json.loads(done.stdout) if done.stdout.strip() else {"error": done.stderr[-2000:]}
            )
            results[name] = {**result, "exit_code": done.returncode, "seconds": seconds}
            rows.append(_row(name, result, done.returncode, seconds))
    print_table(
        ("scenario", "exit", "before", "after", "predicted", "verdict", "equivalence", "step before", "step after",
         "GPU s", "wall"),
        rows,
    )  # fmt: skip
    finish("scenarios", {"results": results}, options.out)


def _row(name: str, result: dict[str, Any], code: int, seconds: float) -> list[str]:
    if "campaign_id" not in result:
        return [name, str(code), str(result.get("error"))[:200], *[""] * 8]

    def size(key: str) -> str:
        return format_bytes(result[key]) if result.get(key) is not None else "-"

    def step(key: str) -> str:
        return format_seconds(result[key]) if result.get(key) is not None else "-"

    return [
        name,
        str(code),
        ("≥ " if result["before_is_lower_bound"] else "") + size("before_peak_bytes"),
        size("after_peak_bytes"),
        size("predicted_peak_bytes"),
        result["verdict"],
        result["equivalence"],
        step("before_step_seconds"),
        step("after_step_seconds"),
        f"{result['gpu_seconds']:.1f}",
        f"{seconds:.1f} s",
    ]


if __name__ == "__main__":
    main()
