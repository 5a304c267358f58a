import pytest

from headroom.verify.checks import (
    check_evaluation,
    check_gradients,
    check_losses,
    check_parameters,
    check_samples,
    check_updates,
    compare,
)


def test_an_identical_run_passes_every_check(make_run) -> None:
    assert all(check.passed for check in compare(make_run(), make_run()))


@pytest.mark.parametrize(
    "change",
    [{"shape": (4, 2)}, {"dtype": "bfloat16"}, {"requires_grad": False}, {"name": "v"}],
)
def test_a_changed_parameter_fails(make_run, change) -> None:
    original = make_run()
    changed = (original.parameters[0].model_copy(update=change),)
    check = check_parameters(original, make_run(parameters=changed))
    assert check.passed is False
    assert check_parameters(original, make_run(parameters=())).passed is False


def test_parameters_that_only_the_candidate_came_to_are_no_change(make_run) -> None:
    more = make_run().parameters * 2
    assert check_parameters(make_run(outcome="oom"), make_run(parameters=more)).passed is True
    assert check_parameters(make_run(), make_run(parameters=more)).passed is False
    assert check_parameters(make_run(parameters=()), make_run()).passed is None


def test_updates_must_be_equal_or_reach_as_far_as_the_original(make_run) -> None:
    assert check_updates(make_run(), make_run(updates=2)).passed is False
    assert check_updates(make_run(), make_run(updates=4)).passed is False
    assert check_updates(make_run(outcome="oom", updates=2), make_run(updates=9)).passed is True
    assert check_updates(make_run(outcome="oom", updates=4), make_run()).passed is False


def test_samples_name_the_update_that_differs(make_run) -> None:
    check = check_samples(make_run(), make_run(samples_per_update=(8, 4, 8)))
    assert (check.passed, check.where) == (False, "update 2")
    assert check_samples(make_run(), make_run(samples_per_update=(8, None, 8))).passed is True
    assert check_samples(make_run(), make_run(samples_per_update=())).passed is None


def test_evaluation_that_was_skipped_or_shortened_fails(make_run, change_site) -> None:
    original = make_run()
    fewer = change_site(original, "evaluate", rows=32)
    assert check_evaluation(original, fewer).where == "Net called in evaluate, in eval mode"
    assert check_evaluation(original, fewer).passed is False
    skipped = original.model_copy(update={"call_sites": original.call_sites[:1]})
    assert check_evaluation(original, skipped).passed is False
    more = change_site(original, "evaluate", rows=128)
    assert check_evaluation(original, more).passed is False
    assert check_evaluation(original.model_copy(update={"outcome": "oom"}), more).passed is True


def test_a_gradient_that_no_longer_comes_back_to_a_call_fails(make_run, change_site) -> None:
    cut = change_site(make_run(), "train", reached_calls=1, reached_rows=8)
    check = check_gradients(make_run(), cut)
    assert check.passed is False
    assert (check.value, check.expected) == ("a gradient came back to 8 rows", "24 rows")
    assert check.where == "Net called in train, in training mode"
    early = make_run(outcome="oom")
    assert check_gradients(early, cut).passed is False
    assert check_gradients(change_site(early, "train", reached_rows=8), make_run()).passed is True


def test_parameters_without_a_gradient_fail_at_their_update(make_run) -> None:
    check = check_gradients(make_run(), make_run(gradients_per_update=(1, 0, 1)))
    assert (check.passed, check.where) == (False, "update 2")
    assert check_gradients(make_run(gradients_per_update=()), make_run()).passed is None


def test_losses_bitwise(make_run) -> None:
    assert check_losses(make_run(), make_run()).passed is True


def test_losses_that_are_not_finite_prove_nothing(make_run) -> None:
    diverged = make_run(losses=(3.0, float("nan"), float("inf")))
    check = check_losses(diverged, diverged)
    assert check.passed is None
    assert check.value == "3 of 3 compared, all bitwise equal, but 2 are not finite"


def test_losses_that_differ_a_little_prove_nothing(make_run) -> None:
    check = check_losses(make_run(), make_run(losses=(3.0, 2.0000001, 1.0)))
    assert check.passed is None
    assert check.where == "update 2: 2.0000001 instead of 2.0"


def test_losses_that_differ_a_lot_are_another_training(make_run) -> None:
    assert check_losses(make_run(), make_run(losses=(3.0, 2.2, 1.0))).passed is False
    assert check_losses(make_run(), make_run(losses=(3.0, float("nan"), 1.0))).passed is False


def test_losses_of_a_prefix_are_not_called_bitwise(make_run) -> None:
    check = check_losses(make_run(outcome="oom", losses=(3.0, 2.0)), make_run())
    assert check.passed is None
    assert check.value == "2 of 3 compared, all bitwise equal"


def test_losses_that_were_not_computed_are_not_compared(make_run) -> None:
    check = check_losses(make_run(losses=(None, None, None)), make_run(losses=(None, None, None)))
    assert check.passed is None
    assert check_losses(make_run(losses=(3.0, None, 1.0)), make_run()).passed is None


def test_evaluation_in_another_mode_or_beside_the_original_fails(make_run, change_site) -> None:
    original = make_run()
    switched = change_site(original, "evaluate", eval_calls=0)
    assert check_evaluation(original, switched).passed is False
    extra = original.call_sites[0].model_copy(update={"function": "probe", "rows": 64})
    more = original.model_copy(update={"call_sites": (*original.call_sites, extra)})
    check = check_evaluation(original, more)
    assert (check.passed, check.where) == (False, "Net called in probe, in training mode")


def test_zeros_of_different_sign_are_not_bitwise_equal(make_run) -> None:
    check = check_losses(make_run(losses=(0.0, 1.0, 1.0)), make_run(losses=(-0.0, 1.0, 1.0)))
    assert check.passed is None
