"""Where values may go: within a function, and across the program."""

import ast

import pytest

from headroom.agents.calls import Mode
from headroom.agents.carry import Seeds
from headroom.agents.flow import Flow
from headroom.agents.index import Place
from headroom.agents.program import Program, calls_on
from headroom.agents.syntax import own_nodes, parse_file
from tests.agents.programs import program_of


def tainted_names(body: str, mode: Mode = "graph") -> set[str]:
    """Arguments of `show(...)` that carry what `source()` made."""
    text = "import torch\n" + body
    file = parse_file("/app/a.py", text.encode())
    assert file is not None
    sources = frozenset(
        node
        for node in file.parents
        if isinstance(node, ast.Call) and ast.unparse(node) == "source()"
    )
    found = Flow(file, file.tree, Seeds(nodes=sources), mode).run()
    shown = [
        node
        for node in file.parents
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "show"
    ]
    return {
        ast.unparse(argument)
        for call in shown
        for argument in call.args
        if argument in found.tainted
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = source()\nb = 1\nshow(a, b)", {"a"}),
        ("a = source()\na = 1\nshow(a)", set()),
        ("a, b = source(), 1\nshow(a, b)", {"a"}),
        ("a, *b = source()\nshow(a, b)", {"a", "b"}),
        ("(a, b), c = source()\nshow(a, b, c)", {"a", "b", "c"}),
        ("a: int = source()\nshow(a)", {"a"}),
        ("a = 0\na += source()\nshow(a)", {"a"}),
        ("d = {}\nd['k'] = source()\nshow(d, d['x'])", {"d", "d['x']"}),
        ("o.x = source()\nshow(o.x, o.y, o)", {"o.x"}),
        ("o.x = source()\no.x = 1\nshow(o.x)", set()),
        ("o.x = source()\no = 1\nshow(o.x)", set()),
        ("a = []\na.append(source())\nshow(a)", {"a"}),
        ("a = []\na.append(source())\na.clear()\nshow(a)", set()),
        ("a = []\nb = a.append(source())\nshow(b)", set()),
        ("a.mul_(source())\nshow(a)", {"a"}),
        ("a = [x * 2 for x in source()]\nshow(a)", {"a"}),
        ("a = [1 for x in source()]\nshow(a)", set()),
        ("a = {k: v for k, v in zip(n, source())}\nshow(a)", {"a"}),
        ("a = (b := source()).mean()\nshow(a, b)", {"a", "b"}),
        ("a = f'{source()}'\nshow(a)", set()),
        ("a = source() if c else 1\nshow(a)", {"a"}),
        ("a = 1 if source() else 2\nshow(a)", set()),
        ("if c:\n    a = source()\nelse:\n    a = 1\nshow(a)", {"a"}),
        ("if c:\n    a = source()\na = 1\nshow(a)", set()),
        ("a = source()\ntry:\n    a = 1\n    f()\nexcept E:\n    pass\nshow(a)", {"a"}),
        ("try:\n    f()\nfinally:\n    a = source()\nshow(a)", {"a"}),
        ("with source() as a:\n    show(a)", {"a"}),
        ("for a in source():\n    show(a)", {"a"}),
        ("b = 0\nfor x in y:\n    show(b)\n    b = source()", {"b"}),
        ("b = 0\nfor x in y:\n    b = 0\n    show(b)\n    b = source()", set()),
        ("for x in y:\n    a = source()\n    if c:\n        break\n    a = 1\nshow(a)", {"a"}),
        (
            "a = b = 0\nfor x in y:\n    show(b)\n    b = a\n    if c:\n        continue\n    a = source()",
            {"b"},
        ),
        (
            "a = 0\nfor x in y:\n    show(a)\n    a = source()\n    if c:\n        continue\n    a = 1",
            {"a"},
        ),
        ("b = [x for x in source()]\nshow(x)", set()),
        ("a = source()\nwith torch.no_grad():\n    b = f(a)\nshow(b)", set()),
        ("while c:\n    a = source()\nelse:\n    a = 1\nshow(a)", set()),
        ("match c:\n    case 1:\n        a = source()\n    case _:\n        a = 1\nshow(a)", {"a"}),
        ("a = source()\ndel a\nshow(a)", set()),
        ("a = source()\ndef f():\n    show(a)", {"a"}),
        ("a = source()\ndef f(a):\n    show(a)", set()),
        ("def f():\n    show(a)\na = source()", {"a"}),
        ("a = source()\nf = lambda: show(a)", {"a"}),
        ("class C:\n    a = source()\n    show(a)", {"a"}),
        ("a = source()\nb = a.shape\nc = a.detach()\nd = float(a)\nshow(b, c, d)", set()),
        ("a = source()\nshow(a > 0, a.argmax(), len(a), a.item())", set()),
        ("with torch.no_grad():\n    a = source() * 2\n    show(a)", set()),
        ("a = source()\nwith torch.no_grad():\n    b = a\n    c = a * 2\nshow(b, c)", {"b"}),
        ("a = source()\nwith no_grad():\n    b = a * 2\nshow(b)", {"b"}),
    ],
)
def test_taint_within_a_scope(body: str, expected: set[str]) -> None:
    assert tainted_names(body) == expected


