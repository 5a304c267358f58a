import io
from dataclasses import replace

import pytest
from rich.console import Console

from headroom.evidence.analysis_model import Analysis, Difference, LineChange
from headroom.evidence.model import Growth, GrowthId, Holder
from headroom.report.analysis import print_analysis
from tests.headroom.report.page.samples import (
    EVIL,
    NAMES,
    candidate,
    capture,
    cause,
    hostile,
    with_device,
)


def printed(analysis: Analysis, *causes: object, width: int = 100, **more: object) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_analysis(console, analysis, *causes, **{"title": "some.pickle", **more})  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_every_capture_fits_on_one_screen(name: str) -> None:
    of = cause()
    text = printed(
        capture(name), [of], candidates=[candidate(of)], next_commands=["headroom fix train.py"]
    )
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    for heading in ("What fills the peak", "Why it is there", "What to change (unverified)"):
        assert heading in lines
    assert "capture.py:" in text


def test_the_first_lines_say_what_was_refused_and_what_fills_memory() -> None:
    lines = printed(capture("oom_observer")).splitlines()
    assert lines[0] == "some.pickle: out of memory: 32.00 MiB refused, peak 546.18 MiB"
    assert "needs at least 578.18 MiB" in lines[1]
    row = lines[lines.index("What fills the peak") + 1].split("  ")
    assert [part.strip() for part in row if part][:4] == [
        "344.75 MiB", "63 %", "capture.py:13 forward", "activation (inferred), forward to backward",
    ]  # fmt: skip


def test_growth_and_holders_are_reasons() -> None:
    full = capture("full")
    holder = Holder(kind="variable", name="losses", file="/a/train.py", line=9, function="main")
    blocks = tuple(replace(block, holder=holder) for block in full.main.ledger.blocks)
    growth = Growth(
        id=GrowthId("G01"), stack=full.main.ledger.stacks[0].id, kind="update", ticks=4,
        bytes_per_tick=2**24, allocated_bytes=2**26,
    )  # fmt: skip
    text = printed(with_device(full, blocks=blocks, growth=(growth,)))
    flat = " ".join(text.split())
    assert "capture.py:13 forward piles up 16.00 MiB each update: 64.00 MiB from 4 updates" in flat
    assert "The variable losses in main (/a/train.py:9) keeps 589.78 MiB alive." in flat
    rested = replace(growth, leak=False)
    assert "piles up" not in printed(with_device(full, growth=(rested,)))


def test_causes_are_unverified_and_come_with_what_to_run() -> None:
    of = cause()
    text = printed(
        capture("full"), [of, of, of, of], candidates=[candidate(of)],
        next_commands=["headroom fix train.py", "headroom analyse some.pickle --html page.html"],
    )  # fmt: skip
    assert "What to change (unverified)" in text
    assert "1. …/job/train.py:41: evaluation with graph (100.00 MiB, 17 %)" in text
    assert "Draft: Evaluate without a graph" in text
    assert "  and 1 more\n" in text
    assert "next: headroom analyse some.pickle --html page.html" in text
    assert "No known cause was recognised" in printed(capture("full"))


def test_what_the_file_does_not_tell_is_said() -> None:
    flat = " ".join(printed(capture("late_start")).split())
    assert "does not reach back to the first allocation" in flat
    assert "125.21 MiB has no owner: allocated before the recording began" in flat
    rows = [line.split() for line in printed(capture("late_start")).splitlines()]
    assert ["125.21", "MiB", "21", "%", "without", "an", "owner", "before", "recording"] in rows


def test_fragmentation_is_told_only_where_it_matters() -> None:
    assert "Fragmentation" in printed(capture("oom_observer"))
    assert "Fragmentation" in printed(capture("fragment"))
    assert "Fragmentation" not in printed(capture("eval_leak"))


def test_other_devices_and_differences_are_named() -> None:
    full = capture("full")
    small = with_device(full, device=1, peak=replace(full.main.ledger.peak, allocated_bytes=2**20))
    text = printed(replace(full, devices=(small.devices[0], full.main)))
    assert "some.pickle: peak 589.78 MiB on device 0" in text
    assert "device 1 peaks at 1.00 MiB" in text
    change = LineChange(
        file="/a/train.py",
        name="f",
        before_line=3,
        after_line=9,
        before_bytes=2**30,
        after_bytes=2**20,
    )
    difference = Difference(before_bytes=2**31, after_bytes=2**20, changes=(change,))
    text = printed(full, difference=difference)
    assert "the peak went from 2.00 GiB to 1.00 MiB." in " ".join(text.split())
    assert "train.py:9: -1023.00 MiB, now 1.00 MiB." in text


def test_hostile_text_does_not_steer_the_terminal() -> None:
    of = cause(file=f"/srv/{EVIL}.py", text=EVIL + "[bold red]x[/]")
    text = printed(hostile(), [of], candidates=[candidate(of)], title=EVIL, next_commands=[EVIL])
    assert not set("\x1b\u202e\u2028") & set(text)
    assert "[bold red]x[/]" in " ".join(text.split())
