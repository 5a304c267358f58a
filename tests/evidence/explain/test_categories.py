"""Categories on real captures and on a training whose every allocation is known."""

from collections import Counter
from pathlib import Path

import pytest

from headroom.evidence.account.account import Account, account_for
from headroom.evidence.account.names import NameWalk, StorageName
from headroom.evidence.explain.categories import classify
from headroom.evidence.model import Category
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.units import MIB
from tests.evidence.programs import MAIN
from tests.evidence.training import (
    ADAM,
    ADAM_STEP,
    BATCH,
    FORWARD,
    MODULE_CALL,
    MOVED,
    STEP,
    Training,
)

# The captured model: 53 parameters in float32, one gradient and two moments each; the three workspaces that the capture
# with C++ stacks names: cuBLAS's for the main thread and for autograd's, and cuBLASLt's.
PARAMETER_BYTES = 21_043_200
WORKSPACE_BYTES = 2 * 32 * MIB + MIB


def capture(captures: Path, name: str) -> Account:
    return account_for(read_snapshot_file(captures / f"{name}.pickle"), 0)


def at(account: Account, entry: int) -> Counter[str]:
    """Bytes by category of what is allocated after an entry."""
    rows = account.replay.rows_allocated(entry)
    sizes: Counter[str] = Counter()
    for row, kind in zip(rows, classify(account, rows), strict=True):
        sizes[kind.category] += account.replay.lives.allocated_bytes[row]
    return sizes


def all_of(account: Account) -> Counter[tuple[str, bool]]:
    """Mebibytes by category, and whether it is inferred, over all lives."""
    rows = range(len(account.replay.lives))
    sizes: Counter[tuple[str, bool]] = Counter()
    for row, kind in zip(rows, classify(account, rows), strict=True):
        size = account.replay.lives.requested_bytes[row] / MIB
        sizes[(kind.category, kind.inferred)] += size  # type: ignore[assignment]
    return sizes


def all_names(account: Account) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for (category, _), size in all_of(account).items():
        sizes[category] += size
    return sizes


@pytest.mark.parametrize("name", ["full", "labels", "all_stacks", "expandable", "late_start"])
def test_the_peak_of_every_recording_of_one_program_is_the_same(captures: Path, name: str) -> None:
    account = capture(captures, name)
    found = at(account, account.replay.peak_entry)
    assert found["parameter"] == PARAMETER_BYTES
    assert found["optimizer_state"] == 2 * PARAMETER_BYTES
    assert found["workspace"] == WORKSPACE_BYTES
    assert found["activation"] > found["backward_temporary"] > found["gradient"] > 0
    assert found["input"] == 32768
    assert found["other"] == 0
    assert found == at(capture(captures, "all_stacks"), 1192)


@pytest.mark.parametrize("name", ["full", "labels", "all_stacks"])
def test_at_the_end_of_a_backward_all_gradients_are_there(captures: Path, name: str) -> None:
    account = capture(captures, name)
    entries = range(len(account.replay.history))
    most = max(at(account, entry)["gradient"] for entry in entries[::25])
    assert 0.9 * PARAMETER_BYTES < most <= PARAMETER_BYTES


@pytest.mark.parametrize("name", ["ring", "alloc_ctx"])
def test_a_ring_tells_nearly_what_the_whole_history_tells_of_the_same_moment(
    captures: Path, name: str
) -> None:
    whole, ring = capture(captures, "full"), capture(captures, name)
    entry = ring.replay.peak_entry
    dropped = len(whole.replay.history) - len(ring.replay.history)
    there, here = at(whole, dropped + entry), at(ring, entry)
    assert sum(there.values()) == sum(here.values())
    for category in ("parameter", "optimizer_state", "gradient"):
        assert here[category] == there[category]
    # Lost: the batch, cuBLASLt's workspace, and a temporary of the backward that the ring's first entry is in.
    assert sum((there - here).values()) < 0.02 * sum(there.values())


