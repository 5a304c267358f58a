"""What calls may run that the text does not name: handed-on functions, objects, closures, other files."""

import ast
from dataclasses import replace
from typing import Any

import pytest

from headroom.agents.carry import Seeds
from headroom.agents.index import Place
from headroom.agents.plays.no_grad import NoGrad
from headroom.agents.program import Program
from headroom.agents.syntax import parse_file
from headroom.evidence.model import Tick
from tests.agents.programs import program_of


def needed(program: Program, function: str) -> bool:
    """Whether what `source()` makes in a function may be needed for a backward pass."""
    (place,) = program.functions[function]
    sources = frozenset(
        node
        for node in place.parsed.parents
        if isinstance(node, ast.Call) and ast.unparse(node) == "source()"
    )
    return program.reaches_backward(place, Seeds(nodes=sources))


# Each defines `f`, which makes a value, in a program that trains with it in a way that is not plain to see.
TRAINING = {
    "an object with __call__": """
class Scaler:
    def __call__(self, loss, optimizer):
        loss.backward()
        optimizer.step()
def f(optimizer):
    scaler = Scaler()
    scaler(source(), optimizer)
""",
    "an object that calls itself": """
class Scaler:
    def __call__(self, loss):
        loss.backward()
    def f(self):
        self(source())
""",
    "an object with __call__, handed in": """
class Scaler:
    def __call__(self, loss, optimizer):
        loss.backward()
def f(scaler, optimizer):
    scaler(source(), optimizer)
f(Scaler(), torch.optim.SGD(ps))
""",
    "a parameter": """
def make(optimizer):
    def update(loss):
        loss.backward()
        optimizer.step()
    return update
def f(apply):
    apply(source())
f(make(optimizer))
""",
    "a parameter that nobody shows": """
def f(apply):
    apply(source())
optimizer = torch.optim.SGD(ps)
""",
    "a function in a dictionary": """
def f(steps):
    steps["generator"](source())
optimizer = torch.optim.SGD(ps)
""",
    "a table of steps": """
def step(loss):
    loss.backward()
STEPS = {"plain": step}
def f(name):
    STEPS[name](source())
""",
    "a function in an attribute": """
class Trainer:
    def __init__(self, update):
        self.update_weights = update
    def run(self):
        f(self)
def f(trainer):
    trainer.update_weights(source())
def main(train_step, optimizer):
    Trainer(train_step).run()
""",
    "a decorator": """
def trained(function):
    def wrapper(x):
        function(x).backward()
    return wrapper
@trained
def f(x):
    return source()
f(1)
""",
    "a partial": """
from functools import partial
def pooled(head, features):
    return head(features)
def f():
    compute = partial(pooled, head, source())
    loss = compute()
    loss.backward()
""",
    "a partial of a function that trains": """
from functools import partial
def step(optimizer, loss):
    loss.backward()
def f(optimizer):
    compute = partial(step, optimizer, source())
    compute()
""",
    "a lambda": """
def f():
    out = source()
    closure = lambda: out.mean()
    closure().backward()
""",
    "a nested function": """
def f():
    out = source()
    def closure():
        return out.mean()
    loss = closure()
    loss.backward()
""",
    "unpacked positions": """
def optimise(features, targets):
    features.backward()
def f():
    out = [source(), 1]
    optimise(*out)
""",
    "unpacked keywords": """
def encode():
    return {"features": source()}
def f():
    optimise(**encode(), targets=1)
def optimise(features, targets):
    features.backward()
""",
    "keywords that a callee collects": """
def optimise(**parts):
    sum(parts.values()).backward()
def f():
    optimise(loss=source())
""",
    "a bound method": """
def run(backward):
    backward()
def f():
    loss = source()
    run(loss.backward)
""",
    "autograd.grad under another name": """
from torch.autograd import grad as derive
def f():
    derive(source(), points)
""",
    "torch.autograd under another name": """
import torch.autograd as ag
def f():
    ag.grad(source(), points)
""",
    "an attribute set by its name as text": """
def f(probe):
    setattr(probe, "aux", source())
def train(probe):
    if probe.aux is not None:
        getattr(probe, "aux").backward()
""",
    "an attribute set by a name that is computed": """
def f(probe, name):
    setattr(probe, name, source())
def train(probe):
    probe.aux.backward()
""",
    "an attribute set past a frozen class": """
class Probe:
    def f(self):
        object.__setattr__(self, "aux", source())
def train(probe):
    probe.aux.backward()
""",
    "an attribute by its name as text": """
class Layer:
    def forward(self, x):
        f(self)
def f(layer):
    layer.aux = source()
def total(model):
    return sum(getattr(layer, "aux", 0.0) for layer in model.modules())
def train():
    total(model).backward()
""",
    "map": """
def step(loss):
    loss.backward()
def f():
    list(map(step, [source()]))
""",
    "a library that may train": """
from somewhere.training import apply_gradients
def f(optimizer):
    apply_gradients(source())
""",
}


