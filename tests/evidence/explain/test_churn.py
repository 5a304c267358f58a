from pathlib import Path

import pytest

from headroom.evidence.account.account import account_for
from headroom.evidence.explain.churn import churn_of
from headroom.evidence.model import StackId
from headroom.evidence.reading.history import Action
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.units import MIB
from tests.evidence.test_ledger import NAMES
from tests.evidence.training import ADAM, Training


@pytest.mark.parametrize("name", NAMES)
def test_paths_are_parts_of_all_allocations(captures: Path, name: str) -> None:
    account = account_for(read_snapshot_file(captures / f"{name}.pickle"), 0)
    history = account.replay.history
    births = [entry for entry, code in enumerate(history.actions) if code == Action.ALLOC]
    churn = churn_of(account, {})
    assert churn.allocations == len(births)
    assert churn.requested_bytes == sum(history.sizes_bytes[entry] for entry in births)
    assert len(churn.paths) <= 20
    sizes = [path.requested_bytes for path in churn.paths]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) <= churn.requested_bytes
    assert [path.id for path in churn.paths] == [f"H{n:02d}" for n in range(1, len(sizes) + 1)]
    lasted = history.times_us[-1] - history.times_us[0]
    assert all(0 <= path.longest_us <= lasted for path in churn.paths)
    # No label tells updates or calls.
    assert {path.per_tick for path in churn.paths} <= {None}


def test_the_hottest_path_of_a_capture(captures: Path) -> None:
    account = account_for(read_snapshot_file(captures / "full.pickle"), 0)
    hottest = churn_of(account, {}).paths[0]
    assert hottest.site is not None
    assert (hottest.site.line, hottest.allocations) == (13, 40)
    assert all("_call_impl" not in frame.name for frame in hottest.frames)


def test_allocations_and_bytes_per_update() -> None:
    account = Training().run(3).account()
    stacks = account.replay.stacks
    scratch = next(
        number
        for number in range(len(stacks))
        if stacks.frames(number)[:1] and stacks.frames(number)[0].line == ADAM[1]
    )
    churn = churn_of(account, {scratch: StackId("S007")})
    (path,) = [path for path in churn.paths if path.stack == "S007"]
    assert (path.kind, path.allocations, path.requested_bytes) == ("update", 3, 24 * MIB)
    # What the history shows of the fourth update is frees alone.
    assert (path.per_tick, path.bytes_per_tick) == (1, 8 * MIB)


def test_without_updates_calls_are_counted() -> None:
    training = Training()
    training.build()
    for _ in range(4):
        training.free(*training.forward())
    path = churn_of(training.account(), {}).paths[0]
    # Before the first call the model was built.
    assert (path.kind, path.allocations, path.per_tick) == ("call", 24, 24 / 5)


def test_the_longest_life_of_a_path() -> None:
    training = Training(labelled=False)
    training.build()
    pieces = [training.alloc(9, ADAM) for _ in range(2)]
    training.free(pieces[0])
    training.alloc(1)
    for place, entry in enumerate(training.allocator.entries):
        entry["time_us"] = 10 * place
    account = training.account()
    born = account.replay.history.sizes_bytes.index(9 * MIB)
    (path,) = [path for path in churn_of(account, {}).paths if path.requested_bytes == 18 * MIB]
    # The second is never freed: it lasts to the end of the history.
    second = account.replay.history.sizes_bytes.index(9 * MIB, born + 1)
    assert path.longest_us == 10 * (len(training.allocator.entries) - 1 - second)


def test_flushes_of_the_cache_are_bursts_before_a_segment_or_a_failure() -> None:
    training = Training(labelled=False)
    allocator = training.allocator
    for _ in range(2):
        training.free(training.alloc(30), training.alloc(40))
        allocator.empty_cache()
        training.free(training.alloc(90))
    allocator.empty_cache()
    training.alloc(1)
    allocator.empty_cache()
    held = training.alloc(30)
    training.free(held)
    allocator.empty_cache()
    allocator.out_of_memory(500 * MIB, 0)
    churn = churn_of(training.account(), {})
    # Twice before the 90 MiB, once before the 1 MiB, and before the failure.
    assert churn.cache_flushes == 4
    truth = [entry["action"] for entry in allocator.entries]
    assert churn.segment_frees == truth.count("segment_free")
    assert churn.segment_allocations == truth.count("segment_alloc")


def test_a_burst_that_nothing_follows_is_no_flush() -> None:
    training = Training(labelled=False)
    training.free(training.alloc(30))
    training.allocator.empty_cache()
    assert churn_of(training.account(), {}).cache_flushes == 0
