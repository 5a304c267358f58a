"""`headroom analyze` and `headroom scrub`, through the command line, on real captures."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.headroom.cli.test_bad_input import check

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 1.50 GiB is free. Including non-PyTorch memory, this process has 77.65 GiB memory in use. Of the "
    "allocated memory 70.25 GiB is allocated by PyTorch, and 6.75 GiB is reserved by PyTorch but unallocated."
)


def analysed(headroom, *arguments, **options):
    done = headroom("analyze", "--json", *arguments, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["full", "late_start", "expandable", "streams", "cudagraph"])
def test_json_has_torchs_own_figures_under_stable_names(headroom, captures, capture_truth, name):
    truth = capture_truth(name)
    (device,) = analysed(headroom, captures / f"{name}.pickle")["devices"]
    assert device["peak"] == {
        "requested_bytes": truth["requested_peak"],
        "rounded_bytes": truth["max_memory_allocated"],
        "reserved_bytes": truth["max_memory_reserved"],
    }
    assert device["live"] == {
        "requested_bytes": truth["requested"],
        "rounded_bytes": truth["memory_allocated"],
        "reserved_bytes": truth["memory_reserved"],
    }
    assert device["unattributed_bytes"] == sum(device["unattributed"].values())


def test_causes_have_stable_names_and_are_unverified(headroom, captures):
    causes = analysed(headroom, captures / "eval_leak.pickle")["causes"]
    assert causes
    for cause in causes:
        assert {"kind", "bytes", "file", "line"} <= set(cause)
        assert cause["verified"] is False
    assert causes[0]["file"].endswith("capture.py")
    assert causes[0]["bytes"] > 2**30


def test_the_summary_says_what_fills_the_peak_and_what_is_next(headroom, captures):
    done = headroom("analyze", captures / "oom_observer.pickle")
    assert done.returncode == 0, done.stderr
    for words in ("32.00 MiB refused", "546.18 MiB", "capture.py:13", "fragmentation", "next: "):
        assert words in done.stdout
    assert len(done.stdout.splitlines()) <= 60


def test_the_page_is_written_once_and_not_over_another(headroom, captures, project):
    page = project / "page.html"
    done = headroom("analyze", captures / "fragment.pickle", "--html", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert len(text) < 2 * 10**6
    check(
        headroom("analyze", captures / "fragment.pickle", "--html", page),
        2,
        "exists already",
        "--force",
    )
    assert (
        headroom("analyze", captures / "fragment.pickle", "--html", page, "--force").returncode == 0
    )
    check(
        headroom("analyze", "--sample", "--html", project / "no" / "x.html"),
        2,
        "not a folder",
        "mkdir -p",
    )


def test_a_first_visitor_sees_a_real_result(headroom):
    done = headroom("analyze", "--sample")
    assert done.returncode == 0, done.stderr
    assert "evaluation_graph.py" in done.stdout
    assert "without gradients" in done.stdout
    found = analysed(headroom, "--sample")
    assert found["causes"][0]["kind"] == "evaluation_with_graph"
    assert "+" in found["causes"][0]["patch"]


def test_standard_input_takes_a_snapshot_or_a_message(headroom, captures):
    data = (captures / "fragment.pickle").read_bytes()
    for given in (data, gzip.compress(data)):
        found = analysed(headroom, "-", stdin=given)
        assert found["devices"][0]["peak"]["rounded_bytes"] == 271_581_184
    found = analysed(headroom, "-", stdin=f"epoch 3\n{OOM}\n".encode())
    assert found["message"]["demand_bytes"] == int(72.25 * 2**30)
    done = headroom("analyze", "-", stdin=OOM.encode())
    assert "at least 72.25 GiB" in done.stdout
    check(headroom("analyze", "-", stdin=b"Killed"), 2, "neither a snapshot nor")
    check(headroom("analyze", "-", stdin=b""), 2, "Nothing came")


def test_a_folder_of_ranks_names_the_odd_one_out(headroom, captures, project):
    for rank in (0, 1, 3):
        shutil.copy(captures / "full.pickle", project / f"rank{rank}.pickle")
    shutil.copy(captures / "eval_leak.pickle", project / "rank2.pickle")
    (project / "rank2.pickle").write_bytes((captures / "eval_leak.pickle").read_bytes())
    found = analysed(headroom, project)
    assert found["odd_ranks"] == [2]
    assert found["analysed_rank"] == 2
    assert [row["rank"] for row in found["ranks"]] == [0, 1, 2, 3]
    done = headroom("analyze", project)
    assert "Odd one out: rank 2 (rank2.pickle)." in done.stdout


def test_two_snapshots_are_compared_line_by_line(headroom, captures):
    found = analysed(headroom, captures / "full.pickle", "--against", captures / "eval_leak.pickle")
    difference = found["difference"]
    assert difference["saved_bytes"] == difference["before_bytes"] - difference["after_bytes"] > 0
    assert (
        sum(change["saved_bytes"] for change in difference["changes"]) == difference["saved_bytes"]
    )
    assert difference["headline"].startswith("1.53 GiB saved, ")
    assert "capture.py:13" in difference["headline"]
    done = headroom("analyze", captures / "full.pickle", "--against", captures / "eval_leak.pickle")
    assert difference["headline"] in done.stdout


def test_bad_input_ends_in_a_sentence(headroom, project, captures):
    check(headroom("analyze"), 2, "no snapshot is named", "--sample")
    check(headroom("analyze", "none.pickle"), 2, "no file here", "--sample")
    check(headroom("analyze", "x", "--sample"), 2, "takes no snapshot")
    check(
        headroom("analyze", captures / "full.pickle", "--source", project / "no"), 2, "not a folder"
    )
    (project / "empty.pickle").touch()
    (project / "model.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    check(headroom("analyze", "empty.pickle"), 2, "empty", "headroom run --pass trace")
    check(headroom("analyze", "model.pt"), 2, "torch.save")
    check(headroom("analyze", captures / "full.pickle", "--device", "7"), 2, "device 7")


def test_a_scrubbed_copy_gives_the_same_peak(headroom, captures, project):
    shutil.copy(captures / "full.pickle", project / "full.pickle")
    done = headroom("scrub", "full.pickle")
    assert done.returncode == 0, done.stderr
    shared = project / "full.scrubbed.pickle.gz"
    assert shared.stat().st_size < 40_000
    before, after = (analysed(headroom, path)["devices"][0] for path in ("full.pickle", shared))
    assert before["peak"] == after["peak"]
    assert "capture.py" not in json.dumps(after)
    check(headroom("scrub", "full.pickle"), 2, "exists already", "--force")
    check(headroom("scrub", Path("none.pickle")), 2, "is no file")


def test_lines_are_followed_through_a_patch(headroom, captures, project):
    diff = "--- a/capture.py\n+++ b/capture.py\n@@ -12,2 +12,3 @@\n def forward\n+    # a line more\n     x\n"
    (project / "fix.diff").write_text(diff)
    snapshot = captures / "full.pickle"
    plain = analysed(headroom, snapshot, "--against", snapshot)["difference"]
    assert plain["changes"] == []
    moved = analysed(headroom, snapshot, "--against", snapshot, "--patch", "fix.diff")["difference"]
    lines = {(one["before_line"], one["after_line"]) for one in moved["changes"]}
    # What stood on line 13 would stand on 14 now; the other snapshot still has it on 13.
    assert (None, 13) in lines or (13, 14) in lines
    check(headroom("analyze", snapshot, "--patch", "fix.diff"), 2, "goes with --against")


def test_a_bad_file_does_not_stop_a_folder_of_ranks(headroom, captures, project):
    for rank in (0, 1):
        shutil.copy(captures / "fragment.pickle", project / f"rank{rank}.pickle")
    (project / "rank2.pickle").write_bytes(b"junk")
    done = headroom("analyze", project)
    assert done.returncode == 0, done.stderr
    assert "rank 2 (rank2.pickle) is left out" in done.stderr
