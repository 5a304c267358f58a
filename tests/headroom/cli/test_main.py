"""What the command does around its commands: parsing of `-m`, signals, full disks."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headroom.cli.main import application, machine_trouble, options_of, stop_at_module


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("run -m pkg.train --seed 5 --timeout 30", "run -m pkg.train -- --seed 5 --timeout 30"),
        ("run --seed 1 -m pkg --help", "run --seed 1 -m pkg -- --help"),
        ("fix --module pkg --lr 1", "fix --module pkg -- --lr 1"),
        ("fix --module=pkg --lr 1", "fix --module=pkg -- --lr 1"),
        ("run --allow-network -m pkg a", "run --allow-network -m pkg -- a"),
        ("run --seed=3 --env -m train.py -m x", "run --seed=3 --env -m train.py -m x"),
        ("run train.py -m x", "run train.py -m x"),
        ("run --python p train.py -m x", "run --python p train.py -m x"),
        ("run -- -m x", "run -- -m x"),
        ("show last", "show last"),
        ("run -m", "run -m --"),
    ],
)
def test_what_follows_a_module_is_the_programs(typed: str, parsed: str) -> None:
    words = typed.split()
    assert stop_at_module(words, options_of(words[0], application(words[0]))) == parsed.split()


def test_full_and_read_only_disks_are_no_bugs() -> None:
    said = machine_trouble(OSError(errno.ENOSPC, "No space left", "/store/x"))
    assert said is not None and said.exit_code == 3
    assert said.message == "No space left on device at /store/x"
    assert machine_trouble(OSError(errno.EINVAL, "odd")) is None
    assert machine_trouble(ValueError("odd")) is None


def test_an_unknown_command_points_at_the_help(headroom) -> None:
    done = headroom("nosuch")
    assert done.returncode == 2
    assert "try: headroom --help" in done.stderr


def test_a_working_directory_that_is_gone(headroom, project: Path) -> None:
    inner = project / "inner"
    inner.mkdir()
    code = f"import os, subprocess, sys; os.rmdir({str(inner)!r}); "
    code += "sys.exit(subprocess.run([sys.executable, '-m', 'headroom', 'run', 'x.py']).returncode)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=inner, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )  # fmt: skip
    assert done.returncode == 125
    assert "the working directory is gone" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.torch
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_program_and_scratch(
    project: Path, root: Path, tmp_path: Path, torch_python: str, number
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (project / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(300)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "headroom", "run", "--device", "virtual", "--python", torch_python, "train.py"],
        cwd=project, env={**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert len(list(scratch.iterdir())) == 1
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted from the keyboard" in said
    assert "headroom/" not in said.replace("headroom-", "")
    for _ in range(50):
        if not list(scratch.iterdir()):
            return
        time.sleep(0.1)
    pytest.fail(f"left behind: {list(scratch.iterdir())}")


@pytest.mark.torch
def test_a_link_to_a_script_is_run_as_python_runs_it(
    headroom, project: Path, torch_python: str
) -> None:
    real = project / "real"
    real.mkdir()
    (real / "helper.py").write_text("NAME = 'helper'\n")
    (real / "train.py").write_text("import helper\nprint(__file__, helper.NAME)\n")
    (project / "link.py").symlink_to(real / "train.py")
    plain = subprocess.run(
        [torch_python, "link.py"], cwd=project, capture_output=True, text=True, check=True
    ).stdout
    done = headroom("run", "--device", "virtual", "--python", torch_python, "link.py")
    assert done.stdout == plain
    assert "link.py" in plain


@pytest.mark.torch
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can fill a file system of its own")
def test_a_full_store_gets_a_sentence_and_the_program_its_output(
    headroom, project: Path, torch_python: str
) -> None:
    store = project / "store"
    store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "none", store], check=True)
    try:
        (project / "train.py").write_text("for i in range(20000): print('line', i)\n")
        words = ("--device", "virtual", "--python", torch_python, "--store", str(store), "train.py")
        done = headroom("run", *words)
    finally:
        subprocess.run(["umount", store], check=True)
    assert done.stdout.count("\n") == 20000
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 125)


def test_a_command_imports_no_other(root: Path) -> None:
    code = (
        "import sys; from headroom.cli.main import application; application('pack'); "
        "heavy = ('headroom.agents.play', 'headroom.sandbox', 'torch'); "
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
