"""Peak of every device by `pt-snap`. Arguments: the pt-snap command, the snapshot, the folder of its database."""

import json
import subprocess
import sys
from pathlib import Path


def told(*words: str) -> dict:  # type: ignore[type-arg]
    """One command's answer."""
    done = subprocess.run([sys.argv[1], *words, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"pt-snap {words[0]}: " + " ".join((done.stdout + done.stderr).split()))
    return json.loads(done.stdout)  # type: ignore[no-any-return]


folder = Path(sys.argv[3])
told("import", sys.argv[2], "--output-dir", str(folder), "--no-focus")
database = str(next(folder.glob("*.db")))
peaks = []
for device in told("overview", database)["devices"]:
    number = device["device_id"]
    report = told("report", "peak-memory", database, "--device", str(number), "--limit", "1")
    peaks.append({"device": number, "stated": report["peak"]["peak_allocated"]})
print(json.dumps({"peaks": peaks}))
