"""Ceilings that ruff does not hold: lines of a file and of a function."""

import ast
from pathlib import Path

FOLDERS = ("headroom", "evidence", "agents", "sandbox", "eval", "web", "tests")
FILE_LINES, FUNCTION_LINES = 400, 60
INPUTS = ("eval/scenarios", "eval/benchmarks/programs", "tests/programs")


def sources(root: Path) -> list[Path]:
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            linked = any(
                (root / parent).is_symlink()
                for parent in map(Path, Path(name).parents)
                if parent.name
            )
            if not linked and not name.startswith(INPUTS):
                found.append(path)
    return found


def test_no_file_and_no_function_is_too_long(root: Path) -> None:
    too_long = []
    for path in sources(root):
        text = path.read_text()
        # A test file may be a long table of cases.
        if text.count("\n") > FILE_LINES and not path.is_relative_to(root / "tests"):
            too_long.append(f"{path}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    too_long.append(f"{path}:{node.lineno} {node.name}: {lines} lines")
    assert too_long == []


def test_the_sources_are_found(root: Path) -> None:
    names = {path.relative_to(root).as_posix() for path in sources(root)}
    assert {
        "headroom/units.py",
        "evidence/account/replay.py",
        "sandbox/recorder/session.py",
    } <= names
    assert "headroom/evidence/account/replay.py" not in names
