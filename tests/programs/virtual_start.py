"""When CUDA comes up: not before the program asks, exactly once, and not again after a fork."""

import os
import warnings

warnings.simplefilter("ignore")  # Python warns of forks in processes with threads

import torch
import torch.nn as nn

from virtual_check import check, raises

CALLS = []


def in_child(function):
    """Runs `function` in a forked child; returns whether it was true there."""
    child = os.fork()
    if child == 0:
        ok = False
        try:
            ok = bool(function())
        finally:
            os._exit(0 if ok else 1)
    return os.waitpid(child, 0)[1] == 0


def initialises(function):
    """Whether CUDA is up after `function`, in a child of its own."""

    def run():
        assert not torch.cuda.is_initialized()
        function()
        return torch.cuda.is_initialized()

    return in_child(run)


@check
def nothing_is_initialised():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    nn.Linear(3, 3)(torch.randn(2, 3)).sum().backward()
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 0
    assert not torch.cuda.is_initialized()


@check
def these_initialise():
    assert initialises(lambda: torch.empty(1, device="cuda"))
    assert initialises(lambda: torch.tensor([1.0], device="cuda"))
    assert initialises(lambda: nn.Linear(3, 3).cuda())
    assert initialises(lambda: torch.zeros(3).to("cuda"))
    assert initialises(torch.cuda.init)
    assert initialises(torch.cuda.mem_get_info)
    assert initialises(lambda: torch.cuda.get_device_properties(0))
    assert initialises(lambda: torch.cuda.set_per_process_memory_fraction(0.5))
    assert initialises(lambda: torch.cuda.current_stream())


@check
def these_do_not_initialise():
    assert not initialises(torch.cuda.is_available)
    assert not initialises(lambda: torch.cuda.manual_seed_all(1))
    assert not initialises(torch.cuda.memory_allocated)
    assert not initialises(lambda: torch.device("cuda"))
    assert not initialises(lambda: torch.amp.GradScaler("cuda"))


@check
def a_fork_after_init_loses_the_device():
    def forks():
        torch.cuda.init()
        refused = "Cannot re-initialize CUDA in forked subprocess"
        raises_there = lambda: raises(RuntimeError, refused, lambda: torch.ones(3, device="cuda"))
        return in_child(lambda: raises_there() is None)

    assert in_child(forks)


@check
def queued_calls_run_once():
    torch.cuda._lazy_call(lambda: CALLS.append(torch.cuda.is_initialized()))
    assert CALLS == []
    torch.empty(1, device="cuda")
    assert len(CALLS) == 1 and torch.cuda.is_initialized()
    torch.empty(1, device="cuda")
    assert len(CALLS) == 1
    torch.cuda._lazy_call(lambda: CALLS.append("at once"))
    assert CALLS[1:] == ["at once"]


@check
def seeds_given_before_count():
    torch.cuda.manual_seed(5)
    assert torch.cuda.initial_seed() == 5


@check
def forked_children_may_not_use_it():
    def uses_cuda():
        assert not torch.cuda.is_initialized()
        for use in (torch.cuda.init, lambda: torch.ones(3, device="cuda")):
            raises(RuntimeError, "Cannot re-initialize CUDA in forked subprocess", use)
        return torch.ones(3).sum().item() == 3

    assert in_child(uses_cuda)