@pytest.mark.parametrize("name", ["oom_observer", "oom_capped"])
def test_a_failure_in_the_first_forward_splits_into_model_batch_and_activations(
    captures: Path, name: str
) -> None:
    account = capture(captures, name)
    assert at(account, account.replay.peak_entry) == {
        "activation": 504_365_056,
        "workspace": 33 * MIB,
        "parameter": 33_679_360,
        "input": 65536,
    }


def test_outputs_that_an_evaluation_keeps_with_their_graphs_are_activations(
    captures: Path,
) -> None:
    account = capture(captures, "eval_leak")
    found = at(account, account.replay.peak_entry)
    assert found["activation"] > 0.9 * account.replay.peak_allocated_bytes
    assert found["workspace"] == WORKSPACE_BYTES


@pytest.mark.parametrize("name", ["fragment", "streams"])
def test_lines_that_no_module_or_optimizer_surrounds_are_other(captures: Path, name: str) -> None:
    account = capture(captures, name)
    assert set(all_of(account)) == {("other", True)}


def test_what_the_recorder_labels_is_not_inferred() -> None:
    found = all_of(Training().run(3).account())
    assert found == {
        ("parameter", True): 10,
        ("optimizer_state", False): 10,
        ("workspace", False): 24,
        ("gradient", False): 30,
        ("backward_temporary", False): 3 * (4 * 7 + 1.125),
        ("activation", False): 3 * (2 + 3 * 6.5),
        # The batch and the loss are allocated outside the model's own call.
        ("activation", True): 3 * 1.25,
        ("input", True): 9,
    }


def test_a_strangers_file_tells_the_same_by_inference() -> None:
    told, inferred = Training().run(3).account(), Training(labelled=False).run(3).account()
    assert all_names(inferred) == all_names(told)
    assert {flag for _, flag in all_of(inferred)} == {True}


@pytest.mark.parametrize(
    ("named", "category", "inferred"),
    [("variable", "variable", False), ("activation", "workspace", True)],
)
def test_names_come_first_unless_a_graph_alone_holds_the_storage(
    named: Category, category: Category, inferred: bool
) -> None:
    training = Training(labelled=False).run(1)
    account = training.account()
    row = next(
        row for row, size in enumerate(account.replay.lives.requested_bytes) if size == 8 * MIB
    )
    born = account.replay.lives.born[row]
    for time_us, entry in enumerate(training.allocator.entries):
        entry["time_us"] = time_us
    storage = StorageName(
        device=0,
        address=account.replay.lives.address[row],
        size_bytes=8 * MIB,
        category=named,
        name="scratch",
    )
    walked = training.account(walks=(NameWalk(time_us=born, storages=(storage,)),))
    (kind,) = classify(walked, [row])
    assert (kind.category, kind.inferred) == (category, inferred)


def test_a_stack_whose_named_blocks_are_buffers_has_more_of_them() -> None:
    training = Training(labelled=False).run(1)
    for time_us, entry in enumerate(training.allocator.entries):
        entry["time_us"] = time_us
    lives = training.account().replay.lives
    rows = [row for row in lives.final if lives.requested_bytes[row] in (4 * MIB, 6 * MIB)]
    moved = min(rows, key=lambda row: lives.born[row])
    storage = StorageName(
        device=0, address=lives.address[moved], size_bytes=4 * MIB, category="buffer", name="mean"
    )
    account = training.account(walks=(NameWalk(time_us=lives.born[moved], storages=(storage,)),))
    alike = [row for row in rows if account.owners.stacks[row] == account.owners.stacks[moved]]
    kinds = {
        row: (kind.category, kind.inferred)
        for row, kind in zip(alike, classify(account, alike), strict=True)
    }
    assert kinds == {row: ("buffer", row != moved) for row in alike}
    assert len(kinds) == 2


