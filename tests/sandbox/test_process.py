"""The process sandbox, for real: what it stops, what it keeps, and what every way to die leaves behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headroom.sandbox import process
from headroom.sandbox.process import Abilities, abilities

overlay_only = pytest.mark.skipif(
    not abilities().overlay, reason="the kernel gives no overlay here"
)
network_only = pytest.mark.skipif(
    not abilities().network, reason="the kernel gives no network namespace here"
)


def test_a_normal_end(record):
    done = record("import sys; print('out', sys.argv[1:]); print('err', file=sys.stderr)", "a", "b")
    assert done.record.outcome == "completed"
    assert done.record.exit_code == 0
    assert done.record.device is None
    assert done.record.peak_allocated_bytes is None
    assert done.stdout == "out ['a', 'b']\n"
    assert done.stderr == "err\n"
    assert (done.folder / "stdout.txt").read_text() == done.stdout


def test_sys_exit_and_exceptions_before_cuda_are_told_apart(record):
    left = record("import sys; sys.exit(3)").record
    assert (left.outcome, left.exit_code, left.exception.type) == ("failed", 3, "SystemExit")
    assert "sys.exit(3)" in left.reason
    fine = record("import sys; sys.exit(0)").record
    assert (fine.outcome, fine.exit_code) == ("completed", 0)
    raised = record("def f():\n    raise KeyError('x')\nf()").record
    assert (raised.outcome, raised.exit_code, raised.exception.type) == ("failed", 1, "KeyError")
    assert raised.exception.file.endswith("program.py")
    assert (raised.exception.line, raised.exception.function) == (2, "f")
    broken = record("def f(:\n").record
    assert broken.exception.type == "SyntaxError"
    assert broken.exception.line == 1


def test_sigkill_leaves_a_record(record):
    done = record(
        "import os, signal; print('here', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    ).record
    assert (done.outcome, done.signal, done.exit_code) == ("killed", "SIGKILL", None)
    assert done.reason == "killed by SIGKILL"


def test_os_exit_is_no_normal_end(record):
    done = record("import os; os._exit(0)").record
    assert done.outcome == "failed"
    assert "before its main module was done" in done.reason


def test_a_hang_ends_at_the_time_limit(record):
    done = record("import time\nwhile True: time.sleep(1)", timeout=1.0).record
    assert done.outcome == "timeout"
    assert done.isolation.time_limit_seconds == 1.0


def test_a_program_that_ignores_signals_still_ends(record):
    source = """
        import signal, time
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        while True: time.sleep(1)
    """
    assert record(source, timeout=1.0).record.outcome == "timeout"


def test_resident_memory_is_limited(record):
    done = record(
        "x = bytearray(400 * 2**20)\nimport time; time.sleep(60)", memory=200 * 2**20
    ).record
    assert done.outcome == "killed"
    assert "resident memory" in done.reason


@pytest.mark.parametrize("options", ["", ", start_new_session=True"])
def test_processes_left_behind_are_ended(record, options):
    source = f"""
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]{options})
        print(child.pid)
    """
    done = record(source)
    pid = int(done.stdout)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_bytes_that_are_no_text_lose_no_record(record, project: Path):
    odd = os.fsdecode(b"\xe9.txt")
    source = f"""
        import sys
        open({odd!r}, "w").write("x")
        raise ValueError({odd!r} + sys.argv[1])
    """
    done = record(source, odd)
    assert done.record.exception.type == "ValueError"
    again = type(done.record).from_json(done.record.to_json())
    assert again.outcome == "failed"
    assert len(again.written_files) == 1 if again.isolation.files == "overlay" else True


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can fill a file system of its own")
def test_a_full_disk_ends_the_recording_and_not_the_program(record, tmp_path: Path, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], check=True)
    try:
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(small))
        source = """
            from _headroom_recorder.lines import Lines
            import gc
            (lines,) = [o for o in gc.get_objects() if type(o).__name__ == "Lines"]
            for index in range(3000): lines.write("note", text="x" * 100)
            print("done")
            raise SystemExit(4)
        """
        done = record(source)
    finally:
        subprocess.run(["umount", small], check=True)
    assert done.stdout == "done\n" and done.stderr == ""
    assert done.record.exit_code == 4


@overlay_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount below the project")
def test_what_is_mounted_below_the_folder_is_seen_and_copied_on_write(record, project: Path):
    data = project / "my,data:set"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", data], check=True)
    try:
        (data / "set.txt").write_text("mounted")
        source = """
            from pathlib import Path
            path = Path("my,data:set/set.txt")
            print(path.read_text())
            path.write_text("changed")
            print(path.read_text())
        """
        done = record(source)
        kept = (data / "set.txt").read_text()
    finally:
        subprocess.run(["umount", data], check=True)
    assert done.stdout == "mounted\nchanged\n"
    assert kept == "mounted"
    assert done.record.written_files == (str(data / "set.txt"),)


@overlay_only
def test_writes_stay_in_the_sandbox_and_are_listed(record, project: Path):
    (project / "data.txt").write_text("mine")
    source = """
        from pathlib import Path
        Path("data.txt").write_text("theirs")
        Path("new").mkdir()
        Path("new/model.pt").write_text("x")
        print(Path("data.txt").read_text(), Path.cwd())
    """
    done = record(source)
    assert done.stdout == f"theirs {project}\n"
    assert (project / "data.txt").read_text() == "mine"
    assert not (project / "new").exists()
    assert set(done.record.written_files) == {
        str(project / "data.txt"),
        str(project / "new/model.pt"),
    }
    assert done.record.isolation.files == "overlay"


def test_changed_files_are_seen_by_one_run_only(record, project: Path):
    (project / "helper.py").write_text("VALUE = 1")
    source = "import helper; print(helper.VALUE)"
    assert record(source).stdout == "1\n"
    changed = record(source, changed_files={str(project / "helper.py"): b"VALUE = 22"})
    assert changed.stdout == "22\n"
    assert (project / "helper.py").read_text() == "VALUE = 1"
    assert record(source).stdout == "1\n"


@pytest.mark.parametrize("mounts", [True, False])
def test_without_overlays_a_copy_does_the_same(record, project: Path, monkeypatch, mounts: bool):
    real = abilities()
    if mounts and not real.mounts:
        pytest.skip("the kernel gives no mount namespace here")
    monkeypatch.setattr(
        process, "abilities", lambda: Abilities(overlay=False, mounts=mounts, network=False)
    )
    (project / "data.txt").write_text("mine")
    (project / "venv").mkdir()
    (project / "venv" / "tool.txt").write_text("tool")
    source = """
        from pathlib import Path
        Path("data.txt").write_text("theirs")
        print(Path("data.txt").read_text(), Path("venv/tool.txt").read_text())
        raise ValueError
    """
    done = record(source)
    assert done.stdout == "theirs tool\n"
    assert (project / "data.txt").read_text() == "mine"
    assert done.record.isolation.files == "copy"
    assert done.record.isolation.network == "not isolated"
    # Records speak of the paths that the user knows, wherever the program really ran.
    assert done.record.exception.file == str(project / "program.py")
    assert list(done.record.sources) == [str(project / "program.py")]


def test_in_place_writes_into_the_users_folder(record, project: Path):
    done = record("open('left.txt', 'w').write('x')", in_place=True)
    assert (project / "left.txt").exists()
    assert done.record.isolation.files == "in place"


@network_only
def test_the_network_is_cut_but_loopback_works(record):
    source = """
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        print("loopback")
        try:
            socket.create_connection(("192.0.2.1", 80), timeout=2)
        except OSError as error:
            print(type(error).__name__, error.errno)
    """
    done = record(source)
    assert done.stdout.splitlines()[0] == "loopback"
    assert "101" in done.stdout  # ENETUNREACH: there is no route at all
    assert done.record.isolation.network == "none"
    assert record("pass", network=True).record.isolation.network == "allowed"


def test_secrets_do_not_reach_the_program(record):
    environment = {**os.environ, "HF_TOKEN": "hf_secret", "MY_OWN": "1"}
    source = "import os; print(os.environ.get('HF_TOKEN'), os.environ['MY_OWN'])"
    done = record(source, environment=environment)
    assert done.stdout == "None 1\n"
    assert "HF_TOKEN" in done.record.isolation.removed_environment
    kept = record(source, environment=environment, keep_environment=("HF_TOKEN",))
    assert kept.stdout == "hf_secret 1\n"
    for path in done.folder.iterdir():
        assert "hf_secret" not in path.read_text(errors="replace")


def test_nothing_is_left_in_the_temporary_folder(record, tmp_path: Path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(scratch))
    # The scratch folder must be outside the project for this to be used at all.
    record("open('x', 'w').write('x')")
    assert list(scratch.iterdir()) == []


def test_the_program_dies_with_headroom(tmp_path: Path, root: Path):
    """SIGKILL to Headroom itself: the kernel ends the program too."""
    (tmp_path / "program.py").write_text(
        "import os, time\nopen(os.environ['OUT'], 'w').write(str(os.getpid()))\ntime.sleep(300)"
    )
    pid_file = tmp_path.parent / f"{tmp_path.name}.pid"
    environment = {**os.environ, "OUT": str(pid_file), "PYTHONPATH": str(root)}
    driver = f"""
