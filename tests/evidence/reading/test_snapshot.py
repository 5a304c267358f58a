import copy
from collections.abc import Callable
from typing import Any

import pytest

from headroom.errors import SnapshotError
from headroom.evidence.account.replay import replay_device
from headroom.evidence.model import Frame
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.reference_allocator import MIB, Allocator


def tree() -> dict[str, Any]:
    allocator = Allocator()
    allocator.free(allocator.malloc(5 * MIB))
    allocator.malloc(3 * MIB)
    return copy.deepcopy(allocator.snapshot())


def entry(tree: dict[str, Any], index: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = tree["device_traces"][0][index]
    return found


def block(tree: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = tree["segments"][0]["blocks"][0]
    return found


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no segments": (lambda t: t.pop("segments"), "no `segments`"),
    "segments are no list": (lambda t: t.update(segments={}), "`segments` is no list"),
    "traces are no list": (lambda t: t.update(device_traces=3), "`device_traces` is no list"),
    "a trace is no list": (lambda t: t.update(device_traces=[{}]), "history of device 0"),
    "an entry is no dictionary": (lambda t: t["device_traces"][0].append(7), "entry 5 of device 0"),
    "no action": (lambda t: entry(t).pop("action"), "has no action"),
    "an action of another type": (lambda t: entry(t).update(action=["alloc"]), "has no action"),
    "no address": (lambda t: entry(t).pop("addr"), "no valid address"),
    "an address beyond 64 bits": (lambda t: entry(t).update(addr=2**64), "no valid address"),
    "a negative address": (lambda t: entry(t).update(addr=-1), "no valid address"),
    "a truth for an address": (lambda t: entry(t).update(addr=True), "no valid address"),
    "no size": (lambda t: entry(t).pop("size"), "no valid size"),
    "a size of 256 TiB": (lambda t: entry(t).update(size=2**48), "no valid size"),
    "a truth for a size": (lambda t: entry(t).update(size=True), "no valid size"),
    "a size with a fraction": (lambda t: entry(t).update(size=512.0), "no valid size"),
    "frames are no list": (lambda t: entry(t).update(frames={}), "frames that are no list"),
    "a segment is no dictionary": (lambda t: t["segments"].append([]), "segment 1"),
    "a segment without size": (lambda t: t["segments"][0].pop("total_size"), "`total_size`"),
    "a device out of range": (lambda t: t["segments"][0].update(device=-1), "`device`"),
    "blocks are no list": (lambda t: t["segments"][0].update(blocks=None), "`blocks` of segment 0"),
    "a block is no dictionary": (lambda t: t["segments"][0].update(blocks=[1]), "block 0"),
    "an unknown state": (lambda t: block(t).update(state="asleep"), "no known state"),
    "a state of another type": (lambda t: block(t).update(state=[]), "no known state"),
    "a block without size": (lambda t: block(t).pop("size"), "`size`"),
    "an empty block": (lambda t: block(t).update(size=0), "`size`"),
    "a block larger than its segment": (lambda t: block(t).update(size=2**40), "overlap"),
    "a block before its segment": (lambda t: block(t).update(address=0), "overlap"),
    "segments overlap": (lambda t: t["segments"].append(t["segments"][0]), "segments of device 0"),
}


@pytest.mark.parametrize(("break_it", "sentence"), FAULTS.values(), ids=FAULTS.keys())
def test_what_cannot_be_is_refused_in_one_sentence(
    break_it: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    broken = tree()
    parse_snapshot(broken)
    break_it(broken)
    with pytest.raises(SnapshotError, match=sentence) as caught:
        parse_snapshot(broken)
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("other", [None, 7, "segments", (1, 2), {"device_traces": []}])
def test_other_plain_data_are_no_snapshot(other: object) -> None:
    with pytest.raises(SnapshotError, match="no allocator snapshot"):
        parse_snapshot(other)


def test_blocks_that_run_over_the_end_are_refused() -> None:
    broken = tree()
    broken["segments"][0]["blocks"][-1]["size"] += 512
    with pytest.raises(SnapshotError, match="do not fit"):
        parse_snapshot(broken)


def test_old_files_without_addresses_give_the_same_bytes() -> None:
    old = tree()
    for one in old["segments"][0]["blocks"]:
        del one["address"]
    fresh, aged = (replay_device(parse_snapshot(one), 0) for one in (tree(), old))
    assert aged.contradictions == 0
    assert aged.allocated_after == fresh.allocated_after


def test_a_bare_list_of_segments_has_blocks_and_no_history() -> None:
    snapshot = parse_snapshot(tree()["segments"])
    assert snapshot.histories == ()
    assert replay_device(snapshot, 0).peak_allocated_bytes == 3 * MIB


def test_the_oldest_blocks_keep_their_owner_in_a_history() -> None:
    frames = [{"filename": "a.py", "line": 1, "name": "f"}]
    old = {"size": 1024, "state": "active_allocated"}
    old["history"] = [{"addr": 4096, "real_size": 700, "frames": frames}]
    snapshot = parse_snapshot([{"address": 4096, "total_size": 1024, "blocks": [old]}])
    (segment,) = snapshot.segments
    (only,) = segment.blocks
    assert (only.address, only.requested_bytes) == (4096, 700)
    assert only.stack is not None
    assert snapshot.stacks.frames(only.stack) == (Frame(filename="a.py", line=1, name="f"),)


def test_frames_may_be_absent_and_pools_may_be_lists() -> None:
    lenient = tree()
    for one in lenient["device_traces"][0]:
        del one["frames"]
    lenient["segments"][0]["segment_pool_id"] = [0, 3]
    snapshot = parse_snapshot(lenient)
    assert snapshot.segments[0].pool == (0, 3)
    assert replay_device(snapshot, 0).peak_allocated_bytes == 5 * MIB


@pytest.mark.parametrize("state", ["active_pending_free", "active_awaiting_free"])
def test_both_spellings_of_a_pending_block_are_known(state: str) -> None:
    pending = tree()
    block(pending)["state"] = state
    assert parse_snapshot(pending).segments[0].blocks[0].state == "pending"


def test_devices_are_those_with_anything() -> None:
    many = tree()
    many["device_traces"] = [[], [], many["device_traces"][0]]
    snapshot = parse_snapshot(many)
    assert snapshot.devices == (0, 2)
    assert len(snapshot.history_of(1)) == len(snapshot.history_of(9)) == 0
    assert len(snapshot.history_of(2)) == 5
    assert len(snapshot.segments_of(0)) == 1
    assert snapshot.segments_of(2) == ()


def test_actions_of_a_later_torch_are_passed_over_and_counted() -> None:
    later = tree()
    later["device_traces"][0].insert(2, {"action": "host_alloc", "size": 4096, "new_field": []})
    snapshot = parse_snapshot(later)
    assert snapshot.notes == (
        "1 entry of a kind that this Headroom does not know were passed over",
    )
    assert replay_device(snapshot, 0).peak_allocated_bytes == 5 * MIB


def test_frames_that_nest_without_end_are_refused() -> None:
    endless = tree()
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    other: list[object] = []
    for _ in range(100_000):
        other = [other]
    frames = [{"filename": "a.py", "line": 1, "name": "f"}] * 9
    first, second = endless["device_traces"][0][:2]
    # Alike in the places that are compared by identity, and different objects in another.
    first["frames"], second["frames"] = frames[:], frames[:]
    first["frames"][1], second["frames"][1] = nested, other
    for one in (first, second):
        one["action"] = "alloc"
    with pytest.raises(SnapshotError, match="nested too deeply"):
        parse_snapshot(endless)
