"""torch's own sentences, of several versions, as people paste them."""

import pytest

from headroom.snapshots.oom_text import OomMessage, read_oom_message, what_it_says
from headroom.units import GIB, MIB

TORCH_2_11 = """
Traceback (most recent call last):
  File "/srv/job/train.py", line 88, in <module>
    main()
  File "/srv/job/model.py", line 41, in forward
    return self.head(x)
  File "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of \
which 1.50 GiB is free. Including non-PyTorch memory, this process has 77.65 GiB memory in use. Of the allocated \
memory 70.25 GiB is allocated by PyTorch, and 6.75 GiB is reserved by PyTorch but unallocated. If reserved but \
unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.
"""
TORCH_1_12 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 7.79 GiB total capacity; 5.50 GiB already "
    "allocated; 10.25 MiB free; 5.75 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
    "setting max_split_size_mb to avoid fragmentation."
)


def read(text: str) -> OomMessage:
    message = read_oom_message(text)
    assert message is not None
    return message


def test_every_amount_of_a_recent_message_is_read() -> None:
    message = read(TORCH_2_11)
    assert message.device == 0
    assert message.requested_bytes == 2 * GIB
    assert message.total_bytes == int(79.15 * GIB)
    assert message.free_bytes == int(1.5 * GIB)
    assert message.process_bytes == int(77.65 * GIB)
    assert message.allocated_bytes == int(70.25 * GIB)
    assert message.reserved_unallocated_bytes == int(6.75 * GIB)
    assert message.demand_bytes == int(72.25 * GIB)
    assert message.reserved_bytes == 77 * GIB


def test_the_line_is_the_users_innermost_not_the_librarys() -> None:
    message = read(TORCH_2_11)
    assert (message.file, message.line) == ("/srv/job/model.py", 41)


def test_an_old_message_gives_the_same_quantities() -> None:
    message = read(TORCH_1_12)
    assert message.device == 1
    assert message.allocated_bytes == int(5.5 * GIB)
    assert message.reserved_unallocated_bytes == int(0.25 * GIB)
    assert message.free_bytes == int(10.25 * MIB)
    assert message.elsewhere_bytes == int(7.79 * GIB) - int(10.25 * MIB) - int(5.75 * GIB)


def test_a_cap_of_the_process_is_told(capture_truth) -> None:
    message = read(capture_truth("oom_capped")["error"])
    assert message.limit_bytes == 600 * MIB
    assert message.requested_bytes == 32 * MIB
    assert any("limited to 600.00 MiB" in sentence for sentence in what_it_says(message))


def test_free_memory_larger_than_the_request_points_to_fragmentation() -> None:
    said = " ".join(what_it_says(read(TORCH_2_11)))
    assert "at least 72.25 GiB" in said
    assert "expandable_segments" in said
    smaller = TORCH_2_11.replace("and 6.75 GiB", "and 1.00 GiB")
    assert "fragmentation alone does not explain it" in " ".join(what_it_says(read(smaller)))


def test_memory_of_others_is_pointed_out() -> None:
    others = TORCH_2_11.replace("process has 77.65 GiB", "process has 17.65 GiB")
    assert any("outside this program's tensors" in one for one in what_it_says(read(others)))
    assert not any("outside" in one for one in what_it_says(read(TORCH_2_11)))
    # What the process itself holds beside torch's tensors is no other process's.
    own = TORCH_2_11.replace("70.25 GiB is alloc", "10.25 GiB is alloc")
    assert not any("outside" in one for one in what_it_says(read(own)))


def test_of_several_messages_the_last_counts() -> None:
    assert read(TORCH_1_12 + "\n" + TORCH_2_11).requested_bytes == 2 * GIB


def test_what_the_message_does_not_say_is_not_made_up() -> None:
    message = read("OutOfMemoryError: CUDA out of memory.")
    assert message.demand_bytes is message.reserved_bytes is message.elsewhere_bytes is None
    assert what_it_says(message) == (
        "Which lines hold the memory, the message does not say: that takes a snapshot.",
    )


@pytest.mark.parametrize(
    "text", ["", "Killed", "RuntimeError: shapes do not match", "out of memory"]
)
def test_other_texts_are_no_message(text: str) -> None:
    assert read_oom_message(text) is None
