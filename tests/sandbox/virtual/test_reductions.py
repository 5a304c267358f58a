"""Staging buffers of reductions against those that the allocator of an H200 saw."""

import json
from pathlib import Path

import pytest

from headroom.sandbox.virtual.reductions import Processor, staging_bytes

ROWS = json.loads((Path(__file__).parent / "h200_reductions.json").read_text())["rows"]
H200 = Processor(multiprocessors=132, threads_per_multiprocessor=2048)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}-{row[4]}")
def test_staging_is_the_measured_one(
    row: tuple[str, str, list[int], list[int], list[int], int, list[int]],
) -> None:
    operator, _, shape, strides, reduced, accumulator_bytes, measured = row
    staging = staging_bytes(
        shape,
        strides,
        reduced,
        H200,
        accumulator_bytes=accumulator_bytes,
        values_at_once=2 if operator == "var" else 4,
    )
    assert list(staging or ()) == measured


def test_a_smaller_card_splits_less() -> None:
    small = Processor(multiprocessors=40, threads_per_multiprocessor=1024)
    on_small = staging_bytes([4096, 4096], [4096, 1], [0], small, accumulator_bytes=4)
    on_h200 = staging_bytes([4096, 4096], [4096, 1], [0], H200, accumulator_bytes=4)
    assert on_small is not None and on_h200 is not None
    assert on_small[0] < on_h200[0]


def test_nothing_to_reduce() -> None:
    assert staging_bytes([], [], [], H200, accumulator_bytes=4) is None
    assert staging_bytes([0, 5], [5, 1], [0], H200, accumulator_bytes=4) is None
