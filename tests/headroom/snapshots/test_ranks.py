from headroom.evidence.analysis import analyse
from headroom.evidence.analysis_model import Analysis
from headroom.evidence.reading.snapshot import parse_snapshot
from headroom.snapshots.ranks import compare_ranks
from headroom.units import MIB
from tests.evidence.reference_allocator import Allocator


def rank_that_allocates(sizes: dict[int, int]) -> Analysis:
    """Bytes in MiB by line of the program."""
    allocator = Allocator()
    for line, size in sizes.items():
        allocator.frames = [{"filename": "/srv/job/train.py", "line": line, "name": "step"}]
        allocator.malloc(size * MIB)
    return analyse(parse_snapshot(allocator.snapshot()))


def test_the_odd_rank_is_named_with_its_line() -> None:
    usual = {10: 500, 20: 300}
    analyses = {
        0: ("rank0", rank_that_allocates({10: 500, 20: 900})),
        1: ("rank1", rank_that_allocates(usual)),
        2: ("rank2", rank_that_allocates(usual)),
        3: ("rank3", rank_that_allocates({10: 510, 20: 300})),
    }
    rows = compare_ranks(analyses)
    assert [row.rank for row in rows if row.odd] == [0]
    assert rows[0].off_median_bytes == 600 * MIB - 5 * MIB
    assert rows[0].line is not None
    assert (rows[0].line.line, rows[0].line_excess_bytes) == (20, 600 * MIB)
    # What differs by less than ranks usually do is not worth a line.
    assert rows[3].line is None


def test_ranks_alike_have_no_odd_one_out() -> None:
    analyses = {rank: (f"rank{rank}", rank_that_allocates({10: 100})) for rank in range(3)}
    assert not any(row.odd or row.line for row in compare_ranks(analyses))


def test_a_rank_that_lacks_a_line_is_told_by_what_it_lacks() -> None:
    analyses = {
        0: ("rank0", rank_that_allocates({10: 100})),
        1: ("rank1", rank_that_allocates({10: 100, 20: 400})),
        2: ("rank2", rank_that_allocates({10: 100, 20: 400})),
    }
    row = compare_ranks(analyses)[0]
    assert row.odd
    assert row.line is not None
    assert (row.line.line, row.line_excess_bytes) == (20, -400 * MIB)
