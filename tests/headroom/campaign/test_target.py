import pytest

from headroom.campaign.target import describe_target, parse_target, resolve_target
from headroom.errors import UserError
from headroom.records.contract import Target
from headroom.records.run import OomInfo, Parameter
from headroom.units import GIB


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (None, "auto", None),
        ("fit", "fit", None),
        ("60%", "percent", 0.6),
        ("12GiB", "bytes", 12 * GIB),
    ],
)
def test_targets_are_read(text, kind, value) -> None:
    assert parse_target(text) == Target(kind=kind, value=value)


@pytest.mark.parametrize("text", ["", "small", "0", "0%", "100%", "150%", "-3GiB", "0GiB"])
def test_what_is_no_target_is_refused(text) -> None:
    with pytest.raises(UserError) as caught:
        parse_target(text)
    assert caught.value.next_command is not None


def test_auto_is_fit_after_an_out_of_memory_error_and_seventy_percent_otherwise(make_run) -> None:
    auto = Target(kind="auto")
    assert resolve_target(auto, make_run(outcome="oom")) is None
    assert resolve_target(auto, make_run()) == 7 * GIB
    caught = OomInfo(
        count=2, requested_bytes=GIB, live_bytes=GIB, reserved_bytes=GIB,
        device_free_bytes=0, device_total_bytes=GIB, update=1,
    )  # fmt: skip
    assert resolve_target(auto, make_run(oom=caught)) is None


def test_shares_are_of_the_controls_peak(make_run) -> None:
    assert resolve_target(Target(kind="percent", value=0.5), make_run()) == 5 * GIB


def test_a_target_that_is_met_already_is_refused(make_run) -> None:
    for target in (Target(kind="bytes", value=11 * GIB), Target(kind="fit")):
        with pytest.raises(UserError, match="already"):
            resolve_target(target, make_run())


def test_less_than_the_parameters_is_impossible(make_run) -> None:
    large = (
        Parameter(name="w", shape=(1,), dtype="float32", requires_grad=True, size_bytes=4 * GIB),
    )
    with pytest.raises(UserError, match="impossible") as caught:
        resolve_target(Target(kind="bytes", value=GIB), make_run(parameters=large))
    assert "8.00GiB" in (caught.value.next_command or "")


def test_targets_are_described_before_the_control_has_run() -> None:
    assert describe_target(Target(kind="percent", value=0.6)) == "60 % of its peak"
    assert describe_target(Target(kind="bytes", value=GIB)) == "1.00 GiB"


def test_parameters_that_modules_share_or_keep_on_the_host_need_no_more_room(make_run) -> None:
    fields = {"name": "weight", "shape": (1,), "dtype": "float32", "requires_grad": True}
    parameters = (
        Parameter(**fields, size_bytes=2 * GIB, root="Net"),
        Parameter(**fields, size_bytes=2 * GIB, root="Encoder"),
        Parameter(**fields, size_bytes=9 * GIB, root="Table", on_device=False),
    )
    control = make_run(parameters=parameters)
    assert resolve_target(parse_target("3GiB"), control) == 3 * GIB
    with pytest.raises(UserError, match=r"parameters alone take 2\.00 GiB"):
        resolve_target(parse_target("1GiB"), control)
