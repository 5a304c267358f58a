"""Asks the package whether it can work, in several situations; prints one answer a line."""

import os
from pathlib import Path

import torch
from virtual_runner import load

virtual = load()
from _virtual_under_test import hooks

NAMES = hooks.slot_names(Path(torch.__file__).parent / "include")


def ask(situation):
    print(f"{situation}: {virtual.unsupported_reason()}", flush=True)


ask("as it is")
hooks.slot_names = lambda folder: NAMES[:-1]
ask("another layout")
hooks.slot_names = lambda folder: [name for name in NAMES if name != "hasCUDA"]
ask("a lost name")
hooks.slot_names = lambda folder: NAMES
count, torch._C._cuda_getDeviceCount = getattr(torch._C, "_cuda_getDeviceCount", None), lambda: 2
ask("a real device")
if count is None:
    del torch._C._cuda_getDeviceCount
else:
    torch._C._cuda_getDeviceCount = count
torch.cuda.is_initialized = lambda: True
ask("in use")
torch.cuda.is_initialized = lambda: torch.cuda._initialized
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
device = virtual.install("t4")
for doubt in device.coverage()["not_modelled"]:
    print(f"doubt about {doubt}: yes")
print("card:", torch.cuda.get_device_name(), torch.cuda.get_device_capability())
ask("again")
