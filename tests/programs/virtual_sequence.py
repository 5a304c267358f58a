"""Runs a program beside this one and prints its allocations (bytes) and frees (negative), in order."""

import json
import runpy
import sys
from pathlib import Path

import torch

torch.zeros(1, device="cuda")
torch.cuda.memory._record_memory_history(stacks="python")
runpy.run_path(str(Path(__file__).with_name(sys.argv[1])), run_name="__main__")
trace = torch.cuda.memory._snapshot()["device_traces"][0]
signs = {"alloc": 1, "free_completed": -1}
print("SEQUENCE " + json.dumps([signs[e["action"]] * e["size"] for e in trace if e["action"] in signs]))
