"""An out-of-memory error that the program catches lets go of its frames' tensors, as on a device."""

import pytest

pytestmark = pytest.mark.torch

SOURCE = """
    import gc, torch
    gc.disable()
    def attempt():
        held = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
        torch.empty(2**40, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        try: attempt()
        except torch.OutOfMemoryError: pass
    print("LIVE", torch.cuda.memory_allocated())
"""


def test_a_caught_error_keeps_nothing_alive(record, torch_python):
    done = record(SOURCE, python=torch_python, device="virtual", card="h200")
    assert done.record.outcome == "completed", done.stderr
    assert "LIVE 0" in done.stdout
