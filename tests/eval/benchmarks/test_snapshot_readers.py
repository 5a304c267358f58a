"""Readers that are missing are named, errors are honest, and the program prints its tables."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from headroom.eval.benchmarks import snapshot_readers
from headroom.eval.benchmarks.readers.accuracy import (
    accuracy_table,
    compare_peaks,
    failures,
    format_error,
    read_answer,
)
from headroom.eval.benchmarks.readers.cases import Case, captures
from headroom.eval.benchmarks.readers.measure import Limits, Outcome, Run, run_reader
from headroom.eval.benchmarks.readers.registry import SCRIPTS, Reader, find_readers
from headroom.eval.benchmarks.readers.speed import Speed, speed_table

LIMITS = Limits(memory_bytes=4 << 30, seconds=120)


def reader(name: str) -> Reader:
    return next(one for one in find_readers(None, None).readers if one.name == name)


@pytest.mark.parametrize("python", [None, Path(sys.executable), Path("/no/such/python")])
def test_what_is_not_installed_is_named(python: Path | None) -> None:
    registry = find_readers(python, python)
    assert registry.missing.keys() == {
        "torch.cuda._memory_viz",
        "stormlog",
        "pt-snap-cli",
        "ptmem",
    }
    assert {"pickle.load, gc off", "naive forward sum", "headroom (library)"} <= {
        one.name for one in registry.readers
    }


def test_zero_is_written_only_for_an_exact_peak() -> None:
    assert format_error(618_434_048, 618_434_048) == "0"
    assert format_error(618_434_047, 618_434_048) == "-1.6e-07"
    assert format_error(101, 100) == "+1.00"
    assert format_error(None, 100) == "fails"


def test_an_answer_is_of_the_device_that_was_asked_about() -> None:
    two = [{"device": 0, "stated": 5}, {"device": 1, "requested": 6, "allocated": 7}]
    told = "Loading ...\n" + json.dumps({"peaks": two})
    answers = [read_answer(told, device) for device in (0, 1, 2)]
    assert [(one.requested_bytes, one.allocated_bytes) for one in answers] == [
        (5, 5),
        (6, 7),
        (None, None),
    ]
    assert answers[2].error == "says nothing of device 2"
    summed = json.dumps({"peaks": [{"device": None, "stated": 9}]})
    assert read_answer(summed, 1).allocated_bytes == 9


def test_ours_is_exact_and_the_naive_sum_is_not() -> None:
    chosen = [case for case in captures() if case.name in ("full", "late_start", "fragment")]
    readers = [reader("headroom (library)"), reader("naive forward sum")]
    for row in compare_peaks(readers, chosen, LIMITS):
        ours, naive = (row.answers[one.name] for one in readers)
        truth = (row.case.requested_bytes, row.case.allocated_bytes)
        assert (ours.requested_bytes, ours.allocated_bytes) == truth
        assert naive.requested_bytes is not None
        assert (naive.requested_bytes == truth[0]) == (row.case.name != "late_start")


def test_both_peaks_are_read_from_our_json() -> None:
    script = runpy.run_path(str(SCRIPTS / "analyze_peak.py"), run_name="analyze_peak")
    told = {"requested_bytes": 5, "rounded_bytes": 512, "reserved_bytes": 2 << 20}
    document = {"devices": [{"device": 1, "peak": told}, {"device": 2, "peak": None}]}
    assert script["peaks_of"](document) == [{"device": 1, "requested": 5, "allocated": 512}]


def test_a_failure_is_told_with_its_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(b"\x80\x04N.")
    case = Case(name="broken", snapshot=broken, device=0, requested_bytes=1, allocated_bytes=1)
    rows = compare_peaks([reader("naive forward sum")], [case], LIMITS)
    assert accuracy_table(rows)[1] == [["broken", "1", "1", "fails"]]
    (told,) = failures(rows)
    assert told.startswith("naive forward sum on broken: failed: TypeError")


def test_a_reader_that_fails_is_not_a_zero(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(b"not a pickle")
    commands = reader("naive forward sum").commands
    assert commands is not None
    done = run_reader(commands, broken, LIMITS, own_home=True)
    assert (done.outcome, done.stdout) == ("failed", "")


def speed(*outcomes: Outcome) -> Speed:
    runs = tuple(
        Run(
            outcome=outcome,
            wall_seconds=float(number),
            cpu_seconds=1.0,
            peak_rss_bytes=number << 20,
            output_bytes=2048,
            stdout="",
        )
        for number, outcome in enumerate(outcomes, start=1)
    )
    return Speed(reader=reader("naive forward sum"), runs=runs)


def test_a_killed_reader_has_no_figures_in_the_table() -> None:
    columns, lines = speed_table(
        [speed("ok", "ok", "ok"), speed("ok", "killed at the memory limit")]
    )
    assert [len(line) for line in lines] == [len(columns)] * 2
    assert lines[0][2:] == ["2.00 s", "1.00 … 3.00", "1.00 s", "3 MiB", "2 KiB"]
    assert lines[1][2:] == ["**killed at the memory limit** after 2.0 s, 2 MiB"] + ["–"] * 4


@pytest.mark.torch
def test_memory_viz_runs_from_torchs_folder(torch_python: str, captures: Path) -> None:
    registry = find_readers(Path(torch_python), None)
    viz = [one for one in registry.readers if one.name.startswith("memory_viz")]
    assert len(viz) == 5
    for one in viz:
        assert one.commands is not None
        done = run_reader(one.commands, captures / "full.pickle", LIMITS, own_home=True)
        assert (done.outcome, done.error) == ("ok", "")
        assert done.output_bytes > 1000


def test_the_program_prints_a_table_and_keeps_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures.json"
    words = ["--torch", "/no/such/python", "--only", "speed", "--entries", "2000", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", ["snapshot_readers", *words, "--out", str(out)])
    snapshot_readers.main()
    printed = capsys.readouterr().out
    assert "| pickle.load, gc off |" in printed
    assert "- not measured: stormlog: --others was not given" in printed
    figures: dict[str, Any] = json.loads(out.read_text())
    readers = {one["reader"]: one for one in figures["speed"]["2000"]["readers"]}
    assert readers["headroom (library)"]["outcome"] == "ok"
    assert readers["headroom (library)"]["runs"][0]["peak_rss_bytes"] > 10 << 20
    assert figures["not_found"].keys() >= {"stormlog", "torch.cuda._memory_viz"}
    assert "accuracy" not in figures
