"""What a page is made of, without the page."""

from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from headroom.evidence.analysis_model import Layer, Timeline
from headroom.evidence.model import Frame, StackId, StackUse
from headroom.records.patch import Edit, Patch
from headroom.report.page.drafts import diff_lines
from headroom.report.page.limits import LEVELS, Cutter
from headroom.report.page.names import Names
from headroom.report.page.places import fills, never_freed, percent, places
from headroom.report.page.reading import fragmentation_text, refused_with_room, silences
from headroom.report.page.sheets import sheets
from headroom.report.page.timeline import chosen_points, ordered_layers, timeline_data
from tests.headroom.report.page.samples import NAMES, capture, with_device

TORCH = "/opt/venv/lib/python3.12/site-packages/torch"


def use(*frames: Frame, user: int | None = 0) -> StackUse:
    return StackUse(
        id=StackId("S001"), frames=frames, user_frames=() if user is None else frames[user:],
        backward=False, allocated_bytes=1, requested_bytes=1, blocks=1,
    )  # fmt: skip


def frame(filename: str, line: int = 1, name: str = "forward") -> Frame:
    return Frame(filename=filename, line=line, name=name)


@pytest.mark.parametrize("name", NAMES)
def test_layers_of_the_script_add_up_to_what_is_allocated_at_every_point(name: str) -> None:
    device = capture(name).main
    for limits in LEVELS:
        layers = ordered_layers(device.timeline, limits.layers)
        assert len(layers) <= limits.layers
        cutter = Cutter(limits=limits)
        data = timeline_data(device, layers, ["k0"] * len(layers), {}, cutter)
        assert data is not None
        points = chosen_points(device.timeline, limits.points)
        expected = [device.timeline.allocated_bytes[point] for point in points]
        columns = [list(accumulate(layer["sizes"])) for layer in data["layers"]]
        assert [sum(sizes) for sizes in zip(*columns, strict=True)] == expected
        assert max(expected) == expected[data["peak"]] == device.ledger.peak.allocated_bytes
        assert list(accumulate(data["entries"])) == [device.timeline.entries[p] for p in points]


def test_fewer_points_keep_every_stretch_at_its_highest() -> None:
    sizes = tuple((index * 7919) % 1000 for index in range(1000))
    timeline = Timeline(
        entries=tuple(range(1000)), times_us=(), allocated_bytes=sizes, reserved_bytes=(),
        layers=(), updates=(), phases=(), peak_index=sizes.index(max(sizes)),
    )  # fmt: skip
    points = chosen_points(timeline, 100)
    assert len(points) <= 103
    assert {points[0], points[-1]} == {0, 999}
    for first in range(0, 1000, 10):
        assert max(sizes[first : first + 10]) in {
            sizes[point] for point in points if first <= point < first + 10
        }


def test_what_stays_lies_below_what_comes_and_goes() -> None:
    def layer(label: str, *sizes: int, stack: str | None = "S001") -> Layer:
        return Layer(
            label=label,
            stack=StackId(stack) if stack else None,
            category=None,
            allocated_bytes=sizes,
        )

    timeline = replace(
        capture("full").main.timeline,
        layers=(
            layer("saw", 0, 9, 0),
            layer("no stack", 5, 5, 5, stack=None),
            layer("steady", 3, 3, 3),
        ),
    )
    assert [one.label for one in ordered_layers(timeline, 9)] == ["steady", "saw", "no stack"]


def test_a_failure_is_at_its_entry() -> None:
    device = capture("oom_observer").main
    layers = ordered_layers(device.timeline, 24)
    data = timeline_data(device, layers, ["k0"] * len(layers), {}, Cutter(limits=LEVELS[0]))
    assert data is not None
    assert device.ledger.failure is not None
    entries = list(accumulate(data["entries"]))
    assert entries[data["failure"]["index"]] == device.ledger.failure.entry
    assert data["failure"]["request"] == 32 * 2**20


def test_names_are_relative_to_what_the_files_share() -> None:
    ledger = capture("full").main.ledger
    uses = (use(frame("/srv/job/train.py", 41, "step")), use(frame("/srv/job/model/block.py", 7)))
    names = Names([replace(ledger, stacks=uses)])
    assert names.stack(uses[0]).text == "train.py:41 step"
    assert names.stack(uses[1]).where == "model/block.py:7"
    assert names.path(f"{TORCH}/nn/modules/linear.py") == "torch/nn/modules/linear.py"
    assert names.path("/a/b/c/d.py") == "…/c/d.py"


def test_a_stack_says_what_its_line_called() -> None:
    inner = frame(f"{TORCH}/nn/functional.py", 2935, "layer_norm")
    module = frame(f"{TORCH}/nn/modules/normalization.py", 229)
    wrapper = frame(f"{TORCH}/nn/modules/module.py", 1790, "_call_impl")
    mine = frame("/srv/train.py", 41, "step")
    names = Names([])
    assert names.stack(use(inner, module, wrapper, mine, user=3)).label.endswith(
        "step · normalization.forward"
    )
    library = names.stack(use(inner, module, user=None))
    assert library.text == "torch/nn/functional.py:2935 layer_norm (library code)"
    assert names.stack(use(user=None)).where == "no named frame"


