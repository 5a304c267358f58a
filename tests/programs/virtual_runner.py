"""Runs a script on the virtual GPU, as the recorder does, and prints what it knew at the end as one JSON line.

    python virtual_runner.py [--card h200] [--capacity BYTES] [--history] [--keep FILE] script.py [arguments]

Exceptions, exit codes and atexit handlers are the script's.
"""

import argparse
import atexit
import importlib.util
import json
import os
import pickle
import runpy
import sys
from pathlib import Path

NAME = "_virtual_under_test"
FOLDER = Path(__file__).resolve().parents[2] / "sandbox" / "virtual"


def load():
    """The package under a private name, from its folder."""
    spec = importlib.util.spec_from_file_location(
        NAME, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)
    return package


def report(device, keep):
    """Prints the counters and the coverage; registered first, so it runs after the script's handlers."""
    if keep:
        with open(keep, "wb") as file:
            pickle.dump(device.snapshot(), file)
    device.collect_frees()
    stats = device.allocator.stats
    names = ("allocated_bytes", "reserved_bytes", "requested_bytes")
    known = {
        "peaks": {name: stats.peak(name) for name in names},
        "coverage": device.coverage(),
        "total_memory_bytes": device.total_memory_bytes,
    }
    print("VIRTUAL " + json.dumps(known), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--card", default="h200")
    parser.add_argument("--capacity", type=int)
    parser.add_argument("--history", action="store_true")
    parser.add_argument("--keep")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    package = load()
    try:
        device = package.install(options.card, options.capacity)
    except package.Unsupported as refusal:
        print(refusal)
        sys.exit(3)
    parent = os.getpid()
    atexit.register(lambda: os.getpid() == parent and report(device, options.keep))
    if options.history:
        import torch

        torch.cuda._lazy_call(torch.cuda.memory._record_memory_history)
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