@pytest.mark.parametrize("name", TRAINING)
def test_a_value_that_may_be_trained_on_is_needed(name: str) -> None:
    program = program_of(a="import torch\n" + TRAINING[name])
    assert needed(program, "encode" if name == "unpacked keywords" else "f")


# In all of these `optimizer` shows that the program trains; what happens to the value is harmless.
HARMLESS = {
    "a criterion": """
def f(criterion):
    print(criterion(source(), 1).item())
def main():
    criterion = torch.nn.CrossEntropyLoss().to("cuda")
    f(criterion)
""",
    "a function of torch as a criterion": """
def f(criterion):
    print(criterion(source(), 1).item())
f(criterion=torch.nn.functional.cross_entropy)
""",
    "a criterion in an attribute": """
class Trainer:
    def __init__(self):
        self.loss_fn = torch.nn.MSELoss()
def f(self):
    print(self.loss_fn(source()).item())
""",
    "decorators that only wrap": """
import functools
class A:
    @staticmethod
    @functools.lru_cache
    @torch.no_grad()
    def f(x):
        return source()
print(A.f(1))
""",
    "a table of losses": """
LOSSES = {"mse": torch.nn.MSELoss, "l1": torch.nn.L1Loss}
PLAIN = {"mse": torch.nn.functional.mse_loss}
def f(name):
    criterion = LOSSES[name]()
    print(criterion(source(), 1).item(), PLAIN[name](source(), 1).item())
""",
    "a module of the program": """
class Head(torch.nn.Module):
    def forward(self, x):
        return x
def f():
    head = Head()
    print(head(source()).item())
""",
    "a module that calls itself": """
class Net(torch.nn.Module):
    def forward(self, x):
        return x
    def f(self):
        print(self(source()).item())
""",
    "a function of the program by another name": """
def accuracy(out):
    return out.argmax()
def f(metric):
    print(metric(source()).item())
f(accuracy)
""",
    "builtins, libraries and methods": """
from tqdm import tqdm
import numpy as np
import wandb
def f(writer, metric):
    out = source()
    metric.update(out)
    writer.add_scalar("loss", out, 1)
    wandb.log({"loss": out})
    tqdm.write(str(out))
    print(max(out), np.mean([out]), sorted([out]))
""",
    "an alias of a function of torch": """
from torch.nn.functional import softmax as soft
def f():
    print(soft(source(), -1).max().item())
""",
    "a name used as method": """
class Meter:
    def update(self, val):
        self.sum += val
def f(meter):
    meter.update(source())
def regulariser(ps):
    loss = ps.pow(2).sum()
    loss.backward()
""",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_value_that_is_only_looked_at_is_not_needed(name: str) -> None:
    text = "import torch\noptimizer = torch.optim.SGD(ps)\n" + HARMLESS[name]
    assert not needed(program_of(a=text), "f")


@pytest.mark.parametrize(
    "text",
    ["def f(show):\n    show(source())\n", "@app.route\ndef f():\n    return source()\nf()\n"],
    ids=["parameter", "decorator"],
)
def test_a_callee_out_of_sight_matters_only_where_something_trains(text: str) -> None:
    assert not needed(program_of(a=text), "f")
    assert needed(program_of(a="import torch.optim\n" + text), "f")


@pytest.mark.parametrize(
    ("home", "reader"),
    [
        ("from bank import KEPT\ndef f():\n    KEPT.append(source())\n", "from bank import KEPT\n"),
        ("import bank\ndef f():\n    bank.KEPT.append(source())\n", "from bank import KEPT\n"),
        ("from bank import KEPT\ndef f():\n    KEPT.append(source())\n", "import bank\n"),
    ],
    ids=["both by name", "put in by module", "read by module"],
)
def test_a_global_of_another_file_is_followed(home: str, reader: str) -> None:
    read = "bank.KEPT" if reader.startswith("import") else "KEPT"
    trains = f"def train():\n    torch.cat({read}).sum().backward()\n"
    assert needed(program_of(bank="KEPT = []\n", a=home, b=reader + trains), "f")
    looks = f"import torch.optim\ndef look():\n    print(torch.cat({read}).sum().item())\n"
    assert not needed(program_of(bank="KEPT = []\n", a=home, b=reader + looks), "f")


def test_a_function_that_uses_an_alias_of_grad_trains() -> None:
    text = "from torch.autograd import grad as derive\ndef f(x):\n    derive(x, ps)\n"
    program = program_of(a=text)
    (place,) = program.functions["f"]
    assert program.trains(place.parsed, place.scope)


@pytest.mark.parametrize(
    "importing", ["from b import optimise as go", "from .b import optimise as go"]
)
def test_a_function_of_another_file_is_known_by_any_name(importing: str) -> None:
    text = (
        importing + "\nimport torch\noptimizer = torch.optim.SGD(ps)\ndef f():\n    go(source())\n"
    )
    trains = "def optimise(loss):\n    loss.backward()\n"
    assert needed(program_of(a=text, b=trains), "f")
    assert not needed(program_of(a=text, b="def optimise(loss):\n    print(loss)\n"), "f")


def test_the_modules_seen_on_a_line_are_the_calls_that_run_first() -> None:
    text = "import torch.optim\ndef f(crit, net, x):\n    print(crit(net(x)))\n"
    file = parse_file("/app/a.py", text.encode())
    assert file is not None
    place = Place(file, next(node for node in file.parents if isinstance(node, ast.FunctionDef)))
    calls = {ast.unparse(node.func): node for node in file.parents if isinstance(node, ast.Call)}

    def known(*classes: str) -> dict[str, bool]:
        lines = {("/app/a.py", 3): frozenset(classes)} if classes else {}
        callees = Program({file.path: file}, modules=lines).callees
        return {name: callees.of(place, call).known for name, call in calls.items()}

    assert known() == {"print": True, "crit": False, "net": False}
    assert known("Net") == {"print": True, "crit": False, "net": True}
    assert known("Net", "Loss") == {"print": True, "crit": True, "net": True}


EVALUATED = {"calls": 1, "eval_calls": 1}

LEFT_ALONE = {
    "eval mode, and an object that trains": """
         |import torch
         |class Scaler:
         |    def __call__(self, loss):
         |        loss.backward()
         |
         |def run(body, head, loader, scaler):
         |    body.eval()
         |    for x in loader:
         |        loss = head(body(x)).mean()  #@call
         |        scaler(loss)
         |
         |run(body, head, loader, Scaler())  #@main
        """,
    "eval mode, and a method out of sight wants the gradient of the input": """
         |import torch
         |from captum_like import explain
         |optimizer = torch.optim.SGD(ps)
         |
         |def saliency(net, x):
         |    net.eval()
         |    score = net(x).max()  #@call
         |    return explain(score, x)
         |
         |saliency(net, x)  #@main
        """,
    "eval mode, and a library may use what is returned": """
         |import torch
         |class Task(lightning.LightningModule):
         |    def training_step(self, batch):
         |        return self.net(batch).mean()  #@call
         |
         |launch(Task())  #@main
        """,
    "a table of losses calls it": """
         |import torch
         |def perceptual(vgg, x, y):
         |    return (vgg(x) - y).mean()  #@call
         |
         |def step(losses, x, y, optimizer):
         |    terms = [weight * fn(x, y) for weight, fn in losses]
         |    sum(terms).backward()
         |
         |step([(1.0, partial(perceptual, vgg))], x, y, optimizer)  #@main
        """,
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_eval_mode_alone_proves_nothing(writer: Any, name: str) -> None:
    program = writer.read(LEFT_ALONE[name])
    stacks = [writer.Stack(["call", "main"])]
    evidence = writer.evidence(program, [writer.site(program, "call", **EVALUATED)], stacks)
    assert NoGrad().findings(evidence) == ()


@pytest.mark.parametrize("inside", [True, False])
def test_a_lambda_that_calls_something_out_of_sight_gets_no_guard(
    writer: Any, inside: bool
) -> None:
    text = """
         |import torch.optim
         |def main(hook):
         |    hook()
         |    score = lambda x: net(x).item()  #@call
         |    print(score(x))  #@main
         |
         |main(hooks[0])
        """
    if inside:
        text = text.replace("net(x).item()", "(float(hook()), net(x).item())")
    program = writer.read(text)
    sites = [writer.site(program, "call:<lambda>", **EVALUATED)]
    evidence = writer.evidence(program, sites, [writer.Stack(["call:<lambda>", "main"])])
    assert bool(NoGrad().findings(evidence)) is not inside


REGION = """
         |import torch
         |
         |def evaluate(net, loader, hook, optimizer):
         |    for x in loader:
         |        hook()
        -|        print(net(x).mean().item())  #@call
        +|        with torch.no_grad():
        +|            print(net(x).mean().item())
         |
         |evaluate(net, loader, make_hook(), optimizer)  #@main
        """


def test_a_region_with_a_call_out_of_sight_gets_no_guard_but_a_narrower_one_does(
    writer: Any,
) -> None:
    program = writer.read(REGION)
    sites = [writer.site(program, "call", calls=4, eval_calls=4)]
    evidence = writer.evidence(program, sites, [writer.Stack(["call", "main"])])
    (finding,) = NoGrad().findings(evidence)
    assert writer.patched(evidence, finding.patches[0]) == program.after


def test_a_call_out_of_sight_counts_through_functions(writer: Any) -> None:
    text = REGION.replace("|        hook()", "|        tick(hook)").replace(
        "         |evaluate(",
        "         |def tick(hook):\n         |    hook()\n         |\n         |evaluate(",
    )
    program = writer.read(text)
    sites = [writer.site(program, "call", calls=4, eval_calls=4)]
    evidence = writer.evidence(program, sites, [writer.Stack(["call", "main"])])
    (finding,) = NoGrad().findings(evidence)
    assert writer.patched(evidence, finding.patches[0]) == program.after


@pytest.mark.parametrize("handed_out", [True, False])
def test_measurement_decides_unless_the_program_hands_out_what_trains(
    writer: Any, handed_out: bool
) -> None:
    text = """
         |import torch
         |
         |def step(net, x):
         |    net(x).mean().backward()  #@train
         |
        {sign}
         |def evaluate(net, loader, hook):
         |    for x in loader:
         |        hook(net, x)
         |        print(net(x).mean().item())  #@call
         |
         |{use}
         |evaluate(net, loader, hooks[0])  #@main
        """
    use = "hooks.append(step)" if handed_out else "step(net, x)"
    program = writer.read(text.format(use=use, sign=" |#").replace("        |", " |"))
    sites = [
        writer.site(program, "train", calls=8, reached_calls=8),
        writer.site(program, "call", calls=4, eval_calls=4),
    ]
    evidence = writer.evidence(program, sites, [writer.Stack(["call", "main"])])
    (finding,) = NoGrad().findings(evidence)
    whole = "function" in finding.patches[0].title
    assert whole is not handed_out


@pytest.mark.parametrize("trained", [True, False])
def test_the_summary_says_whether_a_backward_pass_had_run(writer: Any, trained: bool) -> None:
    program = writer.read(
        """
         |import torch
         |def evaluate(net, x):
         |    return net(x).max().item()  #@call
         |
         |def train(net, x):
         |    net(x).sum().backward()  #@train
         |
         |evaluate(net, x)  #@main
        """
    )
    sites = [writer.site(program, "call", **EVALUATED)]
    if trained:
        sites.append(writer.site(program, "train", reached_calls=8))
    ledger = writer.ledger(program, [writer.Stack(["call", "main"])])
    evidence = writer.evidence(program, sites, [writer.Stack(["call", "main"])])
    before = replace(ledger, peak=replace(ledger.peak, tick=Tick(update=0, call=1)))
    (cause,) = NoGrad().detect(replace(evidence, ledger=before))
    assert ("no gradient ever comes back" in cause.summary) is trained
    assert ("no backward pass had run yet" in cause.summary) is not trained
