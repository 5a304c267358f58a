"""Running a reader: what it used, what it wrote, and how it ends at a limit."""

import sys
import time
from pathlib import Path

import psutil
import pytest

from headroom.eval.benchmarks.readers.measure import Commands, Limits, Run, run_reader

MIB = 1 << 20
AMPLE = Limits(memory_bytes=4096 * MIB, seconds=120)
HOLD = "block = bytearray({} << 20); import time; time.sleep({})"


def python(*texts: str) -> Commands:
    return tuple((sys.executable, "-c", text) for text in texts)


def run(tmp_path: Path, *texts: str, limits: Limits = AMPLE) -> Run:
    snapshot = tmp_path / "any.pickle"
    snapshot.write_bytes(b"12345")
    return run_reader(lambda link, work: python(*texts), snapshot, limits, own_home=True)


def test_what_was_used_and_written_is_counted(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "open('a', 'w').write('x' * 1000)",
        "b = bytearray(150 << 20); print(len(open('snapshot.pickle').read()))",
    )
    assert (done.outcome, done.stdout, done.error) == ("ok", "5\n", "")
    assert 150 * MIB < done.peak_rss_bytes < 400 * MIB
    assert done.output_bytes == 1002  # the file and the line, not the snapshot
    assert done.cpu_seconds > 0 and done.wall_seconds > 0


def test_memory_is_that_of_the_whole_tree(tmp_path: Path) -> None:
    child = HOLD.format(120, 1)
    done = run(
        tmp_path,
        "import subprocess, sys; here = bytearray(120 << 20); "
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)",
    )
    assert done.outcome == "ok"
    assert done.peak_rss_bytes > 240 * MIB


def test_a_reader_past_the_memory_limit_is_killed_and_told_so(tmp_path: Path) -> None:
    limits = Limits(memory_bytes=100 * MIB, seconds=120)
    done = run(tmp_path, "print(1)", HOLD.format(200, 60), "print(3)", limits=limits)
    assert done.outcome == "killed at the memory limit"
    assert done.peak_rss_bytes > 100 * MIB
    assert done.stdout == ""


def test_a_reader_past_the_time_limit_is_killed_and_told_so(tmp_path: Path) -> None:
    limits = Limits(memory_bytes=4096 * MIB, seconds=1)
    started = time.monotonic()
    done = run(tmp_path, "import time; time.sleep(100)", limits=limits)
    assert done.outcome == "killed at the time limit"
    assert time.monotonic() - started < 60


def test_a_failure_ends_the_run_and_keeps_its_last_line(tmp_path: Path) -> None:
    done = run(tmp_path, "raise ValueError('no such key')", "open('later', 'w').write('x')")
    assert (done.outcome, done.error) == ("failed", "ValueError: no such key")
    assert done.output_bytes == 0


@pytest.mark.parametrize("own_home", [True, False])
def test_the_users_home_is_out_of_reach(tmp_path: Path, own_home: bool) -> None:
    snapshot = tmp_path / "any.pickle"
    snapshot.write_bytes(b"")
    text = "import pathlib; print(pathlib.Path.home())"
    done = run_reader(lambda link, work: python(text), snapshot, AMPLE, own_home=own_home)
    assert (done.stdout.strip() == str(Path.home())) != own_home


def test_what_a_reader_writes_beside_the_snapshot_stays_out_of_its_folder(tmp_path: Path) -> None:
    text = "open('.snapshot.pickle.cache', 'w').write('x')"
    assert run(tmp_path, text).output_bytes == 1
    assert [path.name for path in tmp_path.iterdir()] == ["any.pickle"]


def test_nothing_is_left_running(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import subprocess, sys; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)']).pid)",
    )
    left = int(done.stdout)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
