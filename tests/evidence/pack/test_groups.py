"""Near-identical stacks stand together, and each of them can still be cited."""

from headroom.evidence.ledger import build_ledger
from headroom.evidence.model import Frame
from headroom.evidence.pack.build import build_pack
from headroom.evidence.pack.groups import group_stacks, layers_merged, without_cycles
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.programs import LINEAR, MAIN, SITE, WRAPPER, Program

FORWARD = ("/srv/job/model.py", 15, "forward")
OTHER = ("/srv/job/model.py", 16, "forward")
FUNCTIONAL = (f"{SITE}/torch/nn/functional.py", 99, "gelu")


def ledger_of(*stacks: tuple[tuple[str, int, str], ...]):
    program = Program()
    for number, frames in enumerate(stacks):
        program.alloc(2 + number, *frames)
    return build_ledger(parse_snapshot(program.allocator.snapshot()))


def members(*stacks: tuple[tuple[str, int, str], ...]) -> list[int]:
    return sorted(len(group.uses) for group in group_stacks(ledger_of(*stacks)))


def test_stacks_that_differ_in_library_frames_are_one() -> None:
    assert members((LINEAR, FORWARD, MAIN), (FUNCTIONAL, WRAPPER, FORWARD, MAIN)) == [2]
    assert members((LINEAR, FORWARD, MAIN), (LINEAR, OTHER, MAIN)) == [1, 1]


def test_stacks_that_differ_in_depth_of_recursion_are_one() -> None:
    outer = ("/srv/job/model.py", 30, "walk")
    pair = (FORWARD, outer)
    assert members((*pair, MAIN), (*pair, *pair, MAIN), (*pair, *pair, *pair, MAIN)) == [3]
    assert members((*pair, MAIN), (FORWARD, OTHER, outer, MAIN)) == [1, 1]


def test_stacks_that_differ_in_the_number_of_generated_code_are_one() -> None:
    def generated(number: int, line: int = 7):
        return ((f"<eval_with_key>.{number}", line, "forward"),)

    assert members(generated(1), generated(12)) == [2]
    assert members(generated(1), generated(1, line=8)) == [1, 1]
    # In a file of the user's a number is part of its name.
    assert members((("/srv/job/net1.py", 7, "f"),), (("/srv/job/net2.py", 7, "f"),)) == [1, 1]


def test_library_stacks_that_differ_in_wrappers_are_one() -> None:
    assert members((LINEAR, WRAPPER), (LINEAR, WRAPPER, WRAPPER)) == [2]
    assert members((LINEAR,), (FUNCTIONAL,)) == [1, 1]


def test_the_backward_of_a_line_stays_apart_from_its_forward() -> None:
    node = ("??", 0, "[backward] AddmmBackward0")
    assert members((LINEAR, FORWARD, MAIN), (node, FORWARD, MAIN)) == [1, 1]


def test_a_group_says_how_many_how_much_and_each_id() -> None:
    stacks = [
        ((f"{SITE}/torch/nn/modules/layer{number}.py", 3, "forward"), FORWARD, MAIN)
        for number in range(30)
    ]
    ledger = ledger_of(*stacks)
    pack = build_pack(ledger, facts={}, sources={})
    (group,) = group_stacks(ledger)
    assert group.allocated_bytes == ledger.peak.allocated_bytes
    assert "and 22 more" in pack.markdown
    assert "30 stacks, which differ in library frames only" in pack.markdown
    for use in ledger.stacks:
        assert use.id in pack.ids
        assert f"{use.id} {use.allocated_bytes}" in pack.markdown


def test_cycles_and_layers() -> None:
    a, b, c = (Frame(filename="x", line=line, name="f") for line in (1, 2, 3))
    keys = [(frame.filename, frame.line, frame.name) for frame in (a, b, a, b, a, b, c, c)]
    assert [line for _, line, _ in without_cycles(keys)] == [1, 2, 3]
    assert layers_merged("blocks.3.attn.0") == "blocks.*.attn.*"
    assert layers_merged("history[12]") == "history[*]"
    assert layers_merged("fc1.weight") == "fc1.weight"
