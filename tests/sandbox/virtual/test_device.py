"""The device's words and limits, without torch."""

from collections.abc import Callable
from typing import Any

import pytest

from headroom.sandbox.virtual.allocator import OutOfMemory
from headroom.sandbox.virtual.cards import CARDS
from headroom.sandbox.virtual.device import VirtualDevice, format_size

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (100, "100 bytes"),
        (1536, "1.50 KiB"),
        (32 * MIB, "32.00 MiB"),
        (150_109_880_320, "139.80 GiB"),
    ],
)
def test_sizes_read_as_in_torch(size: int, text: str) -> None:
    assert format_size(size) == text


def test_the_message_is_torchs_word_for_word(capture_truth: Callable[[str], Any]) -> None:
    truth = capture_truth("oom_observer")
    _, segment, allowed, free = truth["observer"]
    failure = OutOfMemory(
        requested_bytes=segment,
        segment_bytes=segment,
        free_bytes=free,
        allowed_bytes=allowed,
        allocated_bytes=truth["live_at_oom"],
        reserved_bytes=truth["memory_reserved"],
    )
    message = VirtualDevice(CARDS["h200"]).out_of_memory_message(failure)
    assert message.startswith(truth["error"])


def test_a_cap_holds_against_a_larger_fraction() -> None:
    device = VirtualDevice(CARDS["t4"], 100 * MIB)
    device.set_fraction(1.0)
    assert device.allocator.limit_bytes == 100 * MIB
    device.set_fraction(0.001)
    assert device.allocator.limit_bytes == int(0.001 * device.total_memory_bytes)


def test_observers_come_before_the_error() -> None:
    device = VirtualDevice(CARDS["t4"], 100 * MIB, error=RuntimeError)
    seen: list[tuple[int, ...]] = []
    device.attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
    device.malloc(60 * MIB)
    with pytest.raises(RuntimeError, match=r"100\.00 MiB allowed"):
        device.malloc(41 * MIB)
    free = device.total_memory_bytes - device.card.context_bytes - 60 * MIB
    assert seen == [(0, 42 * MIB, 100 * MIB, free)]


def test_without_a_cap_the_device_is_the_limit() -> None:
    device = VirtualDevice(CARDS["t4"], error=RuntimeError)
    with pytest.raises(RuntimeError, match=r"Tried to allocate 14\.75 GiB") as refused:
        device.malloc(device.total_memory_bytes)
    assert "allowed" not in str(refused.value)
    device.malloc(device.total_memory_bytes - device.card.context_bytes - 2 * MIB)


def test_temporaries_come_and_go_in_order() -> None:
    device = VirtualDevice(CARDS["t4"])
    device.history.configure("all", None, 100)
    device.temporary((512, (1024,), 0, 2048))
    events = [
        (entry.action, entry.size_bytes)
        for entry in device.history.entries()
        if entry.action in ("alloc", "free_completed")
    ]
    assert events == [
        ("alloc", 512),
        ("alloc", 1024),
        ("free_completed", 1024),
        ("alloc", 2048),
        ("free_completed", 2048),
        ("free_completed", 512),
    ]


def test_a_failing_temporary_gives_back_what_it_took() -> None:
    device = VirtualDevice(CARDS["t4"], 100 * MIB, error=RuntimeError)
    with pytest.raises(RuntimeError):
        device.temporary((60 * MIB, 60 * MIB))
    assert device.allocator.stats.current("allocated_bytes") == 0


def test_an_unlimited_device_goes_beyond_its_memory_and_any_cap() -> None:
    device = VirtualDevice(CARDS["t4"], 100 * MIB, unlimited=True, error=RuntimeError)
    device.set_fraction(0.001)
    blocks = [device.malloc(device.total_memory_bytes) for _ in range(2)]
    assert device.allocator.reserved_bytes >= 2 * device.total_memory_bytes
    assert device.memory_info() == (0, device.total_memory_bytes)
    assert len({block.address for block in blocks}) == 2
    with pytest.raises(RuntimeError, match="out of memory"):
        device.malloc(8 << 40)
