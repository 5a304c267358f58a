"""Positions in a program's text, and changes to it that keep its meaning."""

import ast
from pathlib import Path

import pytest

from headroom.agents import rewrite, syntax
from headroom.agents.calls import guard_paths as paths_of
from headroom.agents.calls import is_backward, is_guard, is_optimizer_step, moves_to_host
from headroom.agents.rewrite import decorate, patch_for, surround, torch_name, wrap
from headroom.agents.syntax import Loop, ParsedFile, parse_file, parse_source

PACKAGE = Path(syntax.__file__).resolve().parents[1]


def parsed(text: str) -> ParsedFile:
    found = parse_file("/app/a.py", text.encode())
    assert found is not None
    return found


SOURCE = """\
import torch
class Trainer:
    def fit(self, loader):
        for x in loader:
            with self.lock:
                loss = (self.model(x)
                        .mean())
        return [y for y in loader]

    async def later(self): pass
score = lambda x: x + 1
if score: a = 1; b = 2
"""


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        (1, "<module>", "Module"),
        (4, "fit", "fit"),
        (7, "fit", "fit"),
        (8, "<listcomp>", "fit"),
        (10, "later", "later"),
        (11, "<lambda>", "Lambda"),
        (11, "<module>", "Module"),
        (7, "<module>", "Module"),
    ],
)
def test_the_scope_that_runs_a_line(line: int, name: str, expected: str) -> None:
    scope = parsed(SOURCE).scope_at(line, name)
    assert getattr(scope, "name", type(scope).__name__) == expected


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        (1, ["Import"]),
        (4, ["For"]),
        (5, ["With"]),
        (6, ["Assign"]),
        (7, ["Assign"]),
        (12, ["Assign", "Assign"]),
        (99, []),
    ],
)
def test_the_innermost_statements_of_a_line(line: int, kinds: list[str]) -> None:
    assert [type(node).__name__ for node in parsed(SOURCE).statements_at(line)] == kinds


def test_loops_end_at_the_function() -> None:
    file = parsed(
        "for a in b:\n    def f():\n        while c:\n            for d in e:\n                g()\n"
    )
    (statement,) = file.statements_at(5)
    loops = file.loops_around(statement)
    assert [loop.lineno for loop in loops] == [4, 3]
    assert all(isinstance(loop, Loop) for loop in loops)


@pytest.mark.parametrize(
    "text", ["x = (", "x = '\udcff'\n", "print 'x'\n", "x = 1\0\n", "x = " + "-" * 300 + "1\n"]
)
def test_what_cannot_be_read_is_left_alone(text: str) -> None:
    assert parse_source("/app/a.py", text) is None


def test_other_files_are_no_programs() -> None:
    assert parse_source("/app/a.yaml", "x = 1") is None


def test_equal_files_are_parsed_once() -> None:
    assert parsed("x = 1\n") is parsed("x = 1\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\n", ("torch", 1)),
        ("import os, torch as t\n", ("t", 1)),
        ("import torch.nn.functional\n", ("torch", 1)),
        ("import torch.nn.functional as F\nfrom torch import nn\n", None),
        ("try:\n    import torch\nexcept ImportError:\n    pass\n", ("torch", 2)),
        ("def f():\n    import torch\n", None),
        ("import torchvision\n", None),
    ],
)
def test_the_name_of_torch(text: str, expected: tuple[str, int] | None) -> None:
    assert syntax.torch_import(ast.parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("x = 1\n", 1),
        ("# comment\nimport os\n", 2),
        ('"""Doc."""\nx = 1\n', 2),
        ('"""Doc."""\n', 2),
        ("from __future__ import annotations\n\nimport os\n", 3),
        ("from __future__ import annotations\n", 2),
        ("x = 1\nimport os\n", 2),
        ("@decorated\ndef f(): pass\n", 1),
    ],
)
def test_where_an_import_goes(text: str, line: int) -> None:
    assert syntax.import_line(ast.parse(text)) == line


@pytest.mark.parametrize(
    ("code", "backward", "step"),
    [
        ("loss.backward()", True, False),
        ("scaler.scale(loss).backward(retain_graph=True)", True, False),
        ("accelerator.backward(loss)", True, False),
        ("self.manual_backward(loss)", True, False),
        ("torch.autograd.grad(loss, x)", True, False),
        ("torch.autograd.backward(loss)", True, False),
        ("grad(loss, x)", True, False),
        ("x.grad.norm()", False, False),
        ("scaler.step(optimizer)", False, True),
        ("opt.step()", False, True),
        ("self.optimizers[0].step()", False, True),
        ("scheduler.step()", False, False),
        ("env.step(action)", False, False),
        ("step()", False, False),
    ],
)
def test_what_trains(code: str, backward: bool, step: bool) -> None:
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert (is_backward(call), is_optimizer_step(call)) == (backward, step)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x.cpu()", True),
        ("x.to('cpu')", True),
        ("x.to(torch.device('cpu'))", True),
        ("x.to(device='cpu', non_blocking=True)", True),
        ("x.to('cuda')", False),
        ("x.to(y)", False),
        ("x.cuda()", False),
    ],
)
def test_what_moves_to_the_host(code: str, expected: bool) -> None:
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert moves_to_host(call) is expected


