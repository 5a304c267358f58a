"""Each bad input gets one sentence and the next command to type, the documented exit code, and no traceback."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest


def check(done, code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("headroom: ")
    assert lines[1].strip().startswith("try: ")
    for word in words:
        assert word in done.stderr, done.stderr


def interpreter(folder: Path, answer: str) -> str:
    """A file that answers as an interpreter would, with what is wrong with it."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def answer(**fields: object) -> str:
    plain = {
        "executable": "x",
        "python": "3.11.0",
        "machine": "x86_64",
        "system": "Linux",
        "torch": "2.13.0",
    }
    return json.dumps({**plain, **fields})


@pytest.mark.parametrize(("command", "code"), [("run", 125), ("fix", 2)])
class TestBothCommands:
    def test_no_program(self, headroom, command, code):
        check(headroom(command), code, "no program was named")

    def test_no_such_file(self, headroom, project, command, code):
        (project / "other.py").write_text("")
        check(
            headroom(command, "train.py"), code, "no file train.py", f"headroom {command} other.py"
        )

    def test_a_folder(self, headroom, project, command, code):
        (project / "src").mkdir()
        check(headroom(command, "src"), code, "is a folder")

    @pytest.mark.torch
    def test_not_python(self, headroom, project, torch_python, command, code):
        (project / "train.sh").write_text("if [ -f x ]; then echo hi; fi\n")
        check(headroom(command, "--python", torch_python, "train.sh"), code, "not Python", "line 1")
        (project / "binary").write_bytes(b"\x7fELF\0\0")
        check(headroom(command, "--python", torch_python, "binary"), code, "not Python")

    def test_launchers(self, headroom, project, command, code):
        done = headroom(command, "torchrun", "--nproc-per-node", "2", "train.py")
        check(done, code, "torchrun starts several processes", f"headroom {command} train.py")
        check(
            headroom(command, "-m", "torch.distributed.run", "train.py"), code, "several processes"
        )

    def test_the_interpreter_as_program(self, headroom, command, code):
        check(
            headroom(command, "python", "train.py"),
            code,
            "leave out the interpreter",
            f"headroom {command} train.py",
        )

    def test_no_such_option(self, headroom, command, code):
        check(headroom(command, "--no-such-option", "train.py"), code, "--no-such-option")

    def test_no_such_card(self, headroom, project, torch_python, command, code):
        (project / "train.py").write_text("")
        done = headroom(
            command, "--device", "virtual", "--gpu", "riva128", "--python", torch_python, "train.py"
        )
        check(done, code, "riva128", "h200")

    def test_no_size(self, headroom, project, command, code):
        check(headroom(command, "--capacity", "huge", "train.py"), code, "--capacity", "huge")
        check(headroom(command, "--capacity", "0GiB", "train.py"), code, "impossible")
        check(headroom(command, "--memory-limit", "huge", "train.py"), code, "--memory-limit")


@pytest.mark.parametrize(("command", "code"), [("run", 125), ("fix", 3)])
class TestInterpreters:
    @pytest.fixture(autouse=True)
    def _program(self, project):
        (project / "train.py").write_text("import torch\n")

    def test_without_torch(self, headroom, command, code):
        check(headroom(command, "--python", sys.executable, "train.py"), code, "has no torch")

    def test_torch_too_old(self, headroom, tmp_path, command, code):
        python = interpreter(tmp_path, answer(torch="1.13.1"))
        check(headroom(command, "--python", python, "train.py"), code, "torch 1.13.1", "2.4")

    def test_python_too_old(self, headroom, tmp_path, command, code):
        python = interpreter(tmp_path, answer(python="3.8.2"))
        check(headroom(command, "--python", python, "train.py"), code, "Python 3.8.2", "3.10")

    def test_torch_that_cannot_be_imported(self, headroom, tmp_path, command, code):
        python = interpreter(
            tmp_path, answer(devices={"error": "ImportError: libcudart.so", "cuda": []})
        )
        check(
            headroom(command, "--python", python, "train.py"),
            code,
            "cannot be imported",
            "libcudart",
        )

    def test_not_an_interpreter(self, headroom, command, code):
        check(headroom(command, "--python", "/bin/true", "train.py"), code, "/bin/true")

    def test_no_cuda_where_it_was_asked_for(self, headroom, tmp_path, command, code):
        python = interpreter(tmp_path, answer())
        done = headroom(command, "--device", "cuda", "--python", python, "train.py")
        check(done, code, "sees no CUDA device", "--device virtual")


@pytest.mark.parametrize("target", ["", "small", "0%", "100%", "-1GiB", "0"])
def test_what_is_no_target(headroom, target):
    check(headroom("fix", "--target", target, "train.py"), 2)


def test_nothing_can_be_verified_yet(headroom):
    check(headroom("fix", "--require", "verified", "train.py"), 3, "verified", "--require measured")


def test_no_such_interpreter(headroom, project):
    (project / "train.py").write_text("")
    check(headroom("fix", "--python", "/no/such/python", "train.py"), 2, "/no/such/python")


@pytest.mark.torch
def test_a_store_that_cannot_be_written(headroom, project, torch_python, tmp_path):
    (project / "train.py").write_text("import torch\n")
    (tmp_path / "file").write_text("")
    store = str(tmp_path / "file" / "store")
    done = headroom(
        "fix", "--device", "virtual", "--store", store, "--python", torch_python, "train.py"
    )
    check(done, 3, "cannot be written", "HEADROOM_STORE")


@pytest.mark.torch
@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(headroom, project, torch_python):
    (project / "train.py").write_text("import torch\n")
    project.chmod(0o500)
    check(
        headroom("fix", "--device", "virtual", "--python", torch_python, "train.py"),
        3,
        "cannot be written",
    )


def test_errors_are_json_where_json_was_asked_for(headroom):
    done = headroom("fix", "--json", "train.py")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["next_command"].startswith("headroom fix")
    assert done.stderr == ""


def test_ids_that_are_not_there(headroom):
    for command in (("show", "nothing"), ("apply", "nothing"), ("show",)):
        check(headroom(*command), 2, "no run or campaign", "headroom runs")
    check(headroom("runs"), 2, "holds no runs yet")


def test_help_needs_no_torch_and_names_the_exit_codes(headroom):
    done = headroom("fix", "--help")
    assert done.returncode == 0
    assert "Exit codes" in done.stdout
    assert headroom().stdout == headroom("--help").stdout
    assert headroom("--version").stdout.startswith("headroom 0.")
