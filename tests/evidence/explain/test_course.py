from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.evidence.account.account import Account, account_for
from headroom.evidence.explain.course import Course, read_course
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.test_ledger import NAMES
from tests.evidence.training import FORWARD, MODULE_CALL, Training


def check(account: Account, course: Course) -> None:
    """Runs and units cover the history, each entry in the one that begins last before it."""
    end = len(account.replay.history)
    for starts, place_of in (
        (course.run_starts, course.run_of),
        (course.unit_starts, course.unit_of),
    ):
        assert len(place_of) == end
        assert starts[0] == 0
        assert starts == sorted(set(starts))
        for entry in range(0, end, 7):
            place = place_of[entry]
            assert starts[place] <= entry
            assert place + 1 == len(starts) or entry < starts[place + 1]
    for before, after in zip(course.run_phases, course.run_phases[1:], strict=False):
        assert before != after


@pytest.mark.parametrize("name", NAMES)
def test_runs_and_units_cover_every_capture(captures: Path, name: str) -> None:
    account = account_for(read_snapshot_file(captures / f"{name}.pickle"), 0)
    check(account, read_course(account))


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("full", ["other", *["forward", "backward", "optimizer"] * 3]),
        ("expandable", ["other", *["forward", "backward", "optimizer"] * 3]),
        ("all_stacks", ["other", *["forward", "backward", "optimizer"] * 3]),
        ("late_start", ["forward", "backward", "optimizer"] * 2),
        ("ring", ["backward", "optimizer"]),
        ("eval_leak", ["other", "forward", "backward", "optimizer", "forward"]),
        ("oom_observer", ["other", "forward"]),
        ("fragment", [None]),
    ],
)
def test_phases_of_captures_follow_from_their_stacks(
    captures: Path, name: str, phases: list[str]
) -> None:
    course = read_course(account_for(read_snapshot_file(captures / f"{name}.pickle"), 0))
    assert course.run_phases == phases
    assert course.phases_inferred
    updates = max(phases.count("optimizer"), 1)
    ends_in_optimizer = phases[-1] == "optimizer"
    assert len(course.unit_starts) == updates + (not ends_in_optimizer and "optimizer" in phases)


@pytest.mark.parametrize("labelled", [True, False])
def test_labels_and_stacks_tell_the_same_course(labelled: bool) -> None:
    course = read_course(Training(labelled=labelled).run(3).account())
    assert course.phases_inferred != labelled
    worked = [phase for phase in course.run_phases if phase != "other"]
    assert worked == ["forward", "backward", "optimizer"] * 3
    assert course.unit_kind == ("update" if labelled else "inferred update")


def test_without_an_optimizer_backwards_stand_in_for_updates() -> None:
    training = Training(labelled=False)
    training.build()
    for _ in range(3):
        training.backward(training.forward())
    course = read_course(training.account())
    assert (course.unit_kind, len(course.unit_starts)) == ("inferred backward", 3)


def test_micro_batches_of_one_update_are_one_unit() -> None:
    training = Training(labelled=False)
    training.build()
    for _ in range(2):
        for _ in range(4):
            training.backward(training.forward())
        training.step()
    training.forward()
    course = read_course(training.account())
    assert (course.unit_kind, len(course.unit_starts)) == ("inferred update", 3)


def test_allocations_without_stacks_alone_are_no_backward() -> None:
    training = Training(labelled=False)
    training.free(training.alloc(4), training.alloc(2))
    assert read_course(training.account()).run_phases == [None]


def test_labels_that_tell_no_phase_leave_it_to_the_stacks() -> None:
    training = Training()
    training.run(2)
    for entry in training.allocator.entries:
        entry["user_metadata"] = entry["user_metadata"].split(",p=")[0]
    course = read_course(training.account())
    assert course.phases_inferred
    assert course.unit_kind == "update"
    assert course.run_phases == ["other", *["forward", "backward", "optimizer"] * 2]


@settings(max_examples=60, deadline=None)
@given(
    labelled=st.booleans(),
    updates=st.integers(0, 4),
    dropped=st.integers(0, 200),
    failing=st.booleans(),
)
def test_runs_and_units_cover_any_part_of_a_training(
    labelled: bool, updates: int, dropped: int, failing: bool
) -> None:
    training = Training(labelled=labelled).run(updates)
    if failing:
        training.allocator.out_of_memory(1 << 30, 0)
    account = account_for(parse_snapshot(training.allocator.snapshot(dropped)), 0)
    check(account, read_course(account))


def test_a_label_comes_before_the_stack() -> None:
    training = Training()
    training.build()
    training.at("evaluation", "Net")
    training.alloc(5, FORWARD, *MODULE_CALL)
    training.at("backward")
    training.alloc(5, FORWARD, *MODULE_CALL)
    course = read_course(training.account())
    assert course.run_phases == ["other", "evaluation", "backward"]