@pytest.mark.parametrize(
    ("imports", "code", "expected"),
    [
        ("import torch", "torch.no_grad()", True),
        ("import torch as th", "th.inference_mode()", True),
        ("import torch as th", "torch.no_grad()", False),
        ("import torch", "torch.inference_mode(False)", False),
        ("import torch", "torch.inference_mode(mode=True)", True),
        ("import torch", "torch.set_grad_enabled(False)", True),
        ("import torch", "torch.set_grad_enabled(flag)", False),
        ("import torch", "torch.set_grad_enabled(True)", False),
        ("from torch import no_grad as quiet", "quiet()", True),
        ("from torch.autograd import no_grad", "no_grad()", True),
        ("from helpers import no_grad", "no_grad()", False),
        ("import torch, utils", "utils.no_grad()", False),
        ("import torch", "torch.enable_grad()", False),
    ],
)
def test_what_surely_turns_gradients_off(imports: str, code: str, expected: bool) -> None:
    paths = paths_of(ast.parse(imports))
    assert is_guard(ast.parse(code, mode="eval").body, paths) is expected


def wrapped(text: str, line: int) -> str | None:
    file = parsed(text)
    result = wrap(file, file.statements_at(line)[0], "with guard:")
    return None if result is None else file.text.changed([result[0]]).to_bytes().decode()


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("f(x)\n", 1, "with guard:\n    f(x)\n"),
        ("if a:\n  f(x)\n", 2, "if a:\n  with guard:\n    f(x)\n"),
        ("if a:\n\tf(x)\n", 2, "if a:\n\twith guard:\n\t\tf(x)\n"),
        ("for a in b:\n   f(a)\n", 1, "with guard:\n   for a in b:\n      f(a)\n"),
        ("if a: f(x)\n", 1, None),
        ("if a:\n    b\nelif f(x):\n    c\n", 3, None),
        ("@d\ndef g():\n    a\n", 2, "with guard:\n    @d\n    def g():\n        a\n"),
        ("a = 1; f(x); b = 2 # c\n", 1, "with guard:\n    a = 1; f(x); b = 2 # c\n"),
        ("f('''\na\n  b''')\n", 1, "with guard:\n    f('''\na\n  b''')\n"),
        ("f(\nx,\n)\n", 1, "with guard:\n    f(\n    x,\n    )\n"),
        ("f(x)\r\n", 1, "with guard:\r\n    f(x)\r\n"),
        ("f(x)", 1, "with guard:\n    f(x)"),
        ("a = \\\n  f(x)\n", 1, "with guard:\n    a = \\\n      f(x)\n"),
        ("x = 'a\\\n b' + f(x)\n", 1, "with guard:\n    x = 'a\\\n b' + f(x)\n"),
    ],
)
def test_wrapping(text: str, line: int, expected: str | None) -> None:
    assert wrapped(text, line) == expected


def test_a_block_that_would_change_its_meaning_is_not_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "f('''a\nb''')\n"
    assert wrapped(text, 1) is not None
    monkeypatch.setattr(rewrite, "_lines_inside_strings", lambda _parsed: frozenset())
    assert wrapped(text, 1) is None


def test_comments_at_the_margin_stay_there() -> None:
    text = "if c:\n    for a in b:\n# left\n        # inside\n        f(a)\n"
    expected = "if c:\n    with guard:\n        for a in b:\n# left\n            # inside\n            f(a)\n"
    assert wrapped(text, 2) == expected


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("agents/*.py")), ids=lambda path: path.name)
def test_wrapping_keeps_the_meaning_of_real_code(path: Path) -> None:
    file = parse_file(str(path), path.read_bytes())
    assert file is not None
    statements = [
        node
        for node in file.parents
        if isinstance(node, ast.For | ast.If | ast.Return | ast.Assign)
        and not isinstance(file.parents[node], ast.ClassDef)
    ][:12]
    for node in statements:
        result = wrap(file, node, "with guard:")
        if result is not None:
            change, first = result
            after = ast.parse(file.text.changed([change]).to_bytes())
            guards = [
                item
                for item in ast.walk(after)
                if isinstance(item, ast.With) and ast.unparse(item.items[0]) == "guard"
            ]
            assert len(guards) == 1
            assert ast.dump(guards[0].body[0]) == ast.dump(first)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(x)", "f(x).detach()"),
        ("a + b", "(a + b).detach()"),
        ("-a", "(-a).detach()"),
        ("a[0].b", "a[0].b.detach()"),
        ("(a + b)", "(a + b).detach()"),
        ("((a +\n b))", "((a +\n b)).detach()"),
        ("a if b else c", "(a if b else c).detach()"),
        ("'é' and ü", "('é' and ü).detach()"),
        ("[a]", "[a].detach()"),
    ],
)
def test_a_call_behind_an_expression(text: str, expected: str) -> None:
    file = parsed(f"ö = {text}\n")
    statement = file.tree.body[0]
    assert isinstance(statement, ast.Assign)
    changes = surround(file, {statement.value: ("", ".detach()")})
    assert file.text.changed(changes).to_bytes().decode() == f"ö = {expected}\n"


def test_two_calls_on_one_line() -> None:
    file = parsed("f(a, b + c)\n")
    call = ast.parse("f(a, b + c)").body
    assert call
    statement = file.tree.body[0]
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    changes = surround(file, {value: ("", ".x()") for value in statement.value.args})
    assert file.text.changed(changes).lines == ("f(a.x(), (b + c).x())",)


def test_a_patch_that_would_not_compile_is_none() -> None:
    file = parsed("def f():\n    return 1\n")
    function = file.function_at(1)
    assert function is not None
    assert patch_for({file: [decorate(file, function, "@(")]}, title="", reason="") is None


def test_text_that_python_warns_about_is_no_reason_to_stop() -> None:
    file = parsed("import torch\nx = '\\d'\ndef f(): pass\n")
    function = file.function_at(3)
    assert function is not None
    name, imports = torch_name(file, 3)
    assert (name, imports) == ("torch", ())
    patch = patch_for({file: [decorate(file, function, "@torch.no_grad()")]}, title="", reason="")
    assert patch is not None
    assert patch.edits[0].new_lines == ("@torch.no_grad()", "def f(): pass")
