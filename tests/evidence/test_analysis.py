import pickle
from pathlib import Path

import pytest

from headroom.errors import SnapshotError
from headroom.evidence.account.account import DeviceFacts
from headroom.evidence.analysis import analyse
from headroom.evidence.ledger import build_ledger
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.make_snapshot import Options, make_snapshot
from tests.evidence.programs import leaking_training
from tests.evidence.test_ledger import NAMES
from tests.evidence.training import Training


@pytest.mark.parametrize("name", NAMES)
def test_an_analysis_begins_with_the_ledger_and_agrees_with_it(captures: Path, name: str) -> None:
    snapshot = read_snapshot_file(captures / f"{name}.pickle")
    analysis = analyse(snapshot, file_bytes=7)
    (device,) = analysis.devices
    ledger = device.ledger
    assert ledger == build_ledger(snapshot)
    assert analysis.main is device
    assert analysis.file_bytes == 7
    assert (
        device.timeline.allocated_bytes[device.timeline.peak_index] == ledger.peak.allocated_bytes
    )
    assert device.fragmentation.entry == (
        ledger.failure.entry if ledger.failure is not None else ledger.entries - 1
    )
    stacks = {use.id: use for use in ledger.stacks}
    for layer in device.timeline.layers:
        if layer.stack is not None:
            at_peak = layer.allocated_bytes[device.timeline.peak_index]
            assert at_peak == stacks[layer.stack].allocated_bytes
    for path in device.churn.paths:
        if path.stack is not None:
            assert path.allocations >= stacks[path.stack].blocks or not ledger.complete


def test_the_same_file_gives_the_same_analysis(captures: Path) -> None:
    path = captures / "labels.pickle"
    first, second = (analyse(read_snapshot_file(path)) for _ in range(2))
    assert first == second
    assert pickle.loads(pickle.dumps(first)) == first


def test_all_devices_are_explained_or_the_one_that_is_asked_for() -> None:
    tree, _ = make_snapshot(Options(entries=3000, devices=2))
    snapshot = parse_snapshot(tree)
    both = analyse(snapshot)
    assert [device.ledger.device for device in both.devices] == [0, 1]
    highest = max(both.devices, key=lambda one: one.ledger.peak.allocated_bytes)
    assert both.main is highest
    (one,) = analyse(snapshot, device=1).devices
    assert one == both.devices[1]
    with pytest.raises(SnapshotError, match="nothing about device 5"):
        analyse(snapshot, device=5)


def test_a_leak_stays_in_the_ledger_and_what_came_to_rest_is_named_apart() -> None:
    (leaking,) = analyse(parse_snapshot(leaking_training(6).allocator.snapshot())).devices
    assert [growth.leak for growth in leaking.ledger.growth] == [True]
    assert leaking.settled_growth == ()
    training = Training()
    training.build()
    for update in range(20):
        saved = training.forward()
        if update < 4:
            training.at("other")
            training.alloc(4, ("/srv/job/train.py", 77, "cache"))
        training.backward(saved)
        training.step()
    (settled,) = analyse(parse_snapshot(training.allocator.snapshot())).devices
    assert settled.settled_growth == settled.ledger.growth
    (growth,) = settled.settled_growth
    assert (growth.leak, growth.ticks) == (False, 4)


def test_settings_are_told_as_text(captures: Path) -> None:
    tree = Training().run(1).allocator.snapshot()
    tree["allocator_settings"]["\x1b[2Jname\u202e"] = "v" * 10_000
    analysis = analyse(
        parse_snapshot(tree),
        facts=DeviceFacts(total_bytes=1 << 40),
    )
    assert analysis.settings["expandable_segments"] == "False"
    assert len(analysis.settings["[2Jname"]) <= 300
    assert analysis.main.ledger.balance is not None


def test_an_empty_snapshot_is_refused_in_one_sentence() -> None:
    with pytest.raises(SnapshotError, match="nothing to account for"):
        analyse(parse_snapshot({"segments": []}))


def test_a_file_without_history_is_explained_as_far_as_it_goes() -> None:
    tree = Training().run(2).allocator.snapshot()
    (device,) = analyse(parse_snapshot(tree["segments"])).devices
    assert device.churn.allocations == 0
    assert device.timeline.entries == (-1,)
    assert {share.name for share in device.composition.lifetimes} == {"persistent"}
    assert device.fragmentation.free_bytes == (
        device.ledger.reserved_bytes - device.ledger.live_allocated_bytes
    )


def test_growth_over_updates_that_no_label_tells_is_a_note() -> None:
    training = Training(labelled=False).run(6, keep_losses=True)
    analysis = analyse(parse_snapshot(training.allocator.snapshot()))
    assert analysis.main.ledger.growth == ()
    (note,) = analysis.notes
    assert "(/srv/job/train.py:41) of device 0 holds blocks of 6 updates" in note
    assert note.endswith("each: it still grows.")
    kept = analyse(parse_snapshot(Training(labelled=False).run(6).allocator.snapshot()))
    assert kept.notes == ()
    labelled = Training().run(6, keep_losses=True)
    told = analyse(parse_snapshot(labelled.allocator.snapshot()))
    assert told.notes == ()
    assert [growth.leak for growth in told.main.ledger.growth] == [True]