def test_a_model_older_than_the_recording_is_told_by_the_sizes_of_its_gradients() -> None:
    training = Training(labelled=False).run(3)
    births = [
        place
        for place, entry in enumerate(training.allocator.entries)
        if entry["frames"] and entry["frames"][0]["name"] == "_multi_tensor_adam"
    ]
    for segment in training.allocator.regions:
        for piece in segment.pieces:
            piece.frames = []
    account = training.account(dropped=births[0] + 1)
    found = at(account, -1)
    assert found["parameter"] == 10 * MIB
    assert found["optimizer_state"] == 10 * MIB


def test_one_size_that_does_not_fit_keeps_old_blocks_from_being_told() -> None:
    training = Training(labelled=False)
    training.alloc(4.5)
    training.run(3)
    lives = training.account().replay.lives
    state = next(row for row, size in enumerate(lives.requested_bytes) if size == 6 * MIB)
    assert state is not None
    for segment in training.allocator.regions:
        for piece in segment.pieces:
            piece.frames = []
            if piece.requested == 6 * MIB:
                piece.requested = 6 * MIB - 512
    births = [
        place
        for place, entry in enumerate(training.allocator.entries)
        if entry["frames"] and entry["frames"][0]["name"] == "_multi_tensor_adam"
    ]
    account = training.account(dropped=births[0] + 1)
    assert set(at(account, -1)) <= {"other", "input", "activation"}


def test_more_copies_than_an_optimizer_keeps_are_not_told() -> None:
    training = Training(labelled=False)
    for _ in range(3):
        training.build()
    training.run(3)
    scratches = [
        place
        for place, entry in enumerate(training.allocator.entries)
        if entry["frames"] and entry["frames"][0]["name"] == "_multi_tensor_adam"
    ]
    for region in training.allocator.regions:
        for piece in region.pieces:
            piece.frames = []
    found = at(training.account(dropped=scratches[0] + 1), -1)
    # Four models and the state of one: five times each size.
    assert found["parameter"] == found["optimizer_state"] == 0
    assert found["other"] >= 50 * MIB


def test_a_backward_that_the_history_cuts_off_is_told_by_sizes() -> None:
    training = Training(labelled=False)
    training.build()
    saved = training.forward()
    training.backward(saved[1:])
    training.alloc(7)
    found = at(training.account(), len(training.allocator.entries) - 1)
    assert found["gradient"] == 10 * MIB
    assert found["backward_temporary"] == 7 * MIB


def test_a_forward_without_gradients_is_an_evaluation() -> None:
    training = Training(labelled=False)
    training.build()
    no_grad = (
        "/opt/venv/lib/python3.12/site-packages/torch/utils/_contextlib.py",
        120,
        "decorate_context",
    )
    training.alloc(9, FORWARD, *MODULE_CALL[:3], no_grad, MAIN)
    assert all_of(training.account())[("evaluation", True)] == 9


def test_what_a_constructor_allocates_and_frees_is_no_parameter() -> None:
    training = Training(labelled=False)
    training.free(training.alloc(9, MOVED, MAIN))
    training.run(1)
    assert all_names(training.account())["other"] == 9


def test_arithmetic_between_a_forward_and_its_backward_is_activation() -> None:
    training = Training()
    training.build()
    for _ in range(2):
        saved = training.forward()
        training.at("other")
        error = training.alloc(9, STEP, MAIN)
        training.backward(saved)
        training.free(error)
        training.step()
        training.free(training.alloc(11, STEP, MAIN))
    found = all_of(training.account())
    assert found[("activation", True)] == 2 * (1.25 + 9)
    assert found[("other", True)] == 2 * 11


def test_a_model_that_goes_down_with_the_program_is_parameters_all_the_same() -> None:
    training = Training().run(4)
    training.free(
        *[
            piece
            for region in training.allocator.regions
            for piece in region.pieces
            if piece.state == "active_allocated"
        ]
    )
    account = training.account()
    rows = range(len(account.replay.lives))
    kinds = classify(account, rows)
    lives = {
        kind.category: kind.lifetime
        for kind in kinds
        if kind.category in ("parameter", "optimizer_state")
    }
    assert lives == {"parameter": "persistent", "optimizer_state": "persistent"}
    assert all_names(account)["parameter"] == 10


