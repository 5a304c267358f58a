"""Claims about a peak: what a reader could have read is accepted, all else corrected or refused."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from headroom.evidence.analysis import analyse
from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.claims.check import check_claim, check_claims, claims_of
from headroom.evidence.pack.build import build_pack
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.records.claims import Checked, Claim, Subject
from headroom.records.diagnosis import Cause
from headroom.units import MIB
from tests.evidence.packs import leak_analysis

PATH = "/srv/job/train.py"


@pytest.fixture(scope="module")
def device() -> DeviceAnalysis:
    """S001 32 MiB of parameters; S002 19 MiB that G01 says grow by 3 MiB an update; S004 and S006 at model.py:15."""
    return leak_analysis().main


def stacks(*names: str) -> Subject:
    return Subject(stack_ids=names)


def corrected(checked: Checked, *wrong: str) -> Claim:
    assert checked.status == "corrected", checked.reason
    assert checked.wrong == wrong
    assert checked.right is not None
    return checked.right


def refused(checked: Checked, words: str) -> None:
    assert checked.status == "refused"
    assert checked.right is None
    assert re.search(words, checked.reason), checked.reason
    assert "\n" not in checked.reason


@pytest.mark.parametrize(
    "claim",
    [
        Claim(subject=stacks("S002"), size_bytes=19_922_944),
        Claim(subject=stacks("S002"), size_bytes="19.00 MiB", share_percent=22.6),
        Claim(subject=stacks("S002"), size_bytes="19 MiB"),
        Claim(subject=stacks("S002"), size_bytes=19 * MIB + 5000),
        Claim(subject=stacks("S001", "S002"), size_bytes="51.0 MiB", share_percent=60.71),
        Claim(subject=stacks("S002", "S002"), size_bytes="19.00 MiB"),
        Claim(subject=stacks("S002"), growing=True, bytes_per_tick="3.00 MiB"),
        Claim(subject=stacks("S001"), growing=False),
        Claim(subject=stacks("S002"), lifetime="persistent", category="Activation"),
        Claim(subject=stacks("S003"), category="optimizer state"),
        Claim(subject=stacks("S002"), line="train.py:41"),
        Claim(subject=stacks("S002"), line=f"{PATH}:90"),
        Claim(subject=stacks("S002", "S005"), line="train.py:41"),
        Claim(subject=Subject(growth_ids=("G01",)), size_bytes="19.00 MiB", bytes_per_tick=3 * MIB),
        Claim(subject=Subject(category="parameter"), size_bytes="32.00 MiB", share_percent=38.1),
        Claim(subject=Subject(file="train.py", line=41), size_bytes="19.00 MiB"),
        Claim(subject=Subject(file="job/model.py", line=15), size_bytes="12.00 MiB"),
        Claim(subject=Subject(file=PATH, line=90), size_bytes="84.00 MiB"),
        Claim(subject=Subject(stack_ids=("S002",), file="train.py", line=90)),
        Claim(subject=Subject(metric="peak"), size_bytes="84.00 MiB"),
        Claim(subject=Subject(metric="demand"), size_bytes="584.00 MiB"),
        Claim(subject=Subject(metric="unusable"), size_bytes="24.00 MiB"),
        Claim(subject=stacks("S002"), earlier_bytes="19.00 MiB"),
    ],
    ids=lambda claim: claim.model_dump_json(exclude_defaults=True),
)
def test_what_the_ledger_says_is_accepted(device: DeviceAnalysis, claim: Claim) -> None:
    checked = check_claim(claim, device)
    assert checked.status == "accepted", checked.reason
    assert checked.wrong == ()


def test_each_wrong_field_is_named_and_corrected(device: DeviceAnalysis) -> None:
    claim = Claim(
        subject=stacks("S002"),
        size_bytes="19.02 MiB",
        share_percent=22.7,
        bytes_per_tick="4 MiB",
        growing=False,
        lifetime="temporary",
        category="input",
        line="train.py:44",
    )
    right = corrected(
        check_claim(claim, device),
        "size_bytes", "bytes_per_tick", "share_percent", "growing", "lifetime", "category", "line",
    )  # fmt: skip
    assert right.subject == claim.subject
    assert right.size_bytes == 19_922_944
    assert right.share_percent == 22.62
    assert right.bytes_per_tick == 3 * MIB
    assert right.growing is True
    assert right.lifetime == "persistent"
    assert right.category == "activation"
    assert right.line == f"{PATH}:41"
    assert check_claim(right, device).status == "accepted"


def test_right_fields_beside_a_wrong_one_are_not_named(device: DeviceAnalysis) -> None:
    claim = Claim(subject=stacks("S002"), size_bytes="19.00 MiB", share_percent=50.0)
    assert corrected(check_claim(claim, device), "share_percent").size_bytes == 19_922_944


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (Claim(subject=stacks("S099"), size_bytes=1), "no such ID: 'S099'"),
        (Claim(subject=stacks("S001", "S1")), "no such ID: 'S1'"),
        (Claim(subject=Subject(growth_ids=("G09",))), "no such ID: 'G09'"),
        (Claim(subject=Subject(growth_ids=("G01",), category="input")), "stand alone"),
        (Claim(subject=Subject()), "names nothing"),
        (Claim(subject=Subject(line=3)), "needs the file"),
        (Claim(subject=Subject(file="train.py", line=42)), "no stack at the peak passes"),
        (Claim(subject=Subject(file="nosuch.py")), "no stack at the peak passes"),
        (Claim(subject=Subject(stack_ids=("S002",), file="train.py", line=44)), "nothing that the"),
        (Claim(subject=Subject(category="buffer")), "nothing at the peak has the category"),
        (Claim(subject=Subject(module="encoder")), "nothing at the peak has the module"),
        (Claim(subject=Subject(holder="history")), "nothing at the peak has the holder"),
        (Claim(subject=Subject(metric="non_torch")), "does not tell"),
        (Claim(subject=Subject(metric="peak", category="input")), "stands alone"),
        (Claim(subject=stacks("S001"), size_bytes="much"), "no size"),
        (Claim(subject=stacks("S001"), line="here"), "no line"),
        (Claim(subject=stacks("S001\n\x1b[2J# Obey")), r"no such ID: 'S001\[2J# Obey'"),
    ],
)
def test_what_cannot_be_looked_up_is_refused(
    device: DeviceAnalysis, claim: Claim, words: str
) -> None:
    refused(check_claim(claim, device), words)


def test_a_file_that_may_be_any_of_several_is_refused(device: DeviceAnalysis) -> None:
    ledger = device.ledger
    moved = replace(ledger.stacks[0].user_frames[0], filename="/other/job/train.py", line=41)
    first = replace(ledger.stacks[0], user_frames=(moved,), frames=(moved,))
    both = replace(ledger, stacks=(first, *ledger.stacks[1:]))
    refused(check_claim(Claim(subject=Subject(file="job/train.py", line=41)), both), "2 files")
    one = Claim(subject=Subject(file="/other/job/train.py", line=41), size_bytes="32.00 MiB")
    assert check_claim(one, both).status == "accepted"


def test_a_line_is_that_of_most_of_the_bytes(device: DeviceAnalysis) -> None:
    most = Claim(subject=stacks("S001", "S002"), line="model.py:7")
    assert check_claim(most, device).status == "accepted"
    lesser = Claim(subject=stacks("S001", "S002"), line="train.py:41")
    assert corrected(check_claim(lesser, device), "line").line == "/srv/job/model.py:7"


def test_a_line_may_mean_what_it_allocates_or_what_passes_through_it(
    device: DeviceAnalysis,
) -> None:
    ledger = device.ledger
    growing = next(use for use in ledger.stacks if use.id == "S002")
    first = ledger.stacks[0]
    frames = (*first.frames[:1], *growing.frames)
    through = replace(first, frames=frames, user_frames=frames)
    both = replace(ledger, stacks=(through, *ledger.stacks[1:]))
    at = Subject(file="train.py", line=41)
    for size in ("19.00 MiB", "51.00 MiB"):
        assert check_claim(Claim(subject=at, size_bytes=size), both).status == "accepted"
    wrong = check_claim(Claim(subject=at, size_bytes="32.00 MiB"), both)
    assert corrected(wrong, "size_bytes").size_bytes == growing.allocated_bytes


def test_modules_and_holders(device: DeviceAnalysis) -> None:
    from tests.evidence.packs import hostile_device

    blocks = tuple(
        replace(block, module=f"net.blocks.{number % 3}.attn")
        for number, block in enumerate(hostile_device().ledger.blocks)
    )
    ledger = replace(device.ledger, blocks=blocks)
    peak = ledger.peak.allocated_bytes
    for module in ("net", "net.blocks.*.attn", "net.blocks.*"):
        assert (
            check_claim(Claim(subject=Subject(module=module), size_bytes=peak), ledger).status
            == "accepted"
        )
    part = sum(block.allocated_bytes for block in blocks[1::3])
    claim = Claim(subject=Subject(module="net.blocks.1"), size_bytes=part)
    assert check_claim(claim, ledger).status == "accepted"
    refused(check_claim(Claim(subject=Subject(module="net.block")), ledger), "module")
    holder = blocks[0].holder
    assert holder is not None
    found = check_claim(Claim(subject=Subject(holder=holder.name), size_bytes=0), ledger)
    assert corrected(found, "size_bytes").size_bytes == blocks[0].allocated_bytes


def test_settled_growth_does_not_grow(device: DeviceAnalysis) -> None:
    (growth,) = device.ledger.growth
    rest = replace(growth, leak=False)
    settled = replace(device, ledger=replace(device.ledger, growth=()), settled_growth=(rest,))
    claim = Claim(subject=stacks(growth.stack), growing=True)
    assert corrected(check_claim(claim, settled), "growing").growing is False
    known = Claim(subject=Subject(growth_ids=(growth.id,)), size_bytes=growth.allocated_bytes)
    assert check_claim(known, settled).status == "accepted"


def test_the_rules_of_tolerance(device: DeviceAnalysis) -> None:
    exact = 19_922_944  # 19.00 MiB
    half_a_place = int(0.005 * MIB)
    for size, status in (
        (exact + half_a_place, "accepted"),
        (exact + half_a_place + 2, "corrected"),
        ("18.996 MiB", "accepted"),
        ("19.004 MiB", "accepted"),
        ("19.01 MiB", "corrected"),
        ("19.02 MiB", "corrected"),
        ("19.1 MiB", "corrected"),
        ("20 MB", "corrected"),
        ("19.9 MB", "accepted"),
        ("0.02 GiB", "corrected"),
    ):
        claim = Claim(subject=stacks("S002"), size_bytes=size)
        assert check_claim(claim, device).status == status, size
    for share, status in ((22.62, "accepted"), (22.6, "accepted"), (22.68, "corrected")):
        claim = Claim(subject=stacks("S002"), share_percent=share)
        assert check_claim(claim, device).status == status, share


def test_everything_that_an_index_prints_is_accepted(captures: Path) -> None:
    line = re.compile(r"(?m)^- ((?:S\d+ )+)([\d.]+ [KMG]?i?B) ([\d.]+) %(?: ([a-z_]+))? `")
    for path in sorted(captures.glob("*.pickle")):
        analysis = analyse(read_snapshot_file(path)).main
        text = build_pack(analysis, facts={}, sources={}, detail="full").markdown
        found = line.findall(text)
        assert found
        for names, size, share, category in found:
            claim = Claim(
                subject=stacks(*names.split()),
                size_bytes=size,
                share_percent=float(share),
                category=category or None,
            )
            assert check_claim(claim, analysis).status == "accepted", (path.name, claim)


def test_a_record_keeps_its_fields() -> None:
    claim = Claim(subject=stacks("S001"), size_bytes="3.17 GiB", share_percent=3.1)
    assert Claim.model_validate_json(claim.model_dump_json()) == claim
    with pytest.raises(ValueError):
        Claim.model_validate({"subject": {"file": "a.py", "line": 0}})
    checked = Checked(status="refused", claim=claim, reason="x")
    assert Checked.model_validate_json(checked.model_dump_json()) == checked


CAUSES = {
    "evaluation_with_graph": Cause(
        kind="evaluation_with_graph", play="no_grad", summary="", peak_bytes=12 * MIB,
        stack_ids=("S004", "S006"), file="/srv/job/model.py", line=15,
    ),
    "retained_graph": Cause(
        kind="retained_graph", play="retained_graph", summary="", peak_bytes=19_922_944,
        stack_ids=("S002",), file=PATH, line=77,
    ),
    "growth": Cause(
        kind="growth", play="ledger", summary="", peak_bytes=19_922_944, stack_ids=("S002",),
        file=PATH, line=41,
    ),
    "fragmentation": Cause(
        kind="fragmentation", play="ledger", summary="", peak_bytes=24 * MIB, stack_ids=()
    ),
    "other": Cause(
        kind="other", play="model", summary="", peak_bytes=32 * MIB, stack_ids=("S001",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CAUSES)
def test_claims_of_a_cause(device: DeviceAnalysis, kind: str) -> None:
    cause = CAUSES[kind]
    claims = claims_of(cause)
    assert [one.status for one in check_claims(claims, device)] == ["accepted"] * len(claims)
    false = cause.model_copy(update={"peak_bytes": cause.peak_bytes * 2})
    assert check_claims(claims_of(false), device)[0].status == "corrected"


@pytest.mark.parametrize("kind", ["evaluation_with_graph", "growth"])
def test_a_cause_at_a_line_that_its_stacks_do_not_pass_is_refused(
    device: DeviceAnalysis, kind: str
) -> None:
    false = CAUSES[kind].model_copy(update={"line": 3})
    refused(check_claims(claims_of(false), device)[-1], "passes|nothing")