import sys
from pathlib import Path
from headroom.records.run import Program
from headroom.sandbox.process import ProcessSandbox
from headroom.sandbox.protocol import RunRequest, Terminal
folder = Path({str(tmp_path)!r}) / "run"
folder.mkdir()
program = Program(kind="script", target={str(tmp_path / "program.py")!r}, typed="program.py", cwd={str(tmp_path)!r},
                  roots=({str(tmp_path)!r},), python=sys.executable)
request = RunRequest(run_id="x", folder=folder, program=program, purpose="measure", device="cuda")
ProcessSandbox().run(request, Terminal())
"""
    headroom = subprocess.Popen([sys.executable, "-c", driver], env=environment)
    try:
        for _ in range(300):
            if pid_file.exists() and pid_file.read_text():
                break
            time.sleep(0.1)
        pid = int(pid_file.read_text())
        assert psutil.pid_exists(pid)
        headroom.send_signal(signal.SIGKILL)
        headroom.wait()
        for _ in range(100):
            if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
            time.sleep(0.1)
        pytest.fail("the program outlived Headroom")
    finally:
        headroom.kill()
        headroom.wait()
        pid_file.unlink(missing_ok=True)


def test_output_is_kept_up_to_a_limit_and_shown_whole(record, monkeypatch):
    monkeypatch.setattr("headroom.sandbox.supervisor.OUTPUT_LIMIT_BYTES", 1000)
    done = record("print('x' * 5000)")
    assert len(done.stdout) == 5001
    kept = (done.folder / "stdout.txt").read_text()
    assert kept.startswith("x" * 1000 + "\n[headroom kept")
