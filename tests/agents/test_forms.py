"""Stored values that may be no tensors: the patch must not fail on them."""

from typing import Any

import pytest

from headroom.agents.plays.retained_graph import RetainedGraph

EACH = "value.detach() if th.is_tensor(value) else value"
TENSOR_OR_NOT = "torch.is_tensor(value) else value"

CASES = {
    "a default that is a plain number": """
         |import torch
         |total = 0.0
         |for x in loader:
         |    penalty = net(x).mean()  #@call
         |    if x.sum() > 1:
         |        penalty = 0.0
        -|    total += penalty
        +|    total += penalty.detach() if torch.is_tensor(penalty) else penalty
        """,
    "a number in a sum": """
         |import torch
         |total = 0.0
         |for x in loader:
         |    penalty = net(x).mean() if x.sum() > 1 else 0.0  #@call
        -|    total = total + penalty
        +|    total = total + (penalty.detach() if torch.is_tensor(penalty) else penalty)
        """,
    "a number from one of the callers, torch not imported": """
        +|import torch
         |class Meter:
         |    def update(self, value):
        -|        self.values.append(value)
        +|        self.values.append(value.detach() if torch.is_tensor(value) else value)
         |
         |for x in loader:
         |    loss = net(x).mean()  #@call
         |    meter.update(loss)
         |    meter.update(loss.item())
        """,
    "a default that is always overwritten": """
         |loss = 0.0
         |for x in loader:
         |    loss = net(x).mean()  #@call
        -|    losses.append(loss)
        +|    losses.append(loss.detach())
        """,
    "a dictionary that is copied": f"""
         |import torch as th
         |def step(net, x):
         |    loss = net(x).mean()  #@call
         |    return {{"loss": loss, "step": 1}}
         |
         |for x in loader:
         |    logs = step(net, x)  #@main
         |    logs["loss"].backward()
        -|    history.append(dict(logs, lr=0.1))
        +|    history.append(dict({{key: {EACH} for key, value in logs.items()}}, lr=0.1))
        """,
    "a dictionary that is unpacked": f"""
         |import torch
         |def step(net, x):
         |    loss = net(x).mean()  #@call
         |    return {{"loss": loss, "step": 1}}
         |
         |for x in loader:
         |    logs = step(net, x)  #@main
        -|    history.append({{**logs, "lr": 0.1}})
        +|    history.append({{**{{key: value.detach() if {TENSOR_OR_NOT} for key, value in logs.items()}}, "lr": 0.1}})
        """,
    "a dictionary that a function returned": f"""
         |import torch
         |def step(net, x):
         |    loss = net(x).mean()  #@call
         |    return {{"loss": loss, "step": 1}}
         |
         |for x in loader:
         |    logs = step(net, x)  #@main
         |    logs["loss"].backward()
        -|    history.append(logs)
        +|    history.append({{key: value.detach() if {TENSOR_OR_NOT} for key, value in logs.items()}})
        """,
    "a list that is copied": f"""
         |import torch
         |def steps(net, x):
         |    found = []
         |    for part in x:
         |        loss = net(part).mean()  #@call
         |        found.append(loss)
         |    found[-1].backward()
         |    return found
         |
         |for x in loader:
         |    part = steps(net, x)  #@main
        -|    history.extend(part)
        +|    history.extend([value.detach() if {TENSOR_OR_NOT} for value in part])
        """,
    "values of a display": """
         |import torch
         |history = []
         |for x in loader:
         |    loss = net(x).mean()  #@call
        -|    history.append({"loss": loss, "parts": [loss, 1]})
        +|    history.append({"loss": loss.detach(), "parts": [loss.detach(), 1]})
        """,
    "values of a display in an attribute": """
         |import torch
         |class Trainer:
         |    def step(self, x):
         |        loss = self.net(x).mean()  #@call
        -|        self.log = [*self.log, loss]
        +|        self.log = [*self.log, loss.detach()]
         |
         |trainer.step(x)  #@main
        """,
}


def _findings(writer: Any, text: str) -> Any:
    program = writer.read(text)
    at = [mark for mark in ("call", "main") if mark in program.lines]
    stack = writer.Stack(at, mib=300, ticks=3)
    site = writer.site(program, "call", calls=20)
    evidence = writer.evidence(program, [site], [stack])
    return program, evidence, RetainedGraph().findings(evidence)


@pytest.mark.parametrize("name", CASES)
def test_the_patch_cannot_fail_on_what_is_no_tensor(writer: Any, name: str) -> None:
    program, evidence, findings = _findings(writer, CASES[name])
    results = [writer.patched(evidence, patch) for item in findings for patch in item.patches]
    assert program.after in results
    assert not any(".detach()" in text and "logs.detach()" in text for text in results)


LEFT_ALONE = {
    "a form of our own": """
         |import torch
         |for x in loader:
         |    loss = net(x).mean()  #@call
         |    losses.append(loss.detach() if torch.is_tensor(loss) else loss)
        """,
    "a number that is computed where it is stored": """
         |for x in loader:
         |    loss = net(x).mean() if x.sum() > 1 else 0.0  #@call
         |    losses.append(loss * 2)
        """,
    "a dictionary that is changed later": """
         |def step(net, x):
         |    loss = net(x).mean()  #@call
         |    return {"loss": loss, "step": 1}
         |
         |for x in loader:
         |    logs = step(net, x)  #@main
         |    history.append(logs)
         |    logs["time"] = 1
        """,
    "one dictionary for all iterations": """
         |logs = {"loss": 0.0}
         |for x in loader:
         |    loss = net(x).mean()  #@call
         |    logs["loss"] = loss
         |    history.append(logs)
        """,
    "an output object": """
         |for x in loader:
         |    logs = net(x)  #@call
         |    print(logs["loss"].item())
         |    history.append(logs)
        """,
    "something that may be a dictionary or pairs": """
         |def step(net, x):
         |    return unknown(net(x).mean())  #@call
         |
         |for x in loader:
         |    logs = step(net, x)  #@main
         |    history.append(dict(logs))
        """,
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_may_be_no_tensor_is_not_detached_blindly(writer: Any, name: str) -> None:
    _, evidence, findings = _findings(writer, LEFT_ALONE[name])
    results = [writer.patched(evidence, patch) for item in findings for patch in item.patches]
    wrong = ("logs.items()", "logs.detach()", "(loss * 2).detach()", "else loss.detach()")
    assert not any(part in text for text in results for part in wrong)


def test_the_last_candidate_detaches_in_all_functions_together(writer: Any) -> None:
    program, evidence, findings = _findings(
        writer,
        """
         |class Trainer:
         |    def critic(self, x):
         |        loss = self.loss(x)  #@main
        -|        self.losses["D"].append(loss)
        +|        self.losses["D"].append(loss.detach())
         |
         |    def generator(self, x):
         |        loss = self.loss(x)
        -|        self.losses["G"].append(loss)
        +|        self.losses["G"].append(loss.detach())
         |
         |    def loss(self, x):
         |        return self.net(x).mean()  #@call
        """,
    )
    assert len(findings) == 2
    results = [writer.patched(evidence, patch) for item in findings for patch in item.patches]
    assert results[-1] == program.after
    assert results.count(program.after) == 1
