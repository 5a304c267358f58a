"""Output, traceback and exit code are what they would have been without Headroom."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAMS = {
    "plain": "print(__name__, __file__)",
    "argv": "import sys; print(sys.argv, sys.path[0])",
    "exception": "def f(x):\n    return 1 / x\nf(0)",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('later') from error",
    "context": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}['x']",
    "group": "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])",
    "syntax": "x = (1,\ny = 2\n",
    "exit_text": "import sys; sys.exit('goodbye')",
    "exit_code": "import sys; sys.exit(7)",
    "exit_none": "import sys; sys.exit()",
    "atexit": "import atexit; atexit.register(print, 'last'); print('first'); 1 / 0",
    "hook": "import sys; sys.excepthook = lambda *a: print('mine', a[0].__name__); 1 / 0",
    "printed": "import traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()",
    "thread": "import threading, time\nthreading.Timer(0.3, print, ['late']).start()\nprint('main')",
    "sibling": "import helper; print(helper.__file__)",
    "pickled": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__module__)",
    "main_module": "import sys; print(sys.modules['__main__'].__file__, sys.modules['__main__'].__spec__)",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(1))",
    "spawn": """
        import multiprocessing
        def work(x): return x + 1
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool: print(pool.map(work, [1, 2]))
    """,
    "excepthook_raises": "import sys\ndef hook(*a): raise ValueError('hook')\nsys.excepthook = hook\n1 / 0",
    "excepthook_gone": "import sys\ndel sys.excepthook\n1 / 0",
    "bad_str": "class Bad(Exception):\n    def __str__(self): raise ValueError\nraise Bad",
    "exit_bad": "import sys; sys.exit([1, 2])",
    "closes_descriptors": """
        import os
        os.closerange(3, 4096)
        with open("x", "w") as file: print(file.fileno())
        print(repr(open("x").read()))
    """,
    "recursion": "def f(): f()\ntry:\n    f()\nexcept RecursionError: print('deep')",
    "interrupt": "raise KeyboardInterrupt",
    "future": "from __future__ import annotations\nx: int = 1\nprint(__annotations__)",
    "unicode": "print('größer — 猫')",
}


def plain(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_script(record, project: Path, name: str) -> None:
    (project / "helper.py").write_text("")
    source = textwrap.dedent(PROGRAMS[name])
    (project / "program.py").write_text(source)
    expected = plain(project, "program.py", "--flag", "x y")
    got = record(source, "--flag", "x y", environment={})
    assert got.stdout == expected.stdout
    assert got.stderr == expected.stderr
    code = got.record.exit_code if got.record.signal is None else -2
    assert (code, got.record.signal) == (
        expected.returncode,
        "SIGINT" if expected.returncode == -2 else None,
    )


@pytest.mark.parametrize(
    "module", ["pkg.train", "pkg", "pkg.broken", "pkg.none", "none.at.all", "empty", "program"]
)
def test_module(record, project: Path, module: str) -> None:
    package = project / "pkg"
    package.mkdir()
    (project / "empty").mkdir()
    (project / "empty" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(
        "import sys\nfrom . import __name__ as n\nprint(n, __name__, __package__, __spec__.name, sys.argv)\n1 / 0"
    )
    (package / "broken.py").write_text("def f(:\n")
    (package / "__main__.py").write_text("print('package', __name__)")
    (project / "program.py").write_text("")
    expected = plain(project, "-m", module, "a")
    got = record("", "a", module=module, environment={})
    assert got.stdout == expected.stdout
    assert got.stderr == expected.stderr
    assert got.record.exit_code == expected.returncode
