"""Files that were made to harm end in one sentence."""

import collections
import datetime
import gc
import io
import os
import pickle
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.errors import SnapshotError
from headroom.evidence.analysis import analyse
from headroom.evidence.pack.build import build_pack
from headroom.evidence.reading.safe_pickle import (
    PlainUnpickler,
    load_plain,
    read_snapshot,
    read_snapshot_file,
)
from tests.evidence.reference_allocator import MIB, Allocator

CAPTURES = Path(__file__).resolve().parents[2] / "recordings" / "captures"


def load(data: bytes) -> object:
    return load_plain(io.BytesIO(data))


@contextmanager
def limited_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 400 * MIB, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def small_snapshot() -> bytes:
    allocator = Allocator()
    allocator.frames = [{"filename": "/srv/job/train.py", "line": 3, "name": "step"}]
    allocator.free(allocator.malloc(5 * MIB))
    allocator.malloc(700)
    return pickle.dumps(allocator.snapshot(), protocol=4)


TRACE = Path(tempfile.gettempdir()) / f"headroom-test-{os.getpid()}"


class Command:
    """Runs a command when it is unpickled by anybody less careful."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {TRACE}",)


class Remembering(pickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return "elsewhere" if obj == "mark" else None


def with_persistent_id(protocol: int) -> bytes:
    file = io.BytesIO()
    Remembering(file, protocol).dump({"segments": ["mark"]})
    return file.getvalue()


PROTO = b"\x80\x04"
REFUSED = {
    "a call": pickle.dumps({"segments": [Command()]}, protocol=4),
    "a call, protocol 2": pickle.dumps({"segments": [Command()]}, protocol=2),
    "an old-style instance": PROTO + b"(ios\nsystem\n.",
    "a harmless global": pickle.dumps({"segments": [], "a": collections.OrderedDict()}, 4),
    "a date": pickle.dumps({"segments": [datetime.date(2000, 1, 1)]}, protocol=4),
    "a class": pickle.dumps(dict, protocol=4),
    "an extension code": PROTO + b"\x82\x01.",
    "a persistent id": with_persistent_id(4),
    "bytes": pickle.dumps({"segments": [b"raw"]}, protocol=4),
    "a byte array": pickle.dumps({"segments": [bytearray(b"raw")]}, protocol=5),
    "a set": pickle.dumps({"segments": [{1, 2}]}, protocol=4),
    "a frozen set": pickle.dumps({"segments": [frozenset({1})]}, protocol=4),
    "an integer of 8 MB": pickle.dumps(1 << (8 * 8_000_000), protocol=4),
    "an integer of 10 bytes": pickle.dumps(1 << 72, protocol=4),
    "a memo of 2 GB": PROTO + b"}r" + (1 << 27).to_bytes(4, "little") + b".",
    "a memo of 64 MB": PROTO + b"}r" + (1 << 22).to_bytes(4, "little") + b".",
    "a memo by text": PROTO + b"}p134217728\n.",
    "only lists": PROTO + b"](" + b"]" * 100_000 + b"e.",
    "only dictionaries": PROTO + b"](" + b"}" * 100_000 + b"e.",
    "nested tuples": PROTO + b"N" + b"\x85" * 100_000 + b".",
    "text that never ends": PROTO + b"X\xff\xff\xff\x7fabc.",
    "text of 16 EB": PROTO + b"\x8d" + b"\xff" * 8 + b"abc.",
    "bytes of 16 EB": PROTO + b"\x8e" + b"\xff" * 8 + b"abc.",
    "no protocol": pickle.dumps({"segments": []}, protocol=0),
    "protocol 1": pickle.dumps({"segments": []}, protocol=1),
    "a protocol of the future": b"\x80\x06}.",
    "an unhashable key": PROTO + b"}]Ns.",
    "an empty stack": PROTO + b"u.",
    "a memo that is not there": PROTO + b"h\x05.",
    "nothing on the stack": PROTO + b".",
    "text that is no UTF-8": PROTO + b"\x8c\x02\xff\xfe.",
    "empty": b"",
    "one byte": b"\x80",
    "JSON": b'{"segments": []}',
    "a checkpoint": b"PK\x03\x04" + b"\x00" * 60,
    "an image": b"\x89PNG\r\n\x1a\n" + b"\x00" * 60,
}


BOMBS = {what for what in REFUSED if "memo" in what or what.startswith(("text of", "bytes of"))}


@pytest.mark.parametrize("what", sorted(set(REFUSED) - BOMBS))
def test_harmful_and_foreign_bytes_are_refused_in_one_sentence(what: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        read_snapshot(REFUSED[what])
    message = caught.value.message
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 220
    assert not TRACE.exists()


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("a call", "asks to import 'posix'"),
        ("a call, protocol 2", "asks to import 'posix'"),
        ("an old-style instance", "asks to import 'os'"),
        ("a harmless global", "asks to import 'collections'"),
        ("a class", "asks to import 'builtins'"),
        ("an extension code", "unregistered extension code"),
        ("a persistent id", "outside itself"),
        ("text that never ends", "damaged"),
        ("empty", "empty"),
        ("a checkpoint", "torch.save"),
        ("JSON", "no pickle of protocol 2 to 5"),
    ],
)
def test_the_sentence_names_the_reason(what: str, sentence: str) -> None:
    with pytest.raises(SnapshotError, match=sentence):
        load(REFUSED[what])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_of_every_kind_come_out_as_they_went_in(protocol: int) -> None:
    shared = ["again"]
    plain = {
        "integers": [0, 255, 256, 65535, 65536, -1, 2**31, 2**63, 2**64 - 1, -(2**62)],
        "rest": [
            0.5,
            float("inf"),
            True,
            False,
            None,
            "",
            "name",
            "ü" * 300,
            (),
            (1,),
            (1, 2, 3, 4),
        ],
        "shared": [shared, shared],
        "many": [{"text": f"value {number}", "n": number} for number in range(600)],
    }
    assert load(pickle.dumps(plain, protocol=protocol)) == plain


def test_every_capture_is_plain(captures: Path) -> None:
    files = sorted(captures.glob("*.pickle"))
    assert len(files) == 13
    for file in files:
        assert load(file.read_bytes()) == pickle.loads(file.read_bytes())


def test_a_torn_file_is_refused_wherever_it_is_torn() -> None:
    data = small_snapshot()
    read_snapshot(data)
    for length in range(len(data)):
        with pytest.raises(SnapshotError):
            read_snapshot(data[:length])


def test_deep_nesting_exhausts_nothing() -> None:
    depth = 100_000
    deep = PROTO + b"](NNNNNNNN" * depth + b"]" + b"e" * depth + b"."
    assert isinstance(load(deep), list)
    with pytest.raises(SnapshotError, match="segment 0 is no dictionary"):
        read_snapshot(deep)


def test_a_list_that_holds_itself_is_no_entry() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(SnapshotError, match="entry 0 of device 0 is no dictionary"):
        read_snapshot(pickle.dumps({"segments": [], "device_traces": [loop]}, protocol=4))


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=80).map(lambda tail: PROTO + tail))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    # Some of these ask for gigabytes; the limit stands in for the child process's.
    with limited_memory():
        try:
            load(data)
        except SnapshotError as error:
            assert error.message.endswith(".")
        except MemoryError:
            pass


@settings(max_examples=150, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6)
)
def test_a_damaged_capture_is_refused_or_accounted_for(changes: list[tuple[int, int]]) -> None:
    data = bytearray((CAPTURES / "fragment.pickle").read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    with limited_memory():
        try:
            analysis = analyse(read_snapshot(bytes(data)))
        except (SnapshotError, MemoryError):
            return
    text = build_pack(analysis.main, facts={}, sources={}).markdown
    assert text.encode()


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_left_as_it_was(was_on: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        load(small_snapshot())
        with pytest.raises(SnapshotError):
            load(REFUSED["an unhashable key"])
        assert gc.isenabled() == was_on
    finally:
        (gc.enable if before else gc.disable)()


def test_the_collector_rests_while_the_file_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    original = PlainUnpickler.load

    def watched(unpickler: PlainUnpickler) -> Any:
        seen.append(gc.isenabled())
        return original(unpickler)

    monkeypatch.setattr(PlainUnpickler, "load", watched)
    load(small_snapshot())
    assert seen == [False]


def test_files_are_checked_before_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(small_snapshot())
    assert read_snapshot_file(file).devices == (0,)
    size = file.stat().st_size
    assert read_snapshot_file(file, max_bytes=size).devices == (0,)
    with pytest.raises(SnapshotError, match="over the limit"):
        read_snapshot_file(file, max_bytes=size - 1)
    with pytest.raises(SnapshotError, match="cannot be read: No such file"):
        read_snapshot_file(tmp_path / "none.pickle")
    with pytest.raises(SnapshotError, match="not a regular file"):
        read_snapshot_file(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(SnapshotError, match="not a regular file"):
        read_snapshot_file(pipe)
