"""`torch.cuda._memory_viz.memory` without flamegraph.pl, which it would download: the lines it draws from.

Arguments: the path of _memory_viz.py, the snapshot, a file for the lines.
"""

import pickle
import runpy
import sys
from pathlib import Path

viz = runpy.run_path(sys.argv[1], run_name="memory_viz")
with Path(sys.argv[2]).open("rb") as file:
    snapshot = pickle.load(file)
Path(sys.argv[3]).write_text(viz["memory"](snapshot, format_flamegraph=lambda lines: lines))