def test_a_batch_that_every_update_keeps_is_input_and_a_data_set_is_not() -> None:
    training = Training()
    training.at("other")
    training.alloc(50, BATCH, MAIN)
    training.build()
    for _ in range(6):
        saved = training.forward()
        training.batch = None
        training.backward(saved)
        training.step()
    found = all_names(training.account())
    # The first batch cannot be told from the data set.
    assert (found["other"], found["input"]) == (53, 5 * 3)


@pytest.mark.parametrize("labelled", [True, False])
def test_gradients_of_an_optimizer_that_allocates_nothing(labelled: bool) -> None:
    training = Training(labelled=labelled)
    training.build()
    for _ in range(3):
        training.backward(training.forward())
        training.update += 1
        training.at("other")
        training.free(*training.gradients)
        training.gradients = []
    found = all_names(training.account())
    assert found["gradient"] == 3 * 10
    assert found["backward_temporary"] == 3 * (4 * 7 + 1.125)


@pytest.mark.parametrize("labelled", [True, False])
def test_what_the_main_thread_lets_go_after_the_step_is_no_state_and_no_gradient(
    labelled: bool,
) -> None:
    training = Training(labelled=labelled)
    training.build()
    for _ in range(3):
        saved = training.forward()
        training.at("backward")
        late = training.alloc(6)
        training.backward(saved)
        training.at("optimizer")
        training.free(late)
        scratch = training.alloc(9, ADAM, ADAM_STEP, STEP, MAIN)
        training.update += 1
        training.at("other")
        training.free(scratch, *training.gradients)
        training.gradients = []
    found = all_names(training.account())
    assert (found["workspace"], found["gradient"]) == (3 * 9, 3 * 10)
    assert found["backward_temporary"] == 3 * (6 + 4 * 7 + 1.125)


def test_a_step_that_fails_leaves_nothing_that_is_known_to_be_state() -> None:
    training = Training(labelled=False)
    training.build()
    training.backward(training.forward())
    training.alloc(9, ADAM, ADAM_STEP, STEP, MAIN)
    assert all_names(training.account())["optimizer_state"] == 9
    training.allocator.out_of_memory(1 << 30, 0)
    assert all_names(training.account())["optimizer_state"] == 0


def test_a_labelled_evaluation_is_no_activation() -> None:
    training = Training()
    training.build()
    training.at("evaluation", "Net")
    training.alloc(9, FORWARD, *MODULE_CALL)
    training.alloc(4, MOVED, MAIN)
    found = all_of(training.account())
    assert found[("evaluation", False)] == 9
    # A module that is moved within it stays a parameter.
    assert found[("parameter", True)] == 14


@pytest.mark.parametrize("marked", [True, False])
def test_cublas_asks_for_its_workspace_in_the_first_backward_too(marked: bool) -> None:
    training = Training().run(1)
    saved = training.forward()
    training.at("backward", node="AddmmBackward0")
    frames = [("??", 0, "[backward] AddmmBackward0"), FORWARD, MAIN] if marked else []
    training.alloc(32, *frames)
    training.backward(saved)
    training.step()
    account = training.account()
    found = all_of(account)
    assert (found[("workspace", True)], found[("gradient", True)]) == (32, 0)
    rows = range(len(account.replay.lives))
    kinds = {kind for kind in classify(account, rows) if kind.category == "workspace"}
    lifetimes = {kind.lifetime for kind in kinds if kind.inferred}
    # It is kept for good, however young it is.
    assert lifetimes == {"persistent"}


def test_a_model_that_goes_down_after_one_update_is_persistent() -> None:
    training = Training().run(1)
    live = [
        piece
        for region in training.allocator.regions
        for piece in region.pieces
        if piece.state == "active_allocated"
    ]
    training.free(*live)
    account = training.account()
    rows = range(len(account.replay.lives))
    lifetimes = {
        kind.lifetime for kind in classify(account, rows) if kind.category == "optimizer_state"
    }
    assert lifetimes == {"persistent"}
