"""Allocation stacks: innermost first, ours left out, backward allocations with the forward line."""

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

from virtual_check import check

CUDA = "cuda"
BIG = (512, 1024)


def allocations(function):
    """Names of the frames of every allocation of at least 1 MiB that `function` makes."""
    torch.cuda.memory._record_memory_history(clear_history=True)
    function()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    return [e["frames"] for e in trace if e["action"] == "alloc" and e["size"] >= 1 << 20]


def names(frames):
    return [frame["name"] for frame in frames]


def inner():
    return torch.empty(BIG, device=CUDA)


def outer():
    return inner()


@check
def innermost_first():
    (frames,) = allocations(outer)
    assert names(frames)[:3] == ["inner", "outer", "allocations"], names(frames)
    assert (
        frames[0]["filename"] == __file__ and frames[0]["line"] == inner.__code__.co_firstlineno + 1
    )
    assert names(frames)[-1] == "<module>"


@check
def frames_that_are_not_the_programs_are_left_out():
    for frames in allocations(lambda: nn.Linear(1024, 1024).cuda()(inner()).sum()):
        for frame in frames:
            assert "sandbox" not in frame["filename"], frame
            assert not frame["filename"].endswith(("torch/_ops.py", "torch/library.py")), frame


def layer(x, weight):
    return torch.relu(x @ weight)


@check
def backward_allocations_know_their_line():
    x, weight = inner(), torch.empty(1024, 1024, device=CUDA, requires_grad=True)
    y = layer(x, weight).sum()
    for frames in allocations(y.backward):
        assert frames[0]["filename"] == "??" and frames[0]["line"] == 0
        assert frames[0]["name"].startswith("[backward] "), frames[0]
    marked = {
        frames[0]["name"]: names(frames)[1:]
        for frames in allocations(layer(x, weight).sum().backward)
    }
    assert marked["[backward] MmBackward0"][0] == "layer"
    assert marked["[backward] ReluBackward0"][0] == "layer"


@check
def views_have_lines_too():
    x = torch.empty(BIG, device=CUDA, requires_grad=True)

    def slices():
        return x[:256]

    y = slices().sum()
    (frames,) = [f for f in allocations(y.backward) if "Slice" in f[0]["name"]]
    assert names(frames)[1] == "slices", names(frames)


@check
def recomputed_layers_know_their_line():
    x = torch.empty(BIG, device=CUDA, requires_grad=True)
    weight = torch.empty(1024, 1024, device=CUDA, requires_grad=True)
    for reentrant in (False, True):
        y = checkpoint(layer, x, weight, use_reentrant=reentrant).sum()
        found = allocations(y.backward)
        recomputed = [names(f) for f in found if "layer" in names(f) and names(f)[1] == "layer"]
        assert recomputed, reentrant
        gradients = [names(f) for f in found if f[0]["name"] == "[backward] MmBackward0"]
        assert gradients and all("layer" in found_names for found_names in gradients), gradients
