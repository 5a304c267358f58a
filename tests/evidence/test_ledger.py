import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from headroom.errors import SnapshotError
from headroom.evidence.ledger import build_ledger
from headroom.evidence.model import Ledger, Tick
from headroom.evidence.reading.safe_pickle import read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.make_snapshot import Options, make_snapshot
from tests.evidence.programs import LINEAR, MAIN, Program, leaking_training
from tests.evidence.reference_allocator import MIB, Allocator

CAPTURES = Path(__file__).resolve().parents[1] / "recordings" / "captures"
NAMES = sorted(path.stem for path in CAPTURES.glob("*.pickle"))
STEP = ("/srv/job/train.py", 41, "step")


def ledger_of(program: Program, dropped: int = 0) -> Ledger:
    return build_ledger(parse_snapshot(program.allocator.snapshot(dropped)))


@pytest.mark.parametrize("name", NAMES)
def test_the_balance_of_every_capture_closes_to_the_byte(
    captures: Path, capture_truth: Any, name: str
) -> None:
    ledger, truth = (
        build_ledger(read_snapshot_file(captures / f"{name}.pickle")),
        capture_truth(name),
    )
    owned = sum(use.allocated_bytes for use in ledger.stacks)
    assert owned + sum(ledger.unattributed.values()) == ledger.peak.allocated_bytes
    assert sum(block.allocated_bytes for block in ledger.blocks) == ledger.peak.allocated_bytes
    assert sum(block.requested_bytes for block in ledger.blocks) == ledger.peak.requested_bytes
    for use in ledger.stacks:
        mine = [block for block in ledger.blocks if block.stack == use.id]
        assert use.blocks == len(mine)
        assert use.allocated_bytes == sum(block.allocated_bytes for block in mine)
        assert use.requested_bytes == sum(block.requested_bytes for block in mine)
    assert all((block.stack is None) == (block.missing is not None) for block in ledger.blocks)
    sizes = [use.allocated_bytes for use in ledger.stacks]
    assert sizes == sorted(sizes, reverse=True)
    assert [use.id for use in ledger.stacks] == [f"S{n:03d}" for n in range(1, len(sizes) + 1)]
    if name not in ("ring", "alloc_ctx"):
        assert ledger.peak.allocated_bytes == truth["max_memory_allocated"]
    assert ledger.reserved_bytes == truth["memory_reserved"]
    assert (ledger.contradictions, ledger.uncertain_bytes, ledger.pending_bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("name", "unattributed"),
    [
        ("eval_leak", {"no stack": 32 * MIB}),
        ("oom_observer", {}),
        ("ring", {"lost by the ring": 190_423_040, "no stack": 42_733_056}),
        # The same ring recorded with context="alloc": frees name the owner of what they free.
        ("alloc_ctx", {"lost by the ring": 47_488_000, "no stack": 42_733_056}),
    ],
)
def test_what_has_no_owner_says_why(
    captures: Path, name: str, unattributed: dict[str, int]
) -> None:
    ledger = build_ledger(read_snapshot_file(captures / f"{name}.pickle"))
    assert ledger.unattributed == unattributed


def test_the_peak_of_a_capture_is_owned_by_the_lines_of_the_program(captures: Path) -> None:
    ledger = build_ledger(read_snapshot_file(captures / "eval_leak.pickle"))
    sites = {(use.site.line, use.site.name) for use in ledger.stacks if use.site is not None}
    assert (13, "forward") in sites
    assert (63, "main") in sites
    assert ledger.stacks[0].allocated_bytes == 706_215_936


@pytest.mark.parametrize("seed", range(3))
def test_the_composition_equals_that_of_the_simulation(seed: int) -> None:
    options = Options(entries=4000, depth=12, preexisting=0, oom=False, seed=seed)
    snapshot, truth = make_snapshot(options)
    ledger = build_ledger(parse_snapshot(snapshot))
    expected: dict[tuple[Any, ...], int] = {}
    for number, size_bytes in truth["peak_by_stack"][0].items():
        stack = truth["stacks"][number]
        content = tuple((one["filename"], one["line"], one["name"]) for one in stack)
        if size_bytes:
            expected[content] = expected.get(content, 0) + size_bytes
    got = {
        tuple((one.filename, one.line, one.name) for one in use.frames): use.allocated_bytes
        for use in ledger.stacks
    }
    assert got == expected


