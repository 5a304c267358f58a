"""The virtual GPU against an H200: seconds and error for each program whose peak there is known.

    python -m headroom.eval.benchmarks.virtual_gpu --python PATH --programs FOLDER --truth FILE [--out FILE]

`--truth` is JSON: {"peaks": {program: [allocated, reserved]}}, as in tests/recordings/h200_peaks.json.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from headroom.eval.benchmarks.common import finish, headroom, median, print_table


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    truth = json.loads(options.truth.read_text())["peaks"]
    rows, result = [], {}
    with tempfile.TemporaryDirectory() as store:
        for name, (allocated, reserved) in sorted(truth.items()):
            started = time.monotonic()
            done = headroom(
                "run", "--json", "--device", "virtual", "--gpu", "h200", "--store", store,
                "--python", options.python, str(options.programs / f"{name}.py"),
            )  # fmt: skip
            seconds = time.monotonic() - started
            record = json.loads(done.stdout)
            got, got_reserved = record["peak_allocated_bytes"], record["peak_reserved_bytes"]
            result[name] = {
                "predicted_bytes": got,
                "measured_bytes": allocated,
                "error": got / allocated - 1,
                "reserved_error": got_reserved / reserved - 1,
                "seconds": seconds,
                "torch": record["versions"]["torch"],
            }
            rows.append(
                [
                    name,
                    str(got),
                    str(allocated),
                    f"{got / allocated - 1:+.2%}",
                    f"{got_reserved / reserved - 1:+.1%}",
                    f"{seconds:.1f} s",
                ]
            )
    print_table(("program", "predicted", "measured", "error", "reserved error", "seconds"), rows)
    worst = max(abs(figures["error"]) for figures in result.values())
    print(
        f"\nmedian error {median([abs(f['error']) for f in result.values()]):.2%}, worst {worst:.2%}"
    )
    finish("virtual_gpu", {"programs": result}, options.out)


if __name__ == "__main__":
    main()
