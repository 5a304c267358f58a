"""Neighbours and ranges, against models that search everything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.evidence.account import address_space
from headroom.evidence.account.address_space import MappedRanges, SortedAddresses

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=80)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_sorted_addresses_know_their_neighbours(steps: list[tuple[bool, int]]) -> None:
    # Chunks of two split and vanish all the time.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(address_space, "_CHUNK", 2)
        addresses, model = SortedAddresses(), set[int]()
        for add, address in steps:
            if add and address not in model:
                addresses.add(address)
                model.add(address)
            elif not add and address in model:
                addresses.remove(address)
                model.remove(address)
            for probe in range(-1, 62, 7):
                above = [one for one in model if one > probe]
                below = [one for one in model if one <= probe]
                assert addresses.after(probe) == min(above, default=None)
                assert addresses.at_or_before(probe) == max(below, default=None)


def test_an_address_that_is_not_there_cannot_be_removed() -> None:
    addresses = SortedAddresses()
    for absent in (3, 5):
        with pytest.raises(KeyError):
            addresses.remove(absent)
        if absent == 3:
            addresses.add(4)


RANGES = st.lists(
    st.tuples(
        st.sampled_from(["expandable", "fixed", "cut"]), st.integers(0, 40), st.integers(0, 9)
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(RANGES)
def test_mapped_ranges_hold_what_was_mapped_last(steps: list[tuple[str, int, int]]) -> None:
    ranges, model = MappedRanges(), dict[int, str]()
    for action, start, size in steps:
        if action == "cut":
            ranges.cut(start, size)
        else:
            ranges.add(start, size, expandable=action == "expandable")
        for address in range(start, start + size):
            model.pop(address, None)
            if action != "cut":
                model[address] = action
    for address in range(52):
        found = ranges.start_of(address)
        assert (found is not None) == (address in model)
        if found is not None:
            assert ranges.is_expandable(found) == (model[address] == "expandable")
            assert set(range(found, address)) <= set(model)


def test_ranges_of_expandable_segments_that_touch_are_one_and_others_are_not() -> None:
    ranges = MappedRanges()
    for start in (20, 0, 10):
        ranges.add(start, 10, expandable=True)
    ranges.add(30, 10, expandable=False)
    ranges.add(40, 10, expandable=False)
    assert (ranges.start_of(29), ranges.end_of(0)) == (0, 30)
    assert (ranges.start_of(30), ranges.end_of(30)) == (30, 40)
    ranges.cut(8, 4)
    assert (ranges.end_of(0), ranges.end_of(12), ranges.start_of(9)) == (8, 30, None)
