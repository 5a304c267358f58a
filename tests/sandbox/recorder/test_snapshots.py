"""What is done to a real device's snapshot before it is written, on one made by hand: no device is needed."""

import json
import subprocess
import textwrap

import pytest

pytestmark = pytest.mark.torch

SCRIPT = """
    import importlib, json, sys
    from pathlib import Path
    sys.path.insert(0, RECORDER)
    import bootstrap
    bootstrap.load_package("_headroom_recorder", Path(RECORDER))
    snapshots = importlib.import_module("_headroom_recorder.snapshots")
    class Config:
        def original(self, path): return path.replace("/copy/", "/user/")
    class Sites:
        def frames(self, site):
            return [{"filename": "/copy/model.py", "line": site, "name": "forward"}] if site < 9 else []
    def frame(name, line, function): return {"filename": name, "line": line, "name": function}
    def alloc(addr, label, frames):
        return {"action": "alloc", "addr": addr, "size": 512, "user_metadata": label, "frames": frames}
    own = [frame("/copy/a.py", 3, "<headroom call>"), frame(RECORDER + "/mode.py", 9, "__torch_function__"),
           frame("/copy/a.py", 3, "f"), frame(RECORDER + "/bootstrap.py", 30, "<module>")]
    B = "hr:u=1,c=2,p=backward,n="
    trace = [
        alloc(0, "hr:u=1,c=2,p=forward,m=Net.a", own),
        alloc(512, B + "AddmmBackward0,s=4,m=Net.a,b", []),
        alloc(1024, B + "AddmmBackward0", []),
        alloc(1536, B + "AccumulateGrad,g=Net.a,s=3", []),
        alloc(2048, B + "AccumulateGrad,s=5,g=Net.b", []),
        alloc(2560, B + "MulBackward0,s=6", [frame("/copy/a.py", 7, "hook")]),
        alloc(3072, B + "MulBackward0,s=99", []),
        {"action": "free_requested", "addr": 512, "size": 512, "user_metadata": B + "MulBackward0,s=8", "frames": []},
        {"action": "free_completed", "addr": 512, "size": 512, "user_metadata": "", "frames": []},
        {"action": "free_completed", "addr": 9999, "size": 512, "user_metadata": B + "MulBackward0,s=8", "frames": []},
        alloc(3584, B + "MulBackward0,s=4", [frame("/site/torch/autograd/graph.py", 900, "_engine_run_backward"),
                                             frame("/copy/a.py", 8, "backward")]),
        {"action": "oom", "device_free": 0, "size": 512, "user_metadata": B + "MmBackward0,s=7", "frames": []},
    ]
    block = {"address": 2048, "size": 512, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "address": 2048, "blocks": [block], "frames": own}
    snapshot = {"segments": [segment], "device_traces": [trace]}
    snapshots.finish_snapshot(snapshot, Config(), Sites())
    shown = lambda holder: [(f["filename"], f["line"], f["name"]) for f in holder["frames"]]
    print(json.dumps([[shown(entry) for entry in trace], shown(block), shown(snapshot["segments"][0])]))
"""


def test_frames_are_cleaned_and_owners_filled_in(root, torch_python):
    recorder = str(root / "sandbox" / "recorder")
    source = f"RECORDER = {recorder!r}\n" + textwrap.dedent(SCRIPT)
    done = subprocess.run([torch_python, "-c", source], capture_output=True, text=True, check=False)
    assert not done.stderr
    entries, block, segment = json.loads(done.stdout)
    forward = ["/user/a.py", 3, "f"]

    def marker(node):
        return ["??", 0, f"[backward] {node}"]

    def site(number):
        return ["/user/model.py", number, "forward"]

    assert segment == [forward]
    assert entries == [
        [forward],
        [marker("AddmmBackward0"), site(4)],
        [],
        [marker("AccumulateGrad")],  # what follows `g=` is a name, whatever it looks like
        [marker("AccumulateGrad"), site(5)],
        [["/user/a.py", 7, "hook"]],
        [marker("MulBackward0")],
        [marker("AddmmBackward0"), site(4)],
        [marker("AddmmBackward0"), site(4)],
        [],
        [
            marker("MulBackward0"),
            site(4),
        ],  # of the node, not of the checkpoint that called the engine
        [marker("MmBackward0"), site(7)],
    ]
    assert block == [marker("AccumulateGrad"), site(5)]