@pytest.mark.parametrize(
    ("expression", "graph", "memory", "value"),
    [
        ("a.detach()", False, True, True),
        ("a.cpu()", True, False, False),
        ("a.argmax(-1)", False, False, True),
        ("a.softmax(-1)", True, False, True),
        ("a.view(-1)", True, True, True),
        ("a[0]", True, True, True),
        ("a + 1", True, False, True),
        ("a > 0", False, False, True),
        ("torch.relu(a)", True, False, True),
        ("torch.squeeze(a)", True, True, True),
        ("helper(a)", True, True, True),
        ("[a, 1]", True, True, True),
        ("a.item()", False, False, False),
        ("a.data", False, True, True),
        ("a.shape", False, False, False),
        ("np.mean(a)", False, False, False),
    ],
)
def test_what_each_mode_follows(expression: str, graph: bool, memory: bool, value: bool) -> None:
    body = f"a = source()\nb = {expression}\nshow(b)"
    modes: tuple[Mode, ...] = ("graph", "memory", "value")
    found = tuple(bool(tainted_names(body, mode)) for mode in modes)
    assert found == (graph, memory, value)


def reaches(program: Program, path: str = "/app/a.py") -> bool:
    """Whether what the line with `source()` makes may end in a backward pass."""
    file = program.files[path]
    line = next(at for at, text in enumerate(file.text.lines, 1) if "source()" in text)
    scope = file.scope_at(line)
    calls = calls_on(own_nodes(scope), line)
    return program.reaches_backward(Place(file, scope), Seeds(nodes=calls))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = source()\na.backward()", True),
        ("a = source()\nprint(a)", False),
        ("def f():\n    return source()\nf().backward()", True),
        ("def f():\n    return source()\nprint(f())", False),
        ("def f():\n    return g()\ndef g():\n    return source()\nf().backward()", True),
        ("def f(x):\n    x.backward()\nf(source())", True),
        ("def f(a, *, x):\n    x.backward()\nf(1, x=source())", True),
        ("def f(a, x):\n    x.backward()\nf(source(), 1)", False),
        ("class C:\n    def f(self, x):\n        x.backward()\nc.f(source())", True),
        ("def f(x):\n    return x\nf(source())\nf(b).backward()", False),
        ("def f(x):\n    return x\nf(source()).backward()", True),
        ("def f():\n    return source()", True),
        ("def f():\n    yield source()\nfor x in f():\n    x.backward()", True),
        ("s = []\ndef f():\n    s.append(source())\ndef g():\n    s[0].backward()", True),
        ("s = []\ndef f():\n    s.append(source())\ndef g(s):\n    s[0].backward()", False),
        (
            "def m():\n    s = []\n    def f():\n        s.append(source())\n    s[0].backward()",
            True,
        ),
        ("def m():\n    s = []\n    def f():\n        s.append(source())\n    print(s)", False),
        (
            "class R:\n    def __init__(self, x):\n        self.x = x\n    def go(self):\n"
            "        self.x.backward()\nR(source()).go()",
            True,
        ),
        (
            "class R:\n    @classmethod\n    def f(cls, x):\n        x.backward()\nR.f(source())",
            True,
        ),
        (
            "class C:\n    def f(self):\n        self.x = source()\n    def g(self):\n        self.x.backward()",
            True,
        ),
        (
            "class C:\n    def f(self):\n        self.x = source()\n"
            "class D:\n    def g(self):\n        self.x.backward()",
            False,
        ),
        (
            "class C:\n    def f(self):\n        self.x = source()\n"
            "class D(C):\n    def g(self):\n        self.x.backward()",
            True,
        ),
        (
            "class C:\n    def f(self):\n        self.x = source()\ndef g(c):\n    c.x.backward()",
            True,
        ),
    ],
)
def test_the_way_through_the_program(text: str, expected: bool) -> None:
    assert reaches(program_of(a=text)) is expected


