from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.evidence.account.account import account_for
from headroom.evidence.analysis_model import Composition
from headroom.evidence.explain.composition import NO_MODULE, NO_PHASE, OLDER, compose, module_of
from headroom.evidence.explain.course import read_course
from headroom.evidence.ledger import ledger_of
from headroom.evidence.model import Ledger, LiveBlock, Tick
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import Snapshot, parse_snapshot
from headroom.units import MIB
from tests.evidence.account.test_replay_property import ALLOCATORS, STEPS, play
from tests.evidence.reference_allocator import Allocator
from tests.evidence.test_ledger import NAMES
from tests.evidence.training import Training


def composed(snapshot: Snapshot) -> tuple[Ledger, Composition]:
    account = account_for(snapshot, 0)
    ledger = ledger_of(account)
    return ledger, compose(account, read_course(account), ledger)


def check(ledger: Ledger, composition: Composition) -> None:
    for shares in (
        composition.categories,
        composition.modules,
        composition.phases,
        composition.lifetimes,
    ):
        assert sum(share.allocated_bytes for share in shares) == ledger.peak.allocated_bytes
        assert sum(share.blocks for share in shares) == len(ledger.blocks)
        assert all(0 <= share.inferred_bytes <= share.allocated_bytes for share in shares)
        sizes = [share.allocated_bytes for share in shares]
        assert sizes == sorted(sizes, reverse=True)
        assert len({share.name for share in shares}) == len(shares)


@pytest.mark.parametrize("name", NAMES)
def test_every_division_of_a_captured_peak_closes(captures: Path, name: str) -> None:
    check(*composed(read_snapshot_file(captures / f"{name}.pickle")))


@settings(max_examples=100, deadline=None)
@given(allocator=ALLOCATORS, steps=st.lists(STEPS, min_size=5, max_size=70), cut=st.integers(0, 60))
def test_every_division_of_a_random_peak_closes(
    allocator: Allocator, steps: list[tuple[str, int]], cut: int
) -> None:
    play(allocator, steps)
    check(*composed(parse_snapshot(allocator.snapshot(cut))))


def test_a_labelled_peak_is_told_by_module_and_phase() -> None:
    _, composition = composed(parse_snapshot(Training().run(3).allocator.snapshot()))
    modules = {share.name: share.allocated_bytes / MIB for share in composition.modules}
    assert set(modules) == {"Net.blocks.0", "Net.embedding", NO_MODULE}
    assert modules["Net.blocks.0"] >= 15
    phases = {share.name: share.inferred_bytes for share in composition.phases}
    assert phases == {"forward": 0, "backward": 0, "optimizer": 0, "other": 0}


def test_phases_of_a_strangers_file_are_marked_as_inferred() -> None:
    snapshot = parse_snapshot(Training(labelled=False).run(3).allocator.snapshot())
    _, composition = composed(snapshot)
    assert {share.name for share in composition.phases} >= {"forward", "backward", "optimizer"}
    assert all(share.inferred_bytes == share.allocated_bytes for share in composition.phases)
    assert [share.name for share in composition.modules] == [NO_MODULE]


def test_what_is_older_than_the_recording_has_no_phase(captures: Path) -> None:
    _, composition = composed(read_snapshot_file(captures / "late_start.pickle"))
    older = {share.name: share for share in composition.phases}[OLDER]
    assert older.allocated_bytes == 131_287_040
    assert {share.name for share in composition.modules} == {NO_MODULE, OLDER}


def test_where_nothing_tells_phases_they_are_not_told(captures: Path) -> None:
    _, composition = composed(read_snapshot_file(captures / "fragment.pickle"))
    assert [share.name for share in composition.phases] == [NO_PHASE]


def test_a_named_parameter_belongs_to_its_module() -> None:
    named = {"category": "parameter", "name": "Net.blocks.3.weight", "born": None}
    blocks = {
        "Net.blocks.3": named,
        "Net.fc": {**named, "module": "Net.fc"},
        OLDER: {**named, "category": "variable"},
        NO_MODULE: {**named, "name": "weight", "born": Tick(update=0, call=0)},
    }
    for module, facts in blocks.items():
        block = LiveBlock(
            stack=None, allocated_bytes=512, requested_bytes=512, **cast(dict[str, Any], facts)
        )
        assert module_of(block) == module
