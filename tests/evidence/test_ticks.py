from typing import Any

import pytest

from headroom.evidence.model import Tick
from headroom.evidence.ticks import read_ticks


def entries(*labels: object) -> list[dict[str, Any]]:
    return [{"action": "alloc", "user_metadata": label} for label in labels]


def test_the_last_label_holds_where_autograds_threads_have_none() -> None:
    ticks = read_ticks(entries("", "hr:u=0,c=1", "", "hr:u=0,c=1", "hr:u=1,c=1", "", ""))
    told = [ticks.at(index) for index in range(-1, 7)]
    start, first, second = (Tick(update=u, call=c) for u, c in ((0, 0), (0, 1), (1, 1)))
    assert ticks.starts == (1, 4)
    assert told == [start, start, first, first, first, second, second, second]


def test_a_label_that_returns_is_seen_again() -> None:
    ticks = read_ticks(entries("hr:u=1,c=1", "hr:u=2,c=2", "hr:u=1,c=1"))
    assert ticks.at(2) == Tick(update=1, call=1)


@pytest.mark.parametrize(
    "label",
    [
        "fwd:blocks.0",
        "hr:u=3",
        "hr:u=3,c=17 ",
        " hr:u=3,c=17",
        "hr:u=-3,c=1",
        "hr:u=3,c=17,x=1",
        "hr:u=" + "9" * 400 + ",c=1",
        "hr:u=٣,c=1",
        17,
        None,
        ["hr:u=3,c=17"],
    ],
)
def test_labels_of_other_shapes_are_left_alone(label: object) -> None:
    assert read_ticks(entries(label)).at(0) == Tick(update=0, call=0)


def test_entries_without_the_field_have_the_first_tick() -> None:
    assert read_ticks([{"action": "alloc"}]).at(0) == Tick(update=0, call=0)