def test_stacks_are_one_by_content_and_blocks_know_when_they_were_born() -> None:
    ledger = ledger_of(leaking_training(updates=3))
    by_line = {use.site.line: use for use in ledger.stacks if use.site is not None}
    leak = by_line[41]
    assert (leak.blocks, leak.allocated_bytes, leak.backward) == (3, 9 * MIB, False)
    born = [block.born for block in ledger.blocks if block.stack == leak.id]
    assert born == [Tick(update=u, call=u + 1) for u in range(3)]
    assert ledger.peak.tick == Tick(update=2, call=3)
    assert ledger.complete


def test_backward_allocations_keep_their_forward_line_apart() -> None:
    ledger = ledger_of(leaking_training(updates=2))
    forward, backward = sorted(
        (use for use in ledger.stacks if use.site is not None and use.site.line == 15),
        key=lambda use: use.backward,
    )
    assert (forward.backward, backward.backward) == (False, True)
    assert forward.site == backward.site


def test_equal_bytes_are_ordered_by_content_whatever_came_first() -> None:
    lines = [5, 3, 9, 7]
    seen = set()
    for seed in range(6):
        random.Random(seed).shuffle(lines)
        program = Program()
        for line in lines:
            program.alloc(4, ("/srv/job/train.py", line, "f"), MAIN)
        seen.add(tuple(use.site.line for use in ledger_of(program).stacks if use.site))
    assert seen == {(3, 5, 7, 9)}


def test_roots_choose_the_users_frames() -> None:
    program = Program()
    program.alloc(4, ("/srv/lib/helper.py", 8, "make"), STEP, MAIN)
    snapshot = parse_snapshot(program.allocator.snapshot())
    lines = [
        build_ledger(snapshot, roots=roots).stacks[0].user_frames[0].line
        for roots in ((), ("/srv/job",))
    ]
    assert lines == [8, 41]


def test_a_failure_counts_what_was_live_then_and_not_at_the_end() -> None:
    program = Program()
    held = program.alloc(40, LINEAR, STEP, MAIN)
    program.allocator.out_of_memory(64 * MIB, device_free=5 * MIB)
    program.free(held)
    program.alloc(1.5, STEP, MAIN)
    ledger = ledger_of(program)
    assert ledger.failure is not None
    assert ledger.failure.requested_bytes == 64 * MIB
    assert ledger.failure.device_free_bytes == 5 * MIB
    assert ledger.failure.live_allocated_bytes == 40 * MIB
    assert [frame.line for frame in ledger.failure.stack] == [134, 41, 90]
    assert ledger.live_allocated_bytes == int(1.5 * MIB)
    assert ledger.peak.allocated_bytes == 40 * MIB
    assert ledger.demand_bytes == 104 * MIB


def test_the_last_failure_counts() -> None:
    program = Program()
    for size in (64, 32):
        program.allocator.out_of_memory(size * MIB, device_free=0)
    failure = ledger_of(program).failure
    assert failure is not None
    assert failure.requested_bytes == 32 * MIB


def test_the_demand_of_real_failures(captures: Path) -> None:
    for name in ("oom_observer", "oom_capped"):
        ledger = build_ledger(read_snapshot_file(captures / f"{name}.pickle"))
        assert ledger.failure is not None
        assert ledger.failure.device_free_bytes == 148_762_656_768
        assert ledger.demand_bytes == 572_712_960 + 33_554_432


def test_a_failure_without_its_live_bytes_falls_back_to_those_at_the_end() -> None:
    program = Program()
    program.alloc(8, STEP)
    program.allocator.out_of_memory(64 * MIB, device_free=0)
    ledger = ledger_of(program)
    assert ledger.failure is not None
    bare = dataclasses.replace(ledger.failure, live_allocated_bytes=None)
    assert dataclasses.replace(ledger, failure=bare).demand_bytes == 72 * MIB


def test_a_peak_higher_than_live_plus_request_is_the_demand() -> None:
    program = Program()
    program.free(program.alloc(100, STEP))
    program.allocator.out_of_memory(2 * MIB, device_free=0)
    assert ledger_of(program).demand_bytes == 100 * MIB


