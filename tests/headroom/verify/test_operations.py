import pytest

from headroom.records.run import VirtualCoverage
from headroom.sandbox.virtual import coverage
from headroom.verify.checks import compare_work
from headroom.verify.operations import TO_HOST, check_operations

FORWARD = {"addmm": 6, "relu": 3, "randn": 2, "stack": 1, "view": 40, "to host": 2}
BACKWARD = {"mm": 12, "threshold_backward": 3, "as_strided": 30}


@pytest.fixture
def run(make_run):
    """`run({"relu": 2})` is a run whose forward pass differs in that."""

    def make(forward=None, backward=None, **fields):
        coverage = VirtualCoverage(
            card="h200",
            operations=99,
            forward_operations={**FORWARD, **(forward or {})},
            backward_operations={**BACKWARD, **(backward or {})},
        )
        return make_run(virtual=coverage, **fields)

    return make


def test_the_same_operations_pass(run) -> None:
    check = check_operations(run(), run())
    assert check is not None
    assert (check.passed, check.value) == (True, "all 99 the same, forward and backward")


def test_a_backward_pass_that_became_shorter_fails_and_names_more_than_a_view(run) -> None:
    check = check_operations(run(), run(backward={"mm": 4, "as_strided": 2}))
    assert check is not None and check.passed is False
    assert (check.value, check.expected, check.where) == (
        "4 times mm",
        "12 times",
        "in backward passes",
    )
    assert check in compare_work(run(), run(backward={"mm": 4, "as_strided": 2}))


@pytest.mark.parametrize(
    ("forward", "passed"),
    [
        ({"relu": 2}, False),  # statistics that are only kept with gradients on
        ({"sub": 1}, False),
        ({"to host": 9, "stack": 0}, None),  # stacked on the host
        ({"to host": 9, "randn": 1}, False),  # drawn from the host's generator
        ({"to host": 9, "addmm": 3}, False),  # a model that went to the host
        ({"to host": 9, "stack": 0, "add": 1}, False),
        ({"_transformer_encoder_layer_fwd": 2, "addmm": 0}, None),
        ({"_nested_from_padded": 1, "_nested_tensor_from_mask": 1, "relu": 0}, None),
        ({"_local_scalar_dense": 7}, True),  # how often it prints
    ],
)
def test_forward_passes(run, forward, passed) -> None:
    check = check_operations(run(), run(forward=forward))
    assert check is not None and check.passed is passed


def test_without_two_whole_runs_on_a_virtual_gpu_there_is_nothing_to_compare(run, make_run) -> None:
    assert check_operations(make_run(), run()) is None
    assert check_operations(run(outcome="oom"), run()) is None


def test_a_copy_to_the_host_bears_the_name_that_the_virtual_gpu_gives_it() -> None:
    assert TO_HOST == coverage.TO_HOST
