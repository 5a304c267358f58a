import pytest

from headroom.records.contract import Policy
from headroom.records.run import OomInfo
from headroom.records.trial import Check
from headroom.units import GIB
from headroom.verify.checks import compare_work
from headroom.verify.verdict import Originals, judge, target_met

OOM = OomInfo(
    count=1, requested_bytes=GIB, live_bytes=GIB, reserved_bytes=GIB,
    device_free_bytes=0, device_total_bytes=GIB, update=1,
)  # fmt: skip


def originals(control, current=None, reference=None) -> Originals:
    return Originals(control=control, current=current or control, reference=reference)


def test_a_lower_peak_with_equal_losses_is_measured_and_kept(make_run, make_contract) -> None:
    verdict = judge(
        make_contract(), originals(make_run()), make_run(peak_allocated_bytes=5 * GIB), 7 * GIB
    )
    assert (verdict.word, verdict.target_met, verdict.equivalence, verdict.kept) == (
        "measured",
        True,
        "bitwise",
        True,
    )


def test_on_a_virtual_gpu_nothing_is_more_than_predicted(make_run, make_contract) -> None:
    unknown = make_run(losses=(None,) * 3, device="virtual")
    trial = make_run(losses=(None,) * 3, device="virtual", peak_allocated_bytes=5 * GIB)
    verdict = judge(make_contract(device="virtual"), originals(unknown), trial, 7 * GIB)
    assert (verdict.word, verdict.equivalence, verdict.kept) == ("predicted", "unproven", True)


@pytest.mark.parametrize("outcome", ["oom", "failed", "killed"])
def test_a_trial_that_does_not_complete_is_rejected(make_run, make_contract, outcome) -> None:
    verdict = judge(
        make_contract(),
        originals(make_run(outcome="oom")),
        make_run(outcome=outcome, reason="R"),
        None,
    )
    assert (verdict.word, verdict.kept) == ("rejected", False)
    assert "R" in verdict.why


def test_changed_work_is_rejected_by_name_however_low_the_peak(
    make_run, make_contract, change_site
) -> None:
    fewer = change_site(make_run(peak_allocated_bytes=GIB), "evaluate", rows=1)
    verdict = judge(make_contract(), originals(make_run()), fewer, 7 * GIB)
    assert (verdict.word, verdict.equivalence, verdict.kept) == ("rejected", "changed", False)
    assert verdict.why.startswith("it changes the work: evaluation: 1 rows instead of 64 rows")


def test_a_peak_that_did_not_fall_is_rejected(make_run, make_contract) -> None:
    verdict = judge(make_contract(), originals(make_run()), make_run(), 7 * GIB)
    assert verdict.word == "rejected"
    assert "did not fall" in verdict.why


def test_a_step_on_the_way_is_kept_without_the_target(make_run, make_contract) -> None:
    verdict = judge(
        make_contract(), originals(make_run()), make_run(peak_allocated_bytes=8 * GIB), 7 * GIB
    )
    assert (verdict.target_met, verdict.kept) == (False, True)


def test_progress_is_counted_from_the_best_state_not_from_the_control(
    make_run, make_contract
) -> None:
    best = make_run(peak_allocated_bytes=6 * GIB)
    verdict = judge(
        make_contract(),
        originals(make_run(), best),
        make_run(peak_allocated_bytes=8 * GIB),
        5 * GIB,
    )
    assert verdict.word == "rejected"


def test_completing_is_progress_where_the_original_ran_out_of_memory(
    make_run, make_contract
) -> None:
    control = make_run(
        outcome="oom",
        updates=1,
        losses=(3.0,),
        samples_per_update=(8,),
        peak_allocated_bytes=9 * GIB,
    )
    verdict = judge(make_contract(), originals(control), make_run(), None)
    assert (verdict.target_met, verdict.kept, verdict.equivalence) == (True, True, "unproven")
    whole = judge(make_contract(), originals(control, reference=make_run()), make_run(), None)
    assert whole.equivalence == "bitwise"


def test_nothing_is_kept_where_nothing_of_the_training_could_be_compared(
    make_run, make_contract
) -> None:
    control = make_run(
        outcome="oom", updates=0, losses=(), samples_per_update=(), gradients_per_update=()
    )
    verdict = judge(make_contract(), originals(control), make_run(), None)
    assert (verdict.word, verdict.kept, verdict.target_met) == (
        "insufficient_evidence",
        False,
        True,
    )
    assert "before its first update" in verdict.why
    screened = compare_work(make_run(), make_run())
    seen = judge(make_contract(), originals(control), make_run(), None, screened)
    assert (seen.word, seen.kept, seen.equivalence) == ("measured", True, "unproven")
    assert seen.checks[-1].value == "parameters, updates, samples, gradients, evaluation equal"
    # A program that only evaluates has no training to compare.
    no_training = {"updates": 0, "losses": (), "samples_per_update": (), "gradients_per_update": ()}
    assert judge(make_contract(), originals(control), make_run(**no_training), None).kept


def test_an_out_of_memory_error_that_was_caught_is_no_fit(make_run) -> None:
    assert not target_met(make_run(oom=OOM), None)
    assert target_met(make_run(), None)
    assert not target_met(make_run(), 9 * GIB)


def test_the_contract_can_ask_for_more(make_run, make_contract) -> None:
    contract = make_contract(device="virtual", policy=Policy(require="measured"))
    verdict = judge(
        contract, originals(make_run()), make_run(peak_allocated_bytes=5 * GIB), 7 * GIB
    )
    assert (verdict.word, verdict.kept) == ("insufficient_evidence", False)


def test_what_was_not_compared_is_unproven_though_the_losses_are_equal(
    make_run, make_contract
) -> None:
    without = {"parameters": (), "samples_per_update": (None,) * 3, "call_sites": ()}
    trial = make_run(**without, peak_allocated_bytes=5 * GIB)
    verdict = judge(make_contract(), originals(make_run(**without)), trial, 7 * GIB)
    assert (verdict.equivalence, verdict.kept) == ("unproven", True)
    assert "not compared: parameters, samples, evaluation" in verdict.why


def test_a_trial_without_a_peak_meets_no_target(make_run, make_contract) -> None:
    trial = make_run(peak_allocated_bytes=None)
    verdict = judge(make_contract(), originals(make_run()), trial, 7 * GIB)
    assert (verdict.word, verdict.target_met, verdict.kept) == ("rejected", False, False)
    assert "never used the device" in verdict.why


def test_what_the_screen_could_not_compare_leaves_equal_losses_unproven(
    make_run, make_contract
) -> None:
    screened = compare_work(make_run(), make_run())
    fused = Check(name="operations", passed=None, value="fused kernels")
    trial = make_run(peak_allocated_bytes=5 * GIB)
    whole = judge(make_contract(), originals(make_run()), trial, 7 * GIB, screened)
    seen = judge(make_contract(), originals(make_run()), trial, 7 * GIB, (*screened, fused))
    assert (whole.equivalence, seen.equivalence, seen.kept) == ("bitwise", "unproven", True)
    assert seen.checks[-1].value.endswith("equal; operations not compared: fused kernels")
