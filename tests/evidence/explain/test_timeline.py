from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.evidence.account.account import Account, account_for
from headroom.evidence.analysis_model import Timeline
from headroom.evidence.explain.course import read_course
from headroom.evidence.explain.layers import REST
from headroom.evidence.explain.timeline import INFERRED, timeline_of, update_peaks
from headroom.evidence.ledger import ledger_of
from headroom.evidence.model import StackId
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from headroom.units import MIB
from tests.evidence.account.test_replay_property import ALLOCATORS, STEPS, play
from tests.evidence.reference_allocator import Allocator
from tests.evidence.test_ledger import NAMES
from tests.evidence.training import Training


def drawn(account: Account, *, points: int = 1200, layers: int = 12) -> Timeline:
    return timeline_of(account, read_course(account), {}, points=points, layers=layers)


def check(account: Account, timeline: Timeline, points: int) -> None:
    """Every point against the replay, and every layer against the lives themselves."""
    replay = account.replay
    count = len(timeline.entries)
    assert 1 <= count <= points
    assert list(timeline.entries) == sorted(set(timeline.entries))
    assert timeline.entries[timeline.peak_index] == replay.peak_entry
    for place, entry in enumerate(timeline.entries):
        assert timeline.allocated_bytes[place] == replay.allocated_after[entry + 1]
        assert timeline.reserved_bytes[place] == replay.reserved_after[entry + 1]
        layered = [layer.allocated_bytes[place] for layer in timeline.layers]
        assert sum(layered) == timeline.allocated_bytes[place]
        assert min(layered) >= 0
    edges = [place * (len(replay.allocated_after)) // count for place in range(count + 1)]
    if count == min(points, len(replay.allocated_after)):
        for place, entry in enumerate(timeline.entries):
            bucket = replay.allocated_after[edges[place] : edges[place + 1]]
            assert replay.allocated_after[entry + 1] == max(bucket)


@pytest.mark.parametrize("points", [1, 7, 1200])
@pytest.mark.parametrize("name", NAMES)
def test_layers_of_every_capture_add_up_at_every_point(
    captures: Path, name: str, points: int
) -> None:
    account = account_for(read_snapshot_file(captures / f"{name}.pickle"), 0)
    check(account, drawn(account, points=points), points)


@settings(max_examples=100, deadline=None)
@given(
    allocator=ALLOCATORS,
    steps=st.lists(STEPS, min_size=5, max_size=70),
    cut=st.integers(0, 100),
    points=st.integers(1, 60),
    layers=st.integers(1, 4),
)
def test_layers_of_a_random_history_add_up_at_every_point(
    allocator: Allocator, steps: list[tuple[str, int]], cut: int, points: int, layers: int
) -> None:
    play(allocator, steps)
    account = account_for(parse_snapshot(allocator.snapshot(cut)), 0)
    check(account, drawn(account, points=points, layers=layers), points)


def test_a_layer_holds_what_its_stack_holds(captures: Path) -> None:
    account = account_for(read_snapshot_file(captures / "full.pickle"), 0)
    ledger = ledger_of(account)
    numbers = {
        frames.id: number
        for frames in ledger.stacks
        for number in range(len(account.replay.stacks))
        if account.replay.stacks.frames(number) == frames.frames
    }
    ids = {number: StackId(name) for name, number in numbers.items()}
    timeline = timeline_of(account, read_course(account), ids)
    layers = {layer.stack: layer for layer in timeline.layers if layer.stack is not None}
    assert {"S001", "S002", "S003"} <= set(layers)
    for use in ledger.stacks:
        if use.id in layers:
            assert layers[use.id].allocated_bytes[timeline.peak_index] == use.allocated_bytes
    lives = account.replay.lives
    for place in range(0, len(timeline.entries), 97):
        rows = account.replay.rows_allocated(timeline.entries[place])
        for name, layer in layers.items():
            mine = [row for row in rows if account.owners.stacks[row] == numbers[name]]
            assert layer.allocated_bytes[place] == sum(lives.allocated_bytes[row] for row in mine)


def test_stacks_that_are_large_elsewhere_have_layers_too(captures: Path) -> None:
    account = account_for(read_snapshot_file(captures / "full.pickle"), 0)
    timeline = drawn(account)
    at_peak = [layer.allocated_bytes[timeline.peak_index] for layer in timeline.layers]
    labels = [layer.label for layer in timeline.layers]
    assert len(labels) == 13
    assert labels[-1] == REST
    assert at_peak[:8] == sorted(at_peak[:8], reverse=True)
    first_update = [
        layer for layer, size in zip(timeline.layers, at_peak, strict=True) if size == 0
    ]
    assert "capture.py:24 step (cross_entropy)" in {layer.label for layer in first_update}
    assert labels[0] == "no stack"
    assert timeline.layers[0].category == "backward_temporary"


def test_labelled_updates_and_phases_are_spans_that_follow_one_another() -> None:
    timeline = drawn(Training().run(3).account())
    assert [span.name for span in timeline.updates] == [
        "update 0",
        "update 1",
        "update 2",
        "update 3",
    ]
    for before, after in zip(timeline.updates, timeline.updates[1:], strict=False):
        assert before.last + 1 == after.first
    names = [span.name for span in timeline.phases]
    assert names[:6] == ["other", "forward", "other", "backward", "optimizer", "other"]
    # The peak is where the gradients of the update are complete.
    (phase,) = [
        span.name for span in timeline.phases if span.first <= timeline.peak_index <= span.last
    ]
    assert phase in ("backward", "optimizer")


def test_a_strangers_phases_are_marked_and_its_updates_are_not_told() -> None:
    timeline = drawn(Training(labelled=False).run(2).account())
    assert timeline.updates == ()
    assert [span.name for span in timeline.phases] == [
        "other" + INFERRED,
        *[f"{name}{INFERRED}" for name in ("forward", "backward", "optimizer")] * 2,
    ]


def test_phases_that_nothing_tells_are_no_spans(captures: Path) -> None:
    account = account_for(read_snapshot_file(captures / "streams.pickle"), 0)
    assert drawn(account).phases == ()


def test_a_file_without_history_has_one_point() -> None:
    snapshot = Training(labelled=False).run(1).allocator.snapshot()
    account = account_for(parse_snapshot(snapshot["segments"]), 0)
    timeline = drawn(account)
    assert timeline.entries == (-1,)
    check(account, timeline, 1200)


def test_peak_and_end_of_each_update() -> None:
    training = Training().run(3, keep_losses=True)
    account = training.account()
    found = update_peaks(account)
    assert [one.update for one in found] == [0, 1, 2, 3]
    ends = [one.live_bytes for one in found]
    # Each update leaves its loss; zeroing the gradients of one is the beginning of the next.
    assert ends[1] - ends[0] == ends[2] - ends[1] > MIB
    assert max(one.peak_bytes for one in found) == account.replay.peak_allocated_bytes
    truth = [entry["allocated"] for entry in training.allocator.truth]
    assert ends[3] == truth[-1]


def test_many_updates_are_thinned_and_the_highest_stays() -> None:
    training = Training()
    training.build()
    for update in range(60):
        saved = training.forward()
        if update == 37:
            training.free(training.alloc(100))
        training.backward(saved)
        training.step()
    account = training.account()
    found = update_peaks(account, limit=9)
    numbers = [one.update for one in found]
    assert len(numbers) <= 9
    assert {0, 37, 60} <= set(numbers)
    assert numbers == sorted(set(numbers))
    assert len(update_peaks(account)) == 61


def test_a_layer_of_several_categories_names_none(captures: Path) -> None:
    account = account_for(read_snapshot_file(captures / "late_start.pickle"), 0)
    categories = {layer.label: layer.category for layer in drawn(account).layers}
    # Parameters, optimizer state and workspaces are older than the recording.
    assert categories["before recording"] is None
    assert categories["no stack"] == "backward_temporary"
