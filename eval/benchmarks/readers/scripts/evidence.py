"""Headroom without its commands: read, account and pack, as a campaign does.

Arguments: the snapshot; then a file for the pack, or `--peaks` to print the peak of every device.
"""

import json
import sys
from pathlib import Path

from headroom.evidence.ledger import build_ledger
from headroom.evidence.pack.build import build_pack
from headroom.evidence.reading.safe_pickle import read_snapshot_file

snapshot = read_snapshot_file(Path(sys.argv[1]))
if sys.argv[2] == "--peaks":
    ledgers = [build_ledger(snapshot, device=device) for device in snapshot.devices]
    peaks = [
        {
            "device": ledger.device,
            "requested": ledger.peak.requested_bytes,
            "allocated": ledger.peak.allocated_bytes,
        }
        for ledger in ledgers
    ]
    print(json.dumps({"peaks": peaks}))
else:
    pack = build_pack(build_ledger(snapshot), facts={}, sources={})
    Path(sys.argv[2]).write_text(pack.markdown, encoding="utf-8")
