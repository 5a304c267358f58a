"""Skips what needs a device where the program's interpreter sees none."""

import subprocess

import pytest


@pytest.fixture(autouse=True)
def _needs_a_device(torch_python: str) -> None:
    done = subprocess.run(
        [torch_python, "-c", "import torch; print(torch.cuda.is_available())"],
        capture_output=True,
        text=True,
        check=True,
    )
    if done.stdout.strip() != "True":
        pytest.skip("torch sees no CUDA device")
