"""Where the virtual GPU cannot work, it says why in one sentence."""

import types
from collections.abc import Callable
from typing import Any

import pytest

from headroom.sandbox import virtual
from headroom.sandbox.virtual.cards import CARDS, Card


def fake_torch(version: str, **attributes: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        __version__=version, version=types.SimpleNamespace(hip=None), **attributes
    )


def test_an_unknown_card_lists_the_known_ones() -> None:
    reason = virtual.unsupported_reason("h2000")
    assert reason == f"no card is called 'h2000'; known are {', '.join(CARDS)}"
    with pytest.raises(virtual.Unsupported, match="no card is called 'h2000'"):
        virtual.install("h2000")


def test_other_processors_and_systems() -> None:
    assert virtual.unsupported_reason(machine="aarch64") == (
        "the virtual GPU needs an x86-64 processor, this is aarch64"
    )
    assert virtual.unsupported_reason(machine="x86_64", system="Darwin") == (
        "the virtual GPU needs Linux, this is Darwin"
    )


def test_an_old_torch() -> None:
    reason = virtual.unsupported_reason(torch=fake_torch("2.4.1+cu121"))
    assert reason == "the virtual GPU does not know torch 2.4.1+cu121; 2.11 and 2.13 were tried"


def test_a_torch_that_lost_a_name() -> None:
    reason = virtual.unsupported_reason(torch=fake_torch("2.99.0", _C=types.SimpleNamespace()))
    assert reason == (
        "torch 2.99.0 has no torch._C._ensureCUDADeviceGuardSet, which the virtual GPU needs"
    )


def test_a_torch_for_rocm() -> None:
    torch = fake_torch("2.13.0")
    torch.version.hip = "6.4"
    reason = virtual.unsupported_reason(torch=torch)
    assert reason == "the virtual GPU simulates CUDA, and this torch is built for ROCm"


def test_torch_is_missing_here() -> None:
    assert virtual.unsupported_reason() == "torch is not installed in this interpreter"


@pytest.mark.torch
def test_with_torch(run_plain: Callable[..., Any]) -> None:
    done = run_plain("virtual_refusals.py")
    assert done.code == 0, done.stderr[-2000:]
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    misfit = said["another layout"].split(": ")
    assert misfit[0].startswith("the virtual GPU does not fit torch 2.")
    assert misfit[1] == "the table of torch's CUDA hooks is not laid out as its headers say"
    assert said["a lost name"].endswith(": torch's CUDA hooks have no hasCUDA")
    assert said["a real device"] == (
        "a real CUDA device is visible; start the program with CUDA_VISIBLE_DEVICES empty"
    )
    assert said["as it is"] == "None"
    assert said["card"] == "Tesla T4 (7, 5)"
    doubts = [name for name in said if name.startswith("doubt about ")]
    assert [name.split()[2] for name in doubts] == ["The", "Allocator"]
    assert "public specifications" in doubts[0] and "PYTORCH_CUDA_ALLOC_CONF" in doubts[1]
    assert said["in use"] == "CUDA is initialised already; the virtual GPU must come before it"
    assert said["again"] == "the virtual GPU is installed already"


def test_every_card_is_complete() -> None:
    assert {"h200", "h100", "a100-80gb", "l4", "rtx4090", "t4"} <= set(CARDS)
    for key, card in CARDS.items():
        assert isinstance(card, Card) and card.key == key
        assert 14 << 30 < card.total_memory_bytes < 160 << 30
        assert card.multiprocessors >= 40 and card.capability >= (7, 0)
        assert (card.blas_workspace_bytes == 32 << 20) == (card.capability == (9, 0))
        assert bool(card.measured) == (key == "h200")
        assert card.measured <= set(Card.__dataclass_fields__)
