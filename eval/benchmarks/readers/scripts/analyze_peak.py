"""Peak of every device by `headroom analyze --json`. Argument: the snapshot."""

import json
import subprocess
import sys
from typing import Any


def peaks_of(document: dict[str, Any]) -> list[dict[str, int]]:
    """Both peaks of each device that the document tells of."""
    return [
        {
            "device": device["device"],
            "requested": device["peak"]["requested_bytes"],
            "allocated": device["peak"]["rounded_bytes"],
        }
        for device in document["devices"]
        if device["peak"] is not None
    ]


def main() -> None:
    """Run the command, and print what it says of the peaks."""
    command = [sys.executable, "-m", "headroom", "analyze", sys.argv[1], "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip() or f"headroom analyze ended with {done.returncode}")
    print(json.dumps({"peaks": peaks_of(json.loads(done.stdout))}))


if __name__ == "__main__":
    main()