def test_blocks_older_than_the_recording_have_no_birth_and_keep_their_stack_if_live() -> None:
    program = Program()
    gone = program.alloc(8, STEP, MAIN)
    program.alloc(4, ("/srv/job/model.py", 7, "__init__"), MAIN)
    dropped = len(program.allocator.entries)
    program.free(gone)
    program.alloc(2, STEP, MAIN)
    ledger = ledger_of(program, dropped)
    assert not ledger.complete
    assert ledger.unattributed == {"before recording": 8 * MIB}
    assert [(use.site.line, use.allocated_bytes) for use in ledger.stacks if use.site] == [
        (7, 4 * MIB)
    ]
    assert {block.born for block in ledger.blocks} == {None}


def test_frees_that_carry_another_stack_own_nothing() -> None:
    # Twenty frees repeat the stack of their allocation, one does not: this is context="all".
    program = Program()
    allocator = program.allocator
    old = program.alloc(8, STEP, MAIN)
    dropped = len(allocator.entries)
    for _ in range(25):
        piece = program.alloc(2, STEP, MAIN)
        allocator.free(piece)
    allocator.free(old)
    assert ledger_of(program, dropped).unattributed == {}
    last = program.alloc(2, STEP, MAIN)
    program.free(last)
    assert ledger_of(program, dropped).unattributed == {"before recording": 8 * MIB}


def test_a_private_pool_is_named_where_its_blocks_have_no_owner() -> None:
    program = Program()
    program.alloc(4)
    tree = program.allocator.snapshot()
    assert build_ledger(parse_snapshot(tree)).unattributed == {"no stack": 4 * MIB}
    tree["segments"][0]["segment_pool_id"] = (1, 0)
    assert build_ledger(parse_snapshot(tree)).unattributed == {"private pool": 4 * MIB}
    # Where entries name a pool, as torch 2.13's do, they are the ones to ask.
    for entry in tree["device_traces"][0]:
        entry["pool_id"] = (0, 0)
    assert build_ledger(parse_snapshot(tree)).unattributed == {"no stack": 4 * MIB}


def test_what_is_freed_but_pending_stands_beside_the_peak() -> None:
    program = Program()
    program.allocator.free(program.alloc(4, STEP, MAIN), pending=True)
    program.alloc(6, STEP, MAIN)
    ledger = ledger_of(program)
    assert ledger.peak.allocated_bytes == 6 * MIB
    assert ledger.pending_bytes == 4 * MIB


def two_devices() -> dict[str, Any]:
    snapshot, _ = make_snapshot(Options(entries=2000, depth=8, devices=2, oom=False, seed=5))
    return snapshot


def test_the_device_with_the_highest_peak_is_taken_unless_one_is_named() -> None:
    tree, exchanged = two_devices(), two_devices()
    exchanged["device_traces"].reverse()
    for segment in exchanged["segments"]:
        segment["device"] = 1 - segment["device"]
    chosen = []
    for snapshot in (parse_snapshot(tree), parse_snapshot(exchanged)):
        peaks = [build_ledger(snapshot, device=d).peak.allocated_bytes for d in (0, 1)]
        ledger = build_ledger(snapshot)
        assert ledger.peak.allocated_bytes == max(peaks)
        chosen.append(ledger.device)
    assert sorted(chosen) == [0, 1]


def test_devices_that_are_not_there_and_empty_snapshots_are_refused() -> None:
    with pytest.raises(SnapshotError, match="nothing about device 5; it has 0, 1"):
        build_ledger(parse_snapshot(two_devices()), device=5)
    with pytest.raises(SnapshotError, match="nothing to account for"):
        build_ledger(parse_snapshot({"segments": [], "device_traces": [[], []]}))


def test_a_history_without_allocations_has_a_peak_of_nothing() -> None:
    allocator = Allocator()
    allocator.out_of_memory(2**40, device_free=7)
    ledger = build_ledger(parse_snapshot(allocator.snapshot()))
    assert (ledger.peak.allocated_bytes, ledger.stacks, ledger.blocks) == (0, (), ())
    assert ledger.demand_bytes == 2**40
