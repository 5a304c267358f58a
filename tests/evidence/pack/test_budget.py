"""Budgets: never exceeded, of use from the smallest on, and more never loses what less had."""

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.evidence.analysis import analyse
from headroom.evidence.model import Ledger
from headroom.evidence.pack.build import BUDGETS, Pack, build_pack
from headroom.evidence.pack.groups import group_stacks
from headroom.evidence.pack.tables import best_counter
from headroom.evidence.pack.tokens import ESTIMATE, TokenCounter, corrected
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.make_snapshot import Options, make_snapshot
from tests.evidence.packs import SOURCES, hostile_device, leak_analysis, long_device

LONG = long_device()
BUDGET_STEPS = (1000, 1200, 1500, 2000, 3000, 5000, 8000, 16_000, 40_000, 120_000, 500_000)


def packs_of(subject, counter: TokenCounter = ESTIMATE) -> list[Pack]:
    return [
        build_pack(
            subject, facts={"torch": "2.13"}, sources=SOURCES, budget_tokens=budget, counter=counter
        )
        for budget in BUDGET_STEPS
    ]


@pytest.fixture(scope="module")
def many_stacks():
    snapshot, _ = make_snapshot(Options(entries=6000, depth=16, seed=3))
    return analyse(parse_snapshot(snapshot)).main


def test_no_budget_is_exceeded_and_more_never_loses_an_id(captures: Path, many_stacks) -> None:
    subjects = [many_stacks, hostile_device(), long_device(), leak_analysis()]
    subjects += [analyse(read_snapshot_file(path)) for path in sorted(captures.glob("*.pickle"))]
    for subject in subjects:
        packs = packs_of(subject)
        seen: set[str] = set()
        for pack, budget in zip(packs, BUDGET_STEPS, strict=True):
            assert pack.budget_tokens == budget
            assert pack.tokens == ESTIMATE.count(pack.markdown) <= budget
            assert seen <= set(pack.ids)
            seen = set(pack.ids)
        assert len(packs[0].ids) < len(packs[-1].ids)


def test_the_smallest_pack_is_of_use(captures: Path, many_stacks) -> None:
    subjects = [many_stacks, hostile_device(), long_device(), leak_analysis()]
    subjects += [analyse(read_snapshot_file(path)) for path in sorted(captures.glob("*.pickle"))]
    for subject in subjects:
        pack = build_pack(subject, facts={"torch": "2.13"}, sources=SOURCES, budget_tokens=1000)
        ledger: Ledger = getattr(subject, "main", subject).ledger
        assert f"({ledger.peak.allocated_bytes} bytes)" in pack.markdown
        assert "; cut: " in pack.markdown
        closing = pack.markdown.split("## 8.")[1]
        assert "Question:" in closing
        assert ledger.stacks[0].id in closing


@dataclass(frozen=True)
class Odd:
    """A counter that follows no rule but that equal texts count the same."""

    name: str = "odd"
    estimated: bool = True

    def count(self, text: str) -> int:
        return len(text) // 4 + hash_of(text) % 300


def hash_of(text: str) -> int:
    return sum(text.encode()) * 2654435761 % 2**32


def test_even_a_counter_without_rule_gets_no_more_than_it_allows_and_loses_nothing() -> None:
    packs = packs_of(long_device(), Odd())
    for smaller, larger in pairwise(packs):
        assert smaller.tokens <= smaller.budget_tokens
        assert set(smaller.ids) <= set(larger.ids)


@settings(deadline=None, max_examples=40)
@given(st.integers(1000, 60_000), st.integers(0, 20_000))
def test_two_budgets_of_a_long_device(budget: int, more: int) -> None:
    one = build_pack(LONG, facts={}, sources=SOURCES, budget_tokens=budget)
    other = build_pack(LONG, facts={}, sources=SOURCES, budget_tokens=budget + more)
    assert one.tokens <= budget
    assert set(one.ids) <= set(other.ids)


def test_the_stacks_shown_are_the_largest_groups(captures: Path, many_stacks) -> None:
    merged = analyse(read_snapshot_file(captures / "all_stacks.pickle")).main
    for subject in (many_stacks, merged, leak_analysis().main):
        groups = group_stacks(subject.ledger)
        for pack in packs_of(subject):
            shown = [group.id in pack.ids for group in groups]
            assert shown == sorted(shown, reverse=True)
            for name in re.findall(r"(?m)^### (S\d+)", pack.markdown):
                assert name in pack.ids


def test_growth_is_told_with_its_stack() -> None:
    (growth,) = leak_analysis().main.ledger.growth
    for pack in packs_of(leak_analysis()):
        assert growth.id not in pack.ids or growth.stack in pack.ids
    assert growth.id in build_pack(leak_analysis(), facts={}, sources={}, detail="brief").ids


def test_places_elsewhere_in_the_pack_are_named_where_they_are_shown() -> None:
    full = build_pack(leak_analysis(), facts={}, sources=SOURCES, detail="full").markdown
    assert "- frames: f3 f2; source: L03, L02\n" in full
    assert re.search(r"(?m)^- H03 .*; see: S002$", full)
    bare = build_pack(leak_analysis(), facts={}, sources={}, detail="full").markdown
    assert "source: L" not in bare


