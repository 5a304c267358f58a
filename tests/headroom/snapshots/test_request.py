"""What may come back from the child: our own dataclasses, and nothing that they could lead to."""

import os
import pickle

import pytest

from headroom.evidence.account.account import DeviceFacts
from headroom.snapshots.limits import limits_for
from headroom.snapshots.request import ReadAnswer, ReadRequest, pack_message, unpack_message
from headroom.units import MIB


def test_requests_and_answers_come_out_as_they_went_in() -> None:
    request = ReadRequest(
        path="/x", limits=limits_for(MIB), facts=DeviceFacts(total_bytes=5), roots=("/a",)
    )
    assert unpack_message(pack_message(request)) == request
    assert unpack_message(pack_message(ReadAnswer(refused="no"))) == ReadAnswer(refused="no")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("headroom.snapshots.request", "pickle.loads"),
        ("headroom.snapshots.request", "pack_message"),
        ("headroom.snapshots.request", "ReadRequest.__init__"),
        ("headroom.evidence.account.account", "account_for"),
        ("dataclasses", "dataclass"),
    ],
)
def test_nothing_else_is_looked_up(module: str, name: str) -> None:
    data = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode()
    data += b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    with pytest.raises(pickle.UnpicklingError, match="not part of an answer"):
        unpack_message(data)


def test_a_call_is_not_made() -> None:
    class Call:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, ("/nowhere/at/all",)

    with pytest.raises(pickle.UnpicklingError):
        unpack_message(pickle.dumps(Call()))


def test_limits_grow_with_the_file_and_with_the_names() -> None:
    small, large = limits_for(0), limits_for(100 * MIB)
    assert small.cpu_seconds < 5
    assert small.address_space_bytes < 512 * MIB
    assert large.cpu_seconds > 10 * small.cpu_seconds
    assert limits_for(0, names=600_000).cpu_seconds >= 30
