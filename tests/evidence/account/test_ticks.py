import pytest

from headroom.evidence.account.ticks import Label, parse_label, read_ticks
from headroom.evidence.model import Tick
from headroom.evidence.reading.history import History
from headroom.evidence.reading.snapshot import parse_snapshot

START = Tick(update=0, call=0)


def history(*labels: object) -> History:
    entries = [{"action": "user_defined", "size": 0, "user_metadata": label} for label in labels]
    return parse_snapshot({"segments": [], "device_traces": [entries]}).history_of(0)


def test_the_last_label_holds_where_autograds_threads_have_none() -> None:
    ticks = read_ticks(history("", "hr:u=0,c=1", "", "hr:u=0,c=1", "hr:u=1,c=1", "", ""))
    told = [ticks.at(index) for index in range(-1, 7)]
    first, second = (Tick(update=u, call=c) for u, c in ((0, 1), (1, 1)))
    assert ticks.starts == (1, 4)
    assert told == [START, START, first, first, first, second, second, second]


def test_a_label_that_returns_is_seen_again() -> None:
    ticks = read_ticks(history("hr:u=1,c=1", "hr:u=2,c=2", "hr:u=1,c=1"))
    assert ticks.at(2) == Tick(update=1, call=1)


def test_a_label_tells_phase_and_module() -> None:
    ticks = read_ticks(history("hr:u=1,c=2,p=forward,m=GPT.blocks.0,x=1", None))
    assert ticks.label(0) == Label(
        tick=Tick(update=1, call=2),
        phase="forward",
        node="",
        gradient_of="",
        module="GPT.blocks.0,x=1",
    )
    assert ticks.label(1) is ticks.label(-1) is ticks.label(2) is None


@pytest.mark.parametrize(
    ("text", "node", "gradient_of", "module"),
    [
        (
            "hr:u=3,c=17,p=backward,n=AddmmBackward0,s=5,m=GPT.head",
            "AddmmBackward0",
            "",
            "GPT.head",
        ),
        ("hr:u=3,c=17,p=backward,n=AddmmBackward0", "AddmmBackward0", "", ""),
        ("hr:u=3,c=17,p=backward,n=AccumulateGrad,g=GPT.w", "AccumulateGrad", "GPT.w", ""),
    ],
)
def test_a_label_of_a_backward_tells_its_node(
    text: str, node: str, gradient_of: str, module: str
) -> None:
    label = parse_label(text)
    assert label is not None
    assert (label.phase, label.node, label.gradient_of, label.module) == (
        "backward",
        node,
        gradient_of,
        module,
    )


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
    assert read_ticks(history(label)).at(0) == START


def test_hidden_characters_do_not_come_out_of_a_label() -> None:
    label = parse_label("hr:u=1,c=1,p=forward,m=a\u202e\x1b[31mb\nc")
    assert label is not None
    assert label.module == "a[31mbc"


def test_entries_without_the_field_have_the_first_tick() -> None:
    entries = [{"action": "user_defined", "size": 0}]
    read = parse_snapshot({"segments": [], "device_traces": [entries]})
    assert read_ticks(read.history_of(0)).at(0) == START