@pytest.mark.parametrize("name", ["all_stacks", None])
def test_what_was_cut_is_told_and_adds_up(captures: Path, many_stacks, name: str | None) -> None:
    if name is not None:
        many_stacks = analyse(read_snapshot_file(captures / f"{name}.pickle")).main
    ledger = many_stacks.ledger
    budget = 2500 if name is None else 1000
    pack = build_pack(many_stacks, facts={}, sources={}, budget_tokens=budget)
    shown = {use.id for use in ledger.stacks if use.id in pack.ids}
    assert 3 <= len(shown) < len(ledger.stacks)
    cut_bytes = sum(use.allocated_bytes for use in ledger.stacks if use.id not in shown)
    told = re.search(r"(\d+) stacks? \((?:[\d.]+ \w+ \()?(\d+) bytes", pack.markdown)
    assert told is not None
    assert int(told[1]) == len(ledger.stacks) - len(shown)
    assert int(told[2]) == cut_bytes
    details = re.search(r"(\d+) details? of stacks", pack.markdown)
    assert details is not None
    full = build_pack(many_stacks, facts={}, sources={}, budget_tokens=500_000)
    assert "nothing was cut" in full.markdown
    headings = full.markdown.count("\n### S") - pack.markdown.count("\n### S")
    assert int(details[1]) == headings


def test_an_id_means_the_same_at_every_budget() -> None:
    packs = packs_of(leak_analysis())
    for name in packs[0].ids:
        line = re.search(rf"(?m)^- {name} .*$", packs[0].markdown)
        if line and name[0] in "MBFH":
            assert line[0] in packs[-1].markdown
    small = build_pack(leak_analysis(), facts={}, sources=SOURCES, budget_tokens=2600)
    windows = [name for name in small.ids if name.startswith("L")]
    assert windows
    heading = re.search(rf"(?m)^### {windows[0]} .*$", small.markdown)
    assert heading is not None
    assert heading[0] in packs[-1].markdown


def test_the_whole_source_comes_where_there_is_room() -> None:
    text = build_pack(leak_analysis(), facts={}, sources=SOURCES, detail="full").markdown
    for number in range(1, 95):
        assert text.count(f" {number} | statement_{number}()\n") == 1
    lean = build_pack(leak_analysis(), facts={}, sources=SOURCES, budget_tokens=3500).markdown
    assert "statement_41()" in lean
    assert "statement_70()" not in lean


def test_three_sizes_of_detail() -> None:
    sizes = [build_pack(LONG, facts={}, sources=SOURCES, detail=detail) for detail in BUDGETS]
    assert [pack.budget_tokens for pack in sizes] == [2_000, 16_000, 120_000]
    assert sizes[0].tokens < sizes[1].tokens <= sizes[2].tokens
    given = build_pack(LONG, facts={}, sources=SOURCES, budget_tokens=1500, detail="full")
    assert given.budget_tokens == 1500


def test_updates_are_shown_evenly_where_not_all_fit() -> None:
    pack = build_pack(LONG, facts={}, sources={}, budget_tokens=5000)
    rows = [
        int(row)
        for row in re.findall(r"(?m)^\| T\d+ \| (\d+) \| [\d.]+ \w+ \| [^|]*\|$", pack.markdown)
    ]
    assert {0, 399} <= set(rows)
    assert 10 < len(rows) < 400
    gaps = [later - earlier for earlier, later in pairwise(rows)]
    assert max(gaps) <= 400 / len(rows) * 4


def test_a_budget_below_what_must_be_said_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs at least \d+ tokens, not 50"):
        build_pack(LONG, facts={}, sources={}, budget_tokens=50)


def test_an_estimate_is_never_called_a_count() -> None:
    pack = build_pack(LONG, facts={}, sources={}, detail="brief")
    assert pack.estimated
    assert pack.size.startswith(f"estimated at {pack.tokens} tokens or fewer")
    assert "budget: 2000 tokens, estimated (" in pack.markdown
    assert f"{pack.tokens} tokens" not in pack.markdown
    wider = build_pack(LONG, facts={}, sources={}, detail="brief", counter=corrected(ESTIMATE, 1.5))
    assert wider.estimated
    assert ESTIMATE.count(wider.markdown) * 1.5 <= 2000
    counted = replace(pack, estimated=False, counter="tiktoken o200k_base")
    assert counted.size == f"{pack.tokens} tokens (tiktoken o200k_base)"


def test_a_tokenizer_on_this_machine_counts_exactly() -> None:
    counter = best_counter()
    if counter.estimated:
        pytest.skip("no table of a tokenizer lies on this machine")
    for pack in packs_of(leak_analysis(), counter):
        assert pack.tokens == counter.count(pack.markdown) <= pack.budget_tokens
        assert "counted by tiktoken o200k_base" in pack.markdown


def test_facts_and_notes_of_an_analysis_are_told() -> None:
    analysis = replace(leak_analysis(), facts={"host": "a"}, notes=("the ring had wrapped",))
    text = build_pack(analysis, facts={"torch": "2.13"}, sources={}).markdown
    assert "`host`: `a`" in text
    assert "`torch`: `2.13`" in text
    assert "- `the ring had wrapped`" in text


def test_settings_of_the_allocator_are_told_where_they_are_not_torchs_own(captures: Path) -> None:
    plain = analyse(read_snapshot_file(captures / "full.pickle"))
    assert "allocator settings" not in build_pack(plain, facts={}, sources={}).markdown
    other = analyse(read_snapshot_file(captures / "expandable.pickle"))
    text = build_pack(other, facts={}, sources={}).markdown
    assert (
        "`allocator settings`: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, "
        "expandable_segments=True`"
    ) in text
    rounded = replace(plain, settings={"roundup_power2_divisions": "{'1': 0, '2': 4}"})
    assert "roundup_power2_divisions={" in build_pack(rounded, facts={}, sources={}).markdown
