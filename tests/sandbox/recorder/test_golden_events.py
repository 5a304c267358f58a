"""One golden file tests both sides of the recorder's contract: what is written, and what is read."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from headroom.records.events import read_events

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "events.jsonl"

SOURCE = """
    import torch
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        loss = model(torch.ones(3, 4, device="cuda")).sum()
        loss.backward()
        optimizer.step()
    model.eval()
    model(torch.ones(5, 4, device="cuda"))
    torch.empty(2**30, dtype=torch.uint8, device="cuda")
"""

# What differs from run to run or between versions of Python and torch, without meaning anything.
VOLATILE: dict[str, Any] = {
    "pid": 1,
    "python": "3",
    "torch": "2",
    "cuda": None,
    "cudnn": None,
    "numpy": None,
}


def normalised(line: str, project: Path) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(line.replace(str(project), "/project"))
    for name, value in VOLATILE.items():
        if name in event:
            event[name] = value
    if event.get("seconds") is not None:
        event["seconds"] = 0.001
    if event["kind"] == "names":
        event["cut"] = False
    if event["kind"] == "virtual":
        event["operations"], event["assumed_values"] = 1, 1
    if event["kind"] == "sources":
        event["files"] = {path: "0" * 64 for path in event["files"]}
    if event["kind"] == "raised":
        text = event["exception"]
        text["traceback"] = re.sub(r"\n\s*[\^~]+\n", "\n", text["traceback"])
    return event


@pytest.mark.torch
def test_the_recorder_writes_the_golden_file(record, torch_python):
    done = record(
        SOURCE,
        python=torch_python,
        device="virtual",
        card="h200",
        purpose="trace",
        capacity_bytes=2**28,
    )
    lines = (done.folder / "events.jsonl").read_text().splitlines()
    written = "".join(json.dumps(normalised(line, done.project)) + "\n" for line in lines)
    if os.environ.get("HEADROOM_UPDATE_GOLDEN"):
        GOLDEN.write_text(written)
    assert [json.loads(line) for line in written.splitlines()] == [
        json.loads(line) for line in GOLDEN.read_text().splitlines()
    ]


def test_the_reader_reads_the_golden_file():
    events = read_events(GOLDEN.read_text())
    kinds = [event.kind for event in events]
    assert kinds[0] == "start" and kinds[-1] == "end"
    assert kinds.count("update") == 2
    assert {
        "torch",
        "device",
        "parameters",
        "oom",
        "snapshot",
        "names",
        "raised",
        "calls",
        "peak",
        "virtual",
        "sources",
    } <= set(kinds)
    raised = next(event for event in events if event.kind == "raised")
    assert raised.oom and raised.exception.line == 11
    calls = next(event for event in events if event.kind == "calls")
    assert [(site.line, site.reached_calls) for site in calls.sites] == [(6, 2), (10, 0)]


def test_a_torn_last_line_is_left_out_and_a_torn_middle_one_is_not():
    lines = GOLDEN.read_text().splitlines()
    torn = "\n".join([*lines, lines[0][:20]])
    assert len(read_events(torn)) == len(lines)
    with pytest.raises(ValueError, match="line 2 is not an event"):
        read_events("\n".join([lines[0], lines[1][:20], lines[2]]))


def test_not_a_number_survives_the_json():
    line = '{"v": 1, "kind": "update", "index": 1, "loss": NaN, "samples": 2, "seconds": null}'
    (event,) = read_events(line)
    assert event.kind == "update" and str(event.loss) == "nan"