def test_places_add_up_to_what_has_an_owner() -> None:
    ledger = capture("full").main.ledger
    found = places(ledger, Names([ledger]))
    owned = sum(use.allocated_bytes for use in ledger.stacks)
    assert sum(place.allocated_bytes for place in found) == owned
    assert found[0].where == "capture.py:13"
    assert found[0].blocks == sum(u.blocks for u in ledger.stacks if u.site and u.site.line == 13)


def test_the_headline_names_lines_or_says_that_there_are_many() -> None:
    ledger = capture("late_start").main.ledger
    told = fills(ledger, Names([ledger]))
    assert told == (
        "capture.py:13 holds 192.38 MiB (33 %); capture.py:12 holds 64.12 MiB (11 %); 325.22 MiB (55 %) has no owner."
    )
    base = ledger.stacks[0]
    many = tuple(
        replace(base, id=StackId(f"S{n}"), user_frames=(frame("/a.py", n),), allocated_bytes=2**20)
        for n in range(1, 101)
    )
    blocks = tuple(replace(ledger.blocks[0], stack=one.id, allocated_bytes=2**20) for one in many)
    spread = replace(
        ledger, stacks=many, blocks=blocks, unattributed={},
        peak=replace(ledger.peak, allocated_bytes=100 * 2**20),
    )  # fmt: skip
    assert fills(spread, Names([spread])) == "100 lines share it, none with more than 1.00 MiB."


def test_a_line_that_only_adds_is_named_unless_it_is_meant_to_stay() -> None:
    leak, full = capture("eval_leak").main, capture("full").main
    assert never_freed(leak, Names([leak.ledger])).startswith(
        "None of the 216 blocks of capture.py:13"
    )
    assert never_freed(full, Names([full.ledger])) == ""


def test_a_refusal_with_room_points_to_a_limit() -> None:
    ledger = capture("oom_observer").main.ledger
    assert ledger.failure is not None
    assert "138.55 GiB free when 32.00 MiB was refused" in refused_with_room(ledger)
    full = replace(ledger, failure=replace(ledger.failure, device_free_bytes=20 * 2**20))
    assert refused_with_room(full) == ""


def test_free_memory_that_was_of_no_use_is_told() -> None:
    told = fragmentation_text(capture("oom_observer").main)
    assert "53.82 MiB was free inside segments and none of it usable" in told
    assert "Reserved memory peaked at 366.00 MiB" in fragmentation_text(capture("fragment").main)


@pytest.mark.parametrize("name", NAMES)
def test_sheets_of_every_capture_close(name: str, capture_truth: Any) -> None:
    device = capture(name).main
    for _, sheet in sheets(device):
        assert sheet.requested_bytes + sheet.rounding_bytes == sheet.allocated_bytes
        parts = sheet.allocated_bytes + sheet.pending_bytes + sheet.cached_bytes
        assert parts + sheet.private_cached_bytes == sheet.reserved_bytes
        assert min(sheet.cached_bytes, sheet.private_cached_bytes, sheet.rounding_bytes) >= 0
    last = sheets(device)[-1][1]
    truth = capture_truth(name)
    # That one was dumped at the failure, and its counters read after it.
    if last.entry != device.ledger.peak.entry and name != "oom_observer":
        assert last.allocated_bytes == truth["memory_allocated"]
        assert last.reserved_bytes == truth["memory_reserved"]


def test_a_draft_is_a_diff() -> None:
    edit = Edit(
        path="/srv/job/train.py", sha256="0" * 64, start=40, end=41,
        old_lines=("for x in y:", "    f(x)"), new_lines=("for x in y:", "    g(x)", "    f(x)"),
    )  # fmt: skip
    lines = diff_lines(Patch(title="t", reason="r", edits=(edit,)), Names([]))
    assert [(one.kind, one.text) for one in lines] == [
        ("head", "…/job/train.py"),
        ("head", "@@ -40,2 +40,3 @@"),
        ("same", " for x in y:"),
        ("add", "+    g(x)"),
        ("same", "     f(x)"),
    ]


def test_silences_of_a_ring_and_of_a_whole_history() -> None:
    assert any("does not reach back" in one for one in silences(capture("ring").main))
    assert not any("does not reach back" in one for one in silences(capture("full").main))
    doubtful = with_device(capture("full"), contradictions=3, uncertain_bytes=2**20)
    told = " ".join(silences(doubtful.main))
    assert "contradicts itself in 3 places" in told
    assert "up to 1.00 MiB higher" in told


def test_percent() -> None:
    assert [percent(*pair) for pair in ((0, 9), (1, 1000), (1, 3), (5, 0))] == [
        "0 %",
        "<1 %",
        "33 %",
        "0 %",
    ]


def test_stacks_of_cpp_frames_are_named_by_node_and_operator() -> None:
    ledger = capture("all_stacks").main.ledger
    names = Names([ledger])
    told = [names.stack(use).label for use in ledger.stacks]
    assert "capture.py:13 forward · linear.forward" in told
    assert "LogSoftmaxBackward0 (backward)" in told
    assert not any(".cpp" in one or "::" in one for one in told[:12])
