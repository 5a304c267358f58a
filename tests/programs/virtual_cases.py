"""Collects cases of a program, runs each by itself, and prints its peak."""

import gc
import json
import sys

import torch

CASES = {}


def case(function):
    """Keeps a case for `run_cases`."""
    CASES[function.__name__] = function
    return function


def run_cases():
    """Runs the cases that the command line names, or all; prints allocated and reserved bytes of each."""
    for name in sys.argv[1:] or CASES:
        torch.manual_seed(0)
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        CASES[name]()
        torch.cuda.synchronize()
        peaks = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
        print("PEAK " + json.dumps({name: peaks}), flush=True)
