"""Leaves the interpreter in the way that the first argument names, with tensors still alive."""

import atexit
import os
import signal
import sys
import threading
import time

import torch

MODEL = torch.nn.Linear(300, 300).cuda()
LOSS = MODEL(torch.randn(8, 300, device="cuda")).sum()
LOSS.backward()
KEPT = [torch.empty(1000, 1000, device="cuda") for _ in range(10)]


class Last:
    """Uses the device while the interpreter goes down."""

    def __init__(self):
        self.tensor = torch.ones(3, device="cuda")

    def __del__(self):
        del self.tensor


LAST = Last()
atexit.register(lambda: print("handler", (torch.ones(2, device="cuda") * 2).tolist(), flush=True))


class SlowToGo:
    """A callable that the engine's thread gives back after the backward pass, and that takes its time."""

    def __call__(self, tensor):
        return tensor

    def __del__(self):
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass


def leave(how):
    if how == "busy":
        with torch.autograd.graph.saved_tensors_hooks(SlowToGo(), SlowToGo()):
            MODEL(torch.randn(8, 300, device="cuda")).sum().backward()
    if how == "exception":
        raise ValueError("on purpose")
    if how == "exit":
        sys.exit(3)
    if how == "oom":
        torch.empty(1 << 40, device="cuda")
    if how == "interrupt":
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            torch.ones(3, device="cuda") + 1


leave(sys.argv[1])
print("end", flush=True)