def test_the_way_through_another_file() -> None:
    program = program_of(
        a="from b import optimise\nclass C:\n    def f(self):\n        optimise(source())\n",
        b="def optimise(loss):\n    loss.backward()\n",
    )
    assert reaches(program)


@pytest.mark.parametrize(
    ("text", "trains"),
    [
        ("def f():\n    loss.backward()", True),
        ("def f():\n    g()\ndef g():\n    opt.step()", True),
        ("def f():\n    run(g)\ndef g():\n    opt.step()", True),
        ("def f():\n    trainer.fit(model)", True),
        ("def f():\n    self.trainer.train()", True),
        ("def f():\n    model.train()\n    model.eval()", False),
        ("def f():\n    def closure():\n        loss.backward()\n    opt(closure)", True),
        (
            "class Agent:\n    def update(self, x):\n        x.backward()\nagent = Agent()\n"
            "def f():\n    agent.update(1)",
            True,
        ),
        (
            "class Agent:\n    def update(self, x):\n        x.backward()\nbar = tqdm(loader)\n"
            "def f():\n    bar.update(1)",
            False,
        ),
        (
            "class Agent:\n    def update(self, x):\n        x.backward()\n"
            "class Meter:\n    def update(self, x):\n        pass\nmeter = Meter()\n"
            "def f():\n    meter.update(1)",
            True,
        ),
    ],
)
def test_what_may_train(text: str, trains: bool) -> None:
    program = program_of(a=text)
    (place,) = program.functions["f"]
    assert program.trains(place.parsed, place.scope) is trains


def test_any_forward_may_be_the_one_that_gradients_came_back_to() -> None:
    text = (
        b"class A:\n    def forward(self, x):\n        return net(x)\ndef f():\n    b.forward(1)\n"
    )
    file = parse_file("/app/a.py", text)
    assert file is not None
    program = Program({file.path: file}, frozenset({(file.path, 3)}))
    assert not program.trains(file, program.functions["f"][0].scope)


def test_a_function_that_gradients_came_back_to_trains() -> None:
    file = parse_file("/app/a.py", b"def step(x):\n    return net(x)\ndef f():\n    step(1)\n")
    assert file is not None
    reached = Program({file.path: file}, frozenset({(file.path, 2)}))
    assert reached.trains(file, reached.functions["f"][0].scope)
    unreached = Program({file.path: file})
    assert not unreached.trains(file, unreached.functions["f"][0].scope)


@pytest.mark.parametrize(
    "text",
    [
        "a = source()" + " + 1" * 140 + "\nshow(a)",
        "if c:\n    a = 0\n" + "elif c:\n    a = source()\n" * 140 + "show(a)",
        "a = " + "f(" * 70 + "source()" + ")" * 70 + "\nshow(a)",
    ],
    ids=["sum", "elif", "calls"],
)
def test_deep_code_is_walked(text: str) -> None:
    assert tainted_names(text) == {"a"}
