from headroom.evidence.analysis import analyse
from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.explain.growth import find_growth
from headroom.evidence.ledger import build_ledger
from headroom.evidence.model import Growth, LiveBlock, StackId, Tick
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.programs import MAIN, Program, leaking_training
from tests.evidence.reference_allocator import MIB, Allocator, Piece

LOOP = ("/srv/job/eval.py", 12, "evaluate")


def growth_of(program: Program) -> tuple[Growth, ...]:
    return build_ledger(parse_snapshot(program.allocator.snapshot())).growth


def test_what_a_list_keeps_over_updates_grows() -> None:
    program = leaking_training(updates=6)
    ledger = build_ledger(parse_snapshot(program.allocator.snapshot()))
    (growth,) = ledger.growth
    site = ledger.stack(growth.stack).site
    assert site is not None
    assert (site.filename, site.line) == ("/srv/job/train.py", 41)
    assert (growth.id, growth.kind, growth.ticks) == ("G01", "update", 6)
    assert (growth.bytes_per_tick, growth.allocated_bytes) == (3 * MIB, 18 * MIB)


def test_the_last_loss_beside_the_present_one_is_no_growth() -> None:
    program = Program()
    held: list[Piece] = []
    for _ in range(5):
        if len(held) == 2:
            program.free(held.pop(0))
        program.begin_call()
        held.append(program.alloc(4, LOOP, MAIN))
        program.end_update()
    assert growth_of(program) == ()


def test_an_evaluation_that_keeps_its_outputs_grows_over_calls() -> None:
    program = Program()
    for _ in range(3):
        program.end_update()
    for _ in range(4):
        program.begin_call()
        program.alloc(5, LOOP, MAIN)
    (growth,) = growth_of(program)
    assert (growth.kind, growth.ticks, growth.bytes_per_tick) == ("call", 4, 5 * MIB)


def test_layers_that_share_a_stack_within_one_call_are_no_growth() -> None:
    program = Program()
    program.begin_call()
    for _ in range(24):
        program.alloc(2, ("/srv/job/model.py", 15, "forward"), MAIN)
    assert growth_of(program) == ()


def test_parameters_and_optimizer_state_are_no_growth() -> None:
    program = leaking_training(updates=6)
    ledger = build_ledger(parse_snapshot(program.allocator.snapshot()))
    lines = {(use.id, use.site.line) for use in ledger.stacks if use.site is not None}
    growing = {growth.stack for growth in ledger.growth}
    assert {line for name, line in lines if name in growing} == {41}
    assert {7, 44} <= {line for _, line in lines}


def test_snapshots_without_our_labels_have_no_growth() -> None:
    program = leaking_training()
    for entry in program.allocator.entries:
        entry["user_metadata"] = "step 7"
    assert growth_of(program) == ()


def block(stack: str, size: int, update: int, call: int = 0) -> LiveBlock:
    return LiveBlock(
        stack=StackId(stack),
        allocated_bytes=size,
        requested_bytes=size,
        born=Tick(update=update, call=call),
    )


def test_growth_is_ordered_by_bytes_and_tells_the_median_per_tick() -> None:
    small = [block("S002", size, update) for update, size in enumerate((100, 300, 200, 200))]
    large = [block("S001", 1000, update) for update in (3, 5, 9)]
    first, second = find_growth([*small, *large])
    assert (first.id, first.stack, first.allocated_bytes) == ("G01", "S001", 3000)
    assert (second.id, second.stack, second.bytes_per_tick) == ("G02", "S002", 200)


def test_blocks_without_owner_or_birth_are_passed_over() -> None:
    unknown = LiveBlock(
        stack=None, allocated_bytes=9, requested_bytes=9, born=Tick(update=1, call=1)
    )
    old = LiveBlock(stack=StackId("S001"), allocated_bytes=9, requested_bytes=9, born=None)
    assert find_growth([unknown, old, old, old]) == ()


def survivors(*updates: int, newest: int) -> Growth:
    """Growth of a stack with survivors of some updates, while another stack shows the newest update."""
    blocks = [block("S001", 100, update) for update in updates]
    (growth,) = find_growth([*blocks, block("S002", 9, newest)])
    return growth


def test_what_grows_to_the_end_is_a_leak() -> None:
    assert survivors(0, 1, 2, 3, 4, 5, newest=5).leak
    assert survivors(0, 1, 2, newest=2).leak
    # Every tenth update keeps something.
    assert survivors(10, 20, 30, 40, newest=46).leak


def test_what_comes_to_rest_is_warm_up() -> None:
    assert not survivors(0, 1, 2, newest=30).leak
    assert not survivors(100, 101, 102, 103, newest=120).leak
    # The present update's own block, and what is kept from the last one, show no growth.
    assert not survivors(0, 1, 2, 29, 30, newest=30).leak


def test_the_last_third_counts_from_the_first_survivor() -> None:
    assert survivors(10, 15, 24, newest=32).leak
    assert not survivors(10, 15, 23, newest=32).leak


def test_growth_over_calls_is_judged_by_calls() -> None:
    kept = [block("S001", 100, 3, call) for call in (5, 6, 7)]
    (leak,) = find_growth([*kept, block("S002", 9, 3, 8)])
    (rest,) = find_growth([*kept, block("S002", 9, 3, 50)])
    assert (leak.kind, leak.leak, rest.leak) == ("call", True, False)


def micro_batches(updates: int, *, freed: bool) -> DeviceAnalysis:
    """Eight calls an update, each of which leaves 4 MiB; a backward frees them at the update's end, or nothing does."""
    allocator = Allocator()
    allocator.frames = [{"filename": "/srv/job/train.py", "line": 9, "name": "step"}]
    call = 0
    for update in range(updates):
        held = []
        for _ in range(8):
            call += 1
            allocator.label = f"hr:u={update},c={call}"
            held.append(allocator.malloc(4 * MIB))
        for piece in held if freed else ():
            allocator.free(piece)
    return analyse(parse_snapshot(allocator.snapshot())).main


def test_what_rises_and_falls_in_every_update_is_no_leak() -> None:
    (growth,) = micro_batches(5, freed=True).ledger.growth
    assert (growth.kind, growth.ticks, growth.leak) == ("call", 8, False)
    (growth,) = micro_batches(5, freed=False).ledger.growth
    assert growth.leak
