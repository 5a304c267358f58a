"""What sort of value reaches an expression."""

import ast

import pytest

from headroom.agents.index import Place
from headroom.agents.program import Program
from headroom.agents.syntax import parse_file

CASES = [
    ("x = torch.randn(3)\nshow(x)", {"tensor"}),
    ("x = F.relu(y)\nshow(x)", {"tensor"}),
    ("x = F.relu(y).mean()\nshow(x)", {"tensor"}),
    ("x = F.relu(y).mean().item()\nshow(x)", {"number"}),
    ("x = float(y)\nshow(x)", {"number"}),
    ("x = 0.0\nshow(x)", {"number"}),
    ("x = 0.0\nx = torch.randn(3)\nshow(x)", {"tensor"}),
    ("x = torch.randn(3)\nif c:\n    x = 0.0\nshow(x)", {"tensor", "number"}),
    ("x = torch.randn(3)\nif c:\n    x = 0.0\nelse:\n    x = 1\nshow(x)", {"tensor", "number"}),
    ("x = 0.0\nfor i in y:\n    x = torch.randn(3)\n    show(x)", {"tensor"}),
    ("x = 0.0\nfor i in y:\n    show(x)\n    x = torch.randn(3)", {"tensor", "number"}),
    ("x = 0\nx += torch.randn(3)\nshow(x)", {"tensor"}),
    ("x = 0\nfor i in y:\n    x += torch.randn(3)\nshow(x)", {"number", "tensor"}),
    ("x = 2 * torch.randn(3)\nshow(x)", {"tensor"}),
    ("x = 2 * 3.0\nshow(x)", {"number"}),
    ("x = net(y)\nshow(x)", {"unknown"}),
    ("x = net(y).mean()\nshow(x)", {"unknown"}),
    ("for x in range(3):\n    show(x)", {"number"}),
    ("for x in loader:\n    show(x)", {"unknown"}),
    ("with open(p) as x:\n    show(x)", {"unknown"}),
    ("x = {}\nshow(x)", {"dict"}),
    ("x = dict(a=1)\nshow(x)", {"dict"}),
    ("x = [y]\nshow(x)", {"list"}),
    ("x = y, z\nshow(x)", {"tuple"}),
    ("x, z = 0.0, {}\nshow(x)", {"number"}),
    ("x = copy.deepcopy(net.state_dict())\nshow(x)", {"dict"}),
    ("x = {'a': 1.0, 'b': torch.randn(3)}\nshow(x['a'])", {"number"}),
    ("x = {'a': 1.0, 'b': torch.randn(3)}\nshow(x['b'])", {"tensor"}),
    ("x = {'a': 1.0}\nshow(x['c'])", {"unknown"}),
    ("x = {'a': 1.0}\nshow(x[y])", {"unknown"}),
    ("x = 1.0, torch.randn(3)\nshow(x[1])", {"tensor"}),
    ("def g():\n    return {'a': y.item()}\nx = g()\nshow(x['a'])", {"number"}),
    ("x = torch.nn.Linear(3, 3)\nshow(x)", {"unknown"}),
    ("x = torch.device('cuda')\nshow(x)", {"unknown"}),
    ("def g():\n    return {'a': 1}\nx = g()\nshow(x)", {"dict"}),
    ("def g():\n    h = []\n    return 1, h\nx, z = g()\nshow(z)", {"list"}),
    ("def g(x=0.0):\n    show(x)\ng(torch.randn(3))", {"number", "tensor"}),
    (
        "class A:\n    def f(self):\n        self.x = 0\n    def g(self):\n        show(self.x)",
        {"number"},
    ),
    ("x = 0\ndef g():\n    show(x)", {"number"}),
    ("z = [show(x) for x in range(3)]", {"number"}),
    ("if (x := torch.randn(3)) is not None:\n    show(x)", {"tensor"}),
    ("x = torch.randn(3) if c else 0.0\nshow(x)", {"tensor", "number"}),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_the_sorts_of_what_is_shown(text: str, expected: set[str]) -> None:
    header = "import torch\nimport torch.nn.functional as F\n"
    file = parse_file("/app/a.py", (header + text).encode())
    assert file is not None
    (call,) = (
        node
        for node in file.parents
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "show"
    )
    program = Program({file.path: file})
    assert program.sorts.of(Place(file, file.scope_of(call)), call.args[0]) == expected
