"""Prints, for calls described in a file, the buffers that the virtual GPU says their kernels take."""

import json
import sys
from pathlib import Path

import torch
from virtual_runner import load

load()
from _virtual_under_test.cards import CARDS
from _virtual_under_test.kernels import plan_of
from _virtual_under_test.schema import Call, read


def argument(value):
    if isinstance(value, dict):
        dtype, shape, strides = value["t"]
        return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device="meta")
    return [argument(item) for item in value] if isinstance(value, list) else value


def flat(sizes):
    for size in sizes:
        if isinstance(size, int):
            yield size
        else:
            yield from flat(size)


for row in json.loads(Path(sys.argv[1]).read_text())["rows"]:
    overload = torch.ops.aten
    for part in row["op"].split(".")[1:]:
        overload = getattr(overload, part)
    call = Call(read(overload), tuple(argument(value) for value in row["args"]), {})
    plan = plan_of(call, CARDS["h200"])
    print(json.dumps(sorted(flat(plan or ()), reverse=True)))
