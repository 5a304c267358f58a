from collections import Counter
from pathlib import Path

import pytest

from headroom.evidence.account.account import Account, account_for
from headroom.evidence.explain.categories import classify
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from headroom.units import MIB
from tests.evidence.programs import MAIN, Program
from tests.evidence.training import FORWARD, LOSS, MODULE_CALL, STEP, Training


def lifetimes(account: Account) -> Counter[tuple[str, str]]:
    """Requested mebibytes by category and lifetime."""
    rows = range(len(account.replay.lives))
    sizes: Counter[tuple[str, str]] = Counter()
    for row, kind in zip(rows, classify(account, rows), strict=True):
        size = account.replay.lives.requested_bytes[row] / MIB
        sizes[(kind.category, kind.lifetime)] += size  # type: ignore[assignment]
    return sizes


@pytest.mark.parametrize("labelled", [True, False])
def test_each_part_of_a_training_lives_as_long_as_it_should(labelled: bool) -> None:
    found = lifetimes(Training(labelled=labelled).run(4).account())
    assert found == {
        ("parameter", "persistent"): 10,
        ("optimizer_state", "persistent"): 10,
        ("workspace", "temporary"): 4 * 8,
        ("gradient", "step"): 4 * 10,
        ("backward_temporary", "temporary"): 4 * (4 * 7 + 1.125),
        ("activation", "temporary"): 4 * 3 * 1.5,
        ("activation", "forward to backward"): 4 * (2 + 3 * 5),
        # The batch and the loss are freed in the next update, the last ones not at all.
        ("activation", "step"): 4 * 1.25,
        ("input", "step"): 4 * 3,
    }


def test_what_outlives_two_updates_and_what_is_never_freed() -> None:
    training = Training()
    training.build()
    held = None
    for update in range(6):
        saved = training.forward()
        if update == 1:
            training.at("other")
            held = training.alloc(11, STEP, MAIN)
            training.alloc(13, STEP, MAIN)
        training.backward(saved)
        training.step()
        if update == 4 and held is not None:
            training.free(held)
    found = {
        size: span for (_, span), size in lifetimes(training.account()).items() if size in (11, 13)
    }
    assert found == {11: "several updates", 13: "persistent"}


def test_losses_that_a_list_keeps_become_persistent() -> None:
    found = lifetimes(Training().run(6, keep_losses=True).account())
    # Those of the two newest updates may be the present and the last one.
    assert found[("activation", "persistent")] == 4 * 1.25
    assert found[("activation", "step")] == 2 * 1.25


@pytest.mark.parametrize("labelled", [True, False])
def test_what_a_failure_in_the_forward_leaves_waits_for_its_backward(labelled: bool) -> None:
    training = Training(labelled=labelled)
    training.build()
    training.at("forward", "Net")
    saved = [training.alloc(5, FORWARD, *MODULE_CALL) for _ in range(3)]
    training.allocator.out_of_memory(40 * MIB, 8 * MIB)
    unwound = lifetimes(training.account())
    training.free(*saved)
    assert lifetimes(training.account()) == unwound
    assert unwound == {("parameter", "persistent"): 10, ("activation", "forward to backward"): 15}


def test_without_a_backward_and_a_failure_nothing_waits_for_one() -> None:
    training = Training(labelled=False)
    training.build()
    training.alloc(5, FORWARD, *MODULE_CALL)
    assert lifetimes(training.account())[("activation", "step")] == 5


def test_an_evaluation_that_keeps_its_outputs_without_labels() -> None:
    training = Training(labelled=False).run(1)
    for _ in range(8):
        training.forward(keep_loss=True)
    found = lifetimes(training.account())
    # What is older than two passes of the training is kept for good; the batches are freed one by one.
    kept = found[("activation", "persistent")]
    assert 4 * (17 + 1.25) <= kept < 8 * (17 + 1.25)
    assert found[("activation", "forward to backward")] > 17


def test_gradients_that_calls_of_one_update_share_are_of_the_step() -> None:
    training = Training()
    training.build()
    for _ in range(5):
        saved = training.forward()
        training.at("backward", gradient="weight0")
        if training.call == 1:
            training.alloc(17)
        training.free(*saved)
    found = lifetimes(training.account())
    assert found[("gradient", "step")] == 17


def test_a_program_that_tells_nothing_is_judged_by_entries() -> None:
    program = Program()
    program.allocator.label = ""
    kept = program.alloc(4, MAIN)
    for _ in range(100):
        program.free(program.alloc(1, MAIN))
    long = program.alloc(2, MAIN)
    for _ in range(100):
        program.free(program.alloc(1, MAIN))
    program.free(long)
    account = account_for(parse_snapshot(program.allocator.snapshot()), 0)
    found = lifetimes(account)
    assert kept.size == 4 * MIB
    assert found == {
        ("other", "persistent"): 4,
        ("other", "temporary"): 200,
        ("other", "step"): 2,
    }


def test_blocks_older_than_the_history(captures: Path) -> None:
    account = account_for(read_snapshot_file(captures / "ring.pickle"), 0)
    lives, rows = account.replay.lives, range(len(account.replay.lives))
    kinds = classify(account, rows)
    end = len(account.replay.history)
    older = [row for row in rows if lives.born[row] < 0]
    assert {kinds[row].lifetime for row in older if lives.freed[row] == end} == {"persistent"}
    freed = {kinds[row].lifetime for row in older if lives.freed[row] < end}
    assert freed == {"forward to backward", "step"}


def test_a_loss_is_no_temporary_of_its_forward() -> None:
    training = Training(labelled=False)
    training.build()
    saved = training.forward()
    training.backward(saved)
    training.step()
    loss = next(
        row
        for row, size in enumerate(training.account().replay.lives.requested_bytes)
        if size == int(1.25 * MIB)
    )
    account = training.account()
    assert account.replay.stacks.frames(account.owners.stacks[loss])[0].line == LOSS[1]
    assert classify(account, [loss])[0].lifetime == "step"
