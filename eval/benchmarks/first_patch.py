"""Seconds from typing `headroom fix` to the first kept patch, on the demo's program.

python -m headroom.eval.benchmarks.first_patch --python PATH [--repeats 3] [--out FILE]
"""

import argparse
import json
import tempfile
import time
from datetime import datetime
from pathlib import Path

from headroom.eval.benchmarks.common import SCENARIOS, finish, headroom, median
from headroom.journal import read_journal


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    whole, first = [], []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as store:
            began = time.time()
            done = headroom(
                "fix", "--json", "--device", "virtual", "--capacity", "8GiB", "--store", store,
                "--python", options.python, str(SCENARIOS / "evaluation_graph.py"),
            )  # fmt: skip
            whole.append(time.time() - began)
            campaign = json.loads(done.stdout)["campaign_id"]
            for entry in read_journal(Path(store, "campaigns", campaign, "journal.jsonl")):
                if entry["kind"] == "judged" and entry["trial"]["verdict"]["kept"]:
                    first.append(datetime.fromisoformat(entry["time"]).timestamp() - began)
                    break
    print(f"first kept patch after {median(first):.1f} s (of {sorted(round(s, 1) for s in first)})")
    finish("first_patch", {"first_kept_seconds": first, "whole_seconds": whole}, options.out)


if __name__ == "__main__":
    main()
