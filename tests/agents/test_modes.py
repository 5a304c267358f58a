"""One line that trains and evaluates in turn, told apart by the mode of its module."""

from typing import Any

import pytest

from headroom.agents.playbook import Playbook
from headroom.agents.plays.no_grad import NoGrad

TRAINS: dict[str, Any] = {"calls": 8, "reached_calls": 8}
EVALUATES: dict[str, Any] = {"calls": 4, "eval_calls": 4}

POSITIVE = {
    "an optimizer that may be missing": """
         |import torch
         |
         |def run_epoch(model, loader, crit, optimizer=None):
         |    model.train(optimizer is not None)
         |    total = 0.0
         |    for x, y in loader:
        -|        loss = crit(model(x), y)  #@call
        +|        with torch.set_grad_enabled(torch.is_grad_enabled() and model.training):
        +|            loss = crit(model(x), y)
         |        if optimizer is not None:
         |            loss.backward()
         |            optimizer.step()
         |        total += loss.item()
         |    return total
         |
         |run_epoch(model, loader, crit, optimizer)
         |run_epoch(model, loader, crit)  #@main
        """,
    "phases, torch under another name, the module in an attribute": """
         |import torch as th
         |
         |class Trainer:
         |    def run(self):
         |        for phase in ("train", "val"):
         |            self.net.train() if phase == "train" else self.net.eval()
         |            for x, y in self.loaders[phase]:
        -|                out = self.net(x)  #@call
        +|                with th.set_grad_enabled(th.is_grad_enabled() and self.net.training):
        +|                    out = self.net(x)
         |                loss = self.crit(out, y)
         |                if phase == "train":
         |                    loss.backward()
         |
         |Trainer().run()  #@main
        """,
    "the callers decide": """
         |import torch
         |
         |def loss_of(model, x):
        -|    return model(x).mean()  #@call
        +|    with torch.set_grad_enabled(torch.is_grad_enabled() and model.training):
        +|        return model(x).mean()
         |
         |model.train()
         |loss_of(model, x).backward()
         |model.eval()
         |print(loss_of(model, x))  #@main
        """,
}


def _findings(writer: Any, text: str, rows: list[dict[str, Any]]) -> Any:
    program = writer.read(text)
    sites = [writer.site(program, "call", **row) for row in rows]
    evidence = writer.evidence(program, sites, [writer.Stack(["call", "main"])])
    return program, evidence, NoGrad().findings(evidence)


@pytest.mark.parametrize("name", POSITIVE)
def test_gradients_are_on_only_while_the_module_trains(writer: Any, name: str) -> None:
    program, evidence, (finding,) = _findings(writer, POSITIVE[name], [TRAINS, EVALUATES])
    (patch,) = finding.patches
    assert writer.patched(evidence, patch) == program.after
    assert "4 times" in finding.cause.summary


ROWS: dict[str, list[dict[str, Any]]] = {
    "gradients came back in eval mode, too": [TRAINS, {**EVALUATES, "reached_calls": 1}],
    "another module evaluates": [TRAINS, {**EVALUATES, "module": "Other"}],
    "what trains is in eval mode": [{**TRAINS, "eval_calls": 8}, EVALUATES],
    "gradients are off already": [TRAINS, {**EVALUATES, "grad_calls": 0}],
    "never in eval mode": [TRAINS, {"calls": 4}],
}


@pytest.mark.parametrize("name", ROWS)
def test_the_record_has_to_show_both(writer: Any, name: str) -> None:
    text = POSITIVE["an optimizer that may be missing"]
    assert _findings(writer, text, ROWS[name])[2] == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if optimizer is not None:", "for _ in range(2):"),
        ("model.train(optimizer is not None)", "pass"),
        ("crit(model(x), y)", "crit(models[0](x), y)"),
        ("crit(model(x), y)", "crit(model(x), y).backward()"),
        ("loss = crit(model(x), y)", "loss = lambda: crit(model(x), y)"),
        ("loss = crit(model(x), y)", "loss = (crit(model(x), y) for _ in [0])"),
        ("crit(model(x), y)", "crit(model(x), model(y))"),
    ],
    ids=[
        "the backward pass is not conditional",
        "no mode is switched",
        "no plain name",
        "the statement trains",
        "the call runs later, in a lambda",
        "the call runs later, in a generator",
        "two calls",
    ],
)
def test_the_text_has_to_show_what_trains(writer: Any, old: str, new: str) -> None:
    text = POSITIVE["an optimizer that may be missing"].replace(old, new)
    assert _findings(writer, text, [TRAINS, EVALUATES])[2] == ()


def test_a_function_with_one_caller_does_not_decide_by_its_callers(writer: Any) -> None:
    text = POSITIVE["the callers decide"].replace("loss_of(model, x).backward()", "pass")
    assert _findings(writer, text, [TRAINS, EVALUATES])[2] == ()


FUSED = """
         |import torch
         |
         |class Net(torch.nn.Module):
         |    def __init__(self):
         |        self.encoder = {made}
         |
        +|@torch.no_grad()
         |def evaluate(net, x):
         |    return net(x).max().item()  #@call
         |
         |evaluate(Net(), x)  #@main
        """


@pytest.mark.parametrize(
    ("made", "row", "numerics"),
    [
        ("torch.nn.TransformerEncoder(layer, 4)", EVALUATES, "rounding"),
        ("torch.nn.MultiheadAttention(8, 2)", EVALUATES, "rounding"),
        ("torch.nn.MultiheadAttention(8, 2)", {"calls": 4}, "exact"),
        ("torch.nn.Linear(8, 2)", EVALUATES, "exact"),
        ("make()", {**EVALUATES, "module": "TransformerEncoder"}, "rounding"),
    ],
)
def test_fused_transformer_layers_round_differently(
    writer: Any, made: str, row: dict[str, Any], numerics: str
) -> None:
    program = writer.read(FUSED.format(made=made))
    stacks = [writer.Stack(["call", "main"])]
    evidence = writer.evidence(program, [writer.site(program, "call", **row)], stacks)
    playbook = Playbook()
    candidates = playbook.propose(evidence, playbook.diagnose(evidence), ())
    found = {item.numerics for item in candidates if item.play == "no_grad"}
    assert found == {numerics}
