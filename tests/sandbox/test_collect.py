"""From the recorder's lines to the record, where no run is needed to see it."""

import json

import pytest

from headroom.records.events import read_events
from headroom.sandbox.collect import _non_torch
from headroom.sandbox.seen import Seen


def device_memory(**fields: int) -> str:
    plain = {"v": 1, "kind": "device_memory", "device": 0, "free_bytes": 70, "total_bytes": 100}
    return json.dumps({**plain, "reserved_bytes": 20, **fields})


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([device_memory()], 10),
        ([device_memory(), device_memory(free_bytes=60)], 20),
        # Another process may free memory between the two questions.
        ([device_memory(free_bytes=90)], 0),
        ([device_memory(device=1)], None),
        ([], None),
    ],
)
def test_what_is_neither_free_nor_the_allocators_is_not_torchs(
    lines: list[str], expected: int | None
) -> None:
    assert _non_torch(Seen(read_events("\n".join(lines)))) == expected
