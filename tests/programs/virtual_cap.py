"""Running out of memory under a cap of 600 MiB, as a real H200 did it (captures/oom_observer)."""

import torch

from virtual_check import check, raises

CUDA, MIB = "cuda", 1 << 20
SEEN, KEEP = [], []
FREE = 148_762_656_768  # what the real device had left


def block(mebibytes):
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device=CUDA)


def observe(device, requested, allowed, free):
    SEEN.append((device, requested, allowed, free, torch.cuda.memory_allocated(), len(KEEP)))
    if len(SEEN) == 1:
        SEEN.append(torch.cuda.memory._snapshot())


@check
def cached_blocks_are_released_first():
    torch._C._cuda_attach_out_of_memory_observer(observe)
    torch.ones(64, 64, device=CUDA) @ torch.ones(64, 64, device=CUDA)  # cuBLAS takes 32 MiB
    cached = block(500)
    del cached
    assert torch.cuda.memory_reserved() == (2 + 32 + 500) * MIB
    KEEP.append(block(540))  # fits only once the cached 500 MiB are back
    assert torch.cuda.memory_reserved() == (32 + 540) * MIB
    assert torch.cuda.memory_stats()["num_alloc_retries"] == 1 and SEEN == []


@check
def the_observer_sees_what_a_real_one_saw():
    torch.cuda.memory._record_memory_history(clear_history=True)
    KEEP.append(block(24))
    KEEP.append(torch.empty(3 * 512, dtype=torch.uint8, device=CUDA))
    while torch.cuda.memory_reserved() < 600 * MIB:
        KEEP.append(torch.empty(MIB, dtype=torch.uint8, device=CUDA))
    assert torch.cuda.memory_reserved() == 600 * MIB
    live = torch.cuda.memory_allocated()
    text = "Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 138.55 GiB is free."
    raises(torch.OutOfMemoryError, text, lambda: block(32))
    assert SEEN[0] == (0, 32 * MIB, 600 * MIB, FREE, live, len(KEEP))
    assert torch.cuda.memory_stats()["num_ooms"] == 1


@check
def the_message_names_the_cap():
    raises(
        torch.cuda.OutOfMemoryError,
        "600.00 MiB allowed; Of the allocated memory",
        lambda: block(32),
    )


@check
def the_snapshot_shows_the_refusal():
    entry = SEEN[1]["device_traces"][0][-1]
    assert entry["action"] == "oom" and entry["size"] == 32 * MIB
    assert entry["device_free"] == FREE and "addr" not in entry
    assert entry["frames"][0]["name"] == "block"


@check
def the_program_goes_on():
    KEEP.clear()
    assert block(100).is_cuda


@check
def a_program_cannot_lift_the_cap():
    torch.cuda.set_per_process_memory_fraction(1.0)
    raises(torch.OutOfMemoryError, "600.00 MiB allowed", lambda: block(700))


@check
def errors_in_the_backward_pass_keep_their_type():
    x = torch.randn(40 * MIB // 4, device=CUDA, requires_grad=True)

    def grow():
        y = x * 2
        for _ in range(20):
            y = y * y
        y.sum().backward()

    raises(torch.OutOfMemoryError, "CUDA out of memory", grow)
