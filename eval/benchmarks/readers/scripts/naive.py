"""A reader in twenty lines, to show what counting does: add every `alloc`, take off every `free_completed`.

Argument: the snapshot. It starts from nothing, so what was allocated before the first entry is missed.
"""

import json
import pickle
import sys
from pathlib import Path

with Path(sys.argv[1]).open("rb") as file:
    snapshot = pickle.load(file)
peaks = []
for device, entries in enumerate(snapshot["device_traces"]):
    live_bytes = peak_bytes = 0
    for entry in entries:
        if entry["action"] == "alloc":
            live_bytes += entry["size"]
        elif entry["action"] == "free_completed":
            live_bytes -= entry["size"]
        peak_bytes = max(peak_bytes, live_bytes)
    peaks.append({"device": device, "stated": peak_bytes})
print(json.dumps({"peaks": peaks}))
