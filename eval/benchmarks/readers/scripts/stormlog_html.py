"""stormlog's attributed page of a saved snapshot; it has no command for that, so its function is called.

Arguments: the snapshot, a file for the page; then `--peaks` to print the peak that the page of each device states.
"""

import importlib
import json
import pickle
import re
import sys
from pathlib import Path

render = importlib.import_module("stormlog.attributed_viz").render_attributed_html
with Path(sys.argv[1]).open("rb") as file:
    snapshot = pickle.load(file)
if "--peaks" in sys.argv:
    peaks = []
    for device, entries in enumerate(snapshot["device_traces"]):
        if entries:
            stated = re.search(r'"peak": ?(\d+)', render(snapshot, {}, device=device))
            peaks.append({"device": device, "stated": int(stated[1]) if stated else None})
    print(json.dumps({"peaks": peaks}))
else:
    Path(sys.argv[2]).write_text(render(snapshot, {}), encoding="utf-8")
