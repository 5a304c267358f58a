"""Every check of the programs on the virtual GPU, each as a test of its own."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
CAPTURES = Path(__file__).resolve().parents[2] / "recordings" / "captures"
SOURCES = {
    "virtual_battery.py": ("virtual_layers.py", "virtual_tensors.py"),
    "virtual_start.py": ("virtual_start.py",),
    "virtual_memory.py": ("virtual_memory.py",),
    "virtual_cap.py": ("virtual_cap.py",),
    "virtual_stacks.py": ("virtual_stacks.py",),
}
ARGUMENTS = {"virtual_memory.py": (str(CAPTURES / "full.pickle"),)}
OPTIONS = {"virtual_cap.py": ("--capacity", str(600 << 20))}
KNOWN_FAILURES = {
    "sparse": "sparse CUDA tensors have a dispatch key of their own, which is not simulated",
    "sparse_embedding": "sparse CUDA tensors have a dispatch key of their own",
}


def _checks(source: str) -> list[str]:
    """Names of the functions that carry `@check`."""
    tree = ast.parse((PROGRAMS / source).read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id == "check" for d in node.decorator_list)
    ]


def _cases() -> list[object]:
    cases: list[object] = []
    for program, sources in SOURCES.items():
        for name in [name for source in sources for name in _checks(source)]:
            reason = KNOWN_FAILURES.get(name)
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            cases.append(pytest.param(program, name, id=f"{program[8:-3]}-{name}", marks=marks))
    return cases


Finish = Callable[[str], Any]


@pytest.fixture(scope="session")
def finish(run_virtual: Callable[..., Any]) -> Finish:
    """Runs each program once, however many tests ask."""
    finished: dict[str, Any] = {}

    def of(program: str) -> Any:
        if program not in finished:
            options = OPTIONS.get(program, ())
            finished[program] = run_virtual(program, *ARGUMENTS.get(program, ()), options=options)
        assert finished[program].code == 0, finished[program].stderr[-3000:]
        return finished[program]

    return of


@pytest.mark.torch
@pytest.mark.parametrize(("program", "name"), _cases())
def test_check(program: str, name: str, finish: Finish) -> None:
    outcome = finish(program).checks
    assert name in outcome, "the check did not run"
    assert outcome[name] is None


@pytest.mark.torch
def test_every_check_is_collected(finish: Finish) -> None:
    for program, sources in SOURCES.items():
        assert list(finish(program).checks) == [name for s in sources for name in _checks(s)]


@pytest.mark.torch
def test_the_report_says_what_was_not_modelled(finish: Finish) -> None:
    coverage = finish("virtual_battery.py").known["coverage"]
    assert set(coverage) == {
        "card",
        "operations",
        "forward_operations",
        "backward_operations",
        "unsupported",
        "assumed_values",
        "upper_bound_shapes",
        "not_modelled",
    }
    assert coverage["card"] == "h200" and coverage["operations"] > 1000
    assert coverage["assumed_values"] > 0 and coverage["upper_bound_shapes"] > 0
    said = " ".join(coverage["not_modelled"])
    for part in ("cuDNN", "torch.compile", "second CUDA stream", "Collectives"):
        assert part in said
    assert "no meta kernel" in coverage["unsupported"]["aten.bincount.default"]
    counted = sum(sum(coverage[f"{way}_operations"].values()) for way in ("forward", "backward"))
    assert 0.9 * coverage["operations"] < counted <= coverage["operations"]
    assert (
        coverage["backward_operations"]["mm"] > 0 and coverage["forward_operations"]["to host"] > 0
    )
