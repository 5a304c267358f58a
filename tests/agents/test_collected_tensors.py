"""Programs that collect plain tensors on the device, and programs that only look like it."""

from typing import Any

import pytest

from headroom.agents.playbook import Playbook
from headroom.agents.plays.collected_tensors import CollectedTensors

# Each program, the marks of one 300 MiB stack that grew over three calls, and how many calls had gradients on.
Case = tuple[str, list[str], int]

POSITIVE: dict[str, Case] = {
    "predictions under no_grad": (
        """
         |import torch
         |
         |@torch.no_grad()
         |def predict(model, loader):
         |    probs = []
         |    for x in loader:
         |        p = model(x).softmax(-1)  #@call
        -|        probs.append(p)
        +|        probs.append(p.detach().cpu())
         |    return probs
         |
         |predict(model, loader)  #@main
        """,
        ["call", "main"],
        0,
    ),
    "detached already, gradients on": (
        """
         |outs = []
         |for x in loader:
         |    out = model(x)  #@call
        -|    outs.append(out.detach())
        +|    outs.append(out.detach().cpu())
        """,
        ["call"],
        8,
    ),
    "detached under another name, gradients on": (
        """
         |outs = []
         |for x in loader:
         |    out = model(x).detach()  #@call
        -|    outs.append(out)
        +|    outs.append(out.detach().cpu())
        """,
        ["call"],
        8,
    ),
    "labels of the arg max": (
        """
         |outs = []
         |for x in loader:
         |    out = model(x)
        -|    outs.append(out.argmax(-1))  #@call
        +|    outs.append(out.argmax(-1).cpu())
        """,
        ["call"],
        0,
    ),
    "targets": (
        """
         |targets = []
         |for x, y in loader:
         |    y = y.cuda(non_blocking=True)  #@call
        -|    targets.append(y.detach())
        +|    targets.append(y.detach().cpu())
        """,
        ["call"],
        0,
    ),
    "targets as the data loader gives them": (
        """
         |targets = []
        -|for x, y in batches():  #@call
        -|    targets.append(y)
        +|for x, y in batches():
        +|    targets.append(y.detach().cpu())
        """,
        ["call"],
        0,
    ),
    "only the wrong half of a pair": (
        """
         |pairs = []
         |for x, y in loader:
         |    out = model(x, y)  #@call
         |    p, mask = out
        -|    pairs.append((p.cpu(), mask))
        +|    pairs.append((p.cpu(), mask.detach().cpu()))
        """,
        ["call"],
        0,
    ),
    "dictionary by key": (
        """
         |table = {}
         |for name, x in items:
        -|    table[name] = model(x)  #@call
        +|    table[name] = model(x).detach().cpu()
        """,
        ["call"],
        0,
    ),
    "dictionary values": (
        """
         |rows = []
         |for x in loader:
         |    out = model(x)  #@call
        -|    rows.append({"logits": out, "top": out.max().item()})
        +|    rows.append({"logits": out.detach().cpu(), "top": out.max().item()})
        """,
        ["call"],
        0,
    ),
    "list comprehension": (
        """
        -|outs = [model(x) for x in loader]  #@call
        +|outs = [model(x).detach().cpu() for x in loader]
        """,
        ["call:<listcomp>", "call"],
        0,
    ),
    "comprehension of pairs": (
        """
        -|outs = [(name, model(x)) for name, x in loader]  #@call
        +|outs = [(name, model(x).detach().cpu()) for name, x in loader]
        """,
        ["call:<listcomp>", "call"],
        0,
    ),
    "dictionary comprehension": (
        """
        -|outs = {name: model(x) for name, x in loader}  #@call
        +|outs = {name: model(x).detach().cpu() for name, x in loader}
        """,
        ["call:<dictcomp>", "call"],
        0,
    ),
    "list concatenation in place": (
        """
         |outs = []
         |for x in loader:
         |    out = model(x)  #@call
        -|    outs += [out]
        +|    outs += [out.detach().cpu()]
        """,
        ["call"],
        0,
    ),
    "tensor concatenation that starts from nothing": (
        """
         |outs = None
         |for x in loader:
         |    out = model(x)  #@call
        -|    outs = out if outs is None else torch.cat((outs, out))
        +|    outs = out.detach().cpu() if outs is None else torch.cat((outs, out.detach().cpu()))
        """,
        ["call"],
        0,
    ),
    "extend": (
        """
         |outs = []
         |for x in loader:
         |    out = model(x)  #@call
        -|    outs.extend([out[0], out[1]])
        +|    outs.extend([out[0].detach().cpu(), out[1].detach().cpu()])
        """,
        ["call"],
        0,
    ),
    "attribute list of a callback": (
        """
         |class Callback:
         |    def on_batch_end(self, model, x):
         |        out = model(x)  #@call
        -|        self.outputs.append(out)
        +|        self.outputs.append(out.detach().cpu())
         |
         |callback.on_batch_end(model, x)  #@main
        """,
        ["call", "main"],
        0,
    ),
    "features kept by a hook": (
        """
         |def hook(module, inputs, output):
        -|    features.append(output)
        +|    features.append(output.detach().cpu())
         |
         |model.body.register_forward_hook(hook)
         |for x in loader:
         |    model(x)  #@call
        """,
        ["call"],
        0,
    ),
    "features kept inside forward": (
        """
         |class Net(nn.Module):
         |    def forward(self, x):
         |        h = self.inner(x)  #@inner
        -|        self.kept.append(h)
        +|        self.kept.append(h.detach().cpu())
         |        return h.mean()
         |
         |for x in loader:
         |    print(model(x).item())  #@call
        """,
        ["inner", "call"],
        0,
    ),
    "a helper of the program's own": (
        """
         |class Store:
         |    def put(self, value):
        -|        self.values.append(value)
        +|        self.values.append(value.detach().cpu())
         |
         |for x in loader:
         |    store.put(model(x))  #@call
        """,
        ["call"],
        0,
    ),
    "value that moved to the device beforehand": (
        """
         |outs = []
         |for x in loader:
         |    out = model(x).to("cuda")  #@call
        -|    outs.append(out)
        +|    outs.append(out.detach().cpu())
        """,
        ["call"],
        0,
    ),
    "walrus": (
        """
         |outs = []
         |for x in loader:
        -|    outs.append(out := model(x))  #@call
        +|    outs.append((out := model(x)).detach().cpu())
        """,
        ["call"],
        0,
    ),
    "sum of two tensors": (
        """
         |outs = []
         |for x in loader:
         |    out = model(x)
        -|    outs.append(out + out.flip(0))  #@call
        +|    outs.append((out + out.flip(0)).detach().cpu())
        """,
        ["call"],
        0,
    ),
    "semicolons and a one-line body": (
        """
         |outs = []
        -|for x in loader: out = model(x); outs.append(out)  #@call
        +|for x in loader: out = model(x); outs.append(out.detach().cpu())
        """,
        ["call"],
        0,
    ),
    "generator function that fills a list": (
        """
         |def stream(model, loader, kept):
         |    for x in loader:
         |        out = model(x)  #@call
        -|        kept.append(out)
        +|        kept.append(out.detach().cpu())
         |        yield out.mean().item()
         |
         |list(stream(model, loader, []))  #@main
        """,
        ["call", "main"],
        0,
    ),
    "async": (
        """
         |async def collect(model, queue):
         |    outs = []
         |    while True:
        -|        outs.append(model(await queue.get()))  #@call
        +|        outs.append(model(await queue.get()).detach().cpu())
        """,
        ["call"],
        0,
    ),
}


def _evidence(writer: Any, text: str, at: list[str], grad_calls: int, **stack: Any) -> Any:
    program = writer.read(text)
    sites = []
    if "model(" in program.before.split("\n")[program.lines["call"] - 1]:
        sites.append(writer.site(program, "call", grad_calls=grad_calls))
    values = {"mib": 300, "ticks": 3, **stack}
    return program, writer.evidence(program, sites, [writer.Stack(at, **values)])


@pytest.mark.parametrize("name", POSITIVE)
def test_the_stored_value_moves_to_the_host(writer: Any, name: str) -> None:
    program, evidence = _evidence(writer, *POSITIVE[name])
    (finding,) = CollectedTensors().findings(evidence)
    assert finding.cause.kind == "collected_tensors"
    assert finding.cause.peak_bytes == 300 << 20
    assert [writer.patched(evidence, patch) for patch in finding.patches] == [program.after]


NEGATIVE: dict[str, Case] = {
    "on the host already": (
        """
         |for x in loader:
         |    out = model(x)  #@call
         |    a.append(out.cpu())
         |    b.append(out.to("cpu"))
         |    c.append(out.to(torch.device("cpu"), non_blocking=True))
         |    d.append(out.to(device="cpu"))
         |    e.append(out.cpu().numpy())
         |    f.append(out.tolist())
         |    g.append(out.mean().item())
         |    host = out.cpu()
         |    h.append(host.softmax(-1))
        """,
        ["call"],
        0,
    ),
    "still with its graph: that is for another play": (
        """
         |for x in loader:
         |    out = model(x)  #@call
         |    outs.append(out)
        """,
        ["call"],
        8,
    ),
    "a running total does not grow": (
        """
         |for x in loader:
         |    out = model(x)  #@call
         |    total += out.sum()
         |    mean = 0.9 * mean + out.mean()
        """,
        ["call"],
        0,
    ),
    "made anew in each iteration": (
        """
         |for x in loader:
         |    outs = []
         |    outs.append(model(x))  #@call
        """,
        ["call"],
        0,
    ),
    "replay memory that training draws from": (
        """
         |class Agent:
         |    def act(self, obs):
         |        features = self.body(obs)  #@call
         |        self.memory.append(features)
         |
         |    def learn(self):
         |        batch = torch.stack(random.sample(self.memory, 32))
         |        loss = self.head(batch).mean()
         |        loss.backward()
         |
         |agent.act(obs)  #@main
        """,
        ["call", "main"],
        0,
    ),
    "something else is collected": (
        """
         |for name, x in loader:
         |    print(model(x).mean())  #@call
         |    names.append(name)
        """,
        ["call"],
        0,
    ),
    "new memory computed from what piles up elsewhere": (
        """
         |for x in loader:
         |    out = model(x)  #@call
         |    means.append(out.mean())
         |    best.append(torch.argmax(out, -1))
         |    sums.append(out + 1)
        """,
        ["call"],
        0,
    ),
    "shapes": (
        """
         |for x in loader:
         |    out = model(x)  #@call
         |    shapes.append((out.shape, out.dtype, out.size(0), len(out)))
        """,
        ["call"],
        0,
    ),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_nothing_is_moved(writer: Any, name: str) -> None:
    _, evidence = _evidence(writer, *NEGATIVE[name])
    assert CollectedTensors().findings(evidence) == ()


def test_containers_that_meet_later_move_together(writer: Any) -> None:
    program, evidence = _evidence(
        writer,
        """
         |def main(model, loader):
         |    outs, labels, names = [], [], []
         |    for name, x, y in loader:
         |        out = model(x)  #@call
        -|        outs.append(out)
        +|        outs.append(out.detach().cpu())
        -|        labels.append(torch.randint(0, 10, (4,), device="cuda"))
        +|        labels.append(torch.randint(0, 10, (4,), device="cuda").detach().cpu())
         |        names.append(name)
         |    outs, labels = torch.cat(outs), torch.cat(labels)
         |    print(names, (outs.argmax(-1) == labels).float().mean().item())
         |
         |main(model, loader)  #@main
        """,
        ["call", "main"],
        0,
    )
    (finding,) = CollectedTensors().findings(evidence)
    assert [writer.patched(evidence, patch) for patch in finding.patches] == [program.after]


def test_containers_that_meet_in_another_function_move_together_at_second_try(writer: Any) -> None:
    program, evidence = _evidence(
        writer,
        """
         |def predict(model, loader):
         |    outs, targets = [], []
         |    for x, y in loader:
         |        out = model(x)  #@call
        -|        outs.append(out)
        -|        targets.append(y)
        +|        outs.append(out.detach().cpu())
        +|        targets.append(y.detach().cpu())
         |    return outs, targets
         |
         |outs, targets = predict(model, loader)  #@main
         |print(sum((p.argmax(-1) == y).sum().item() for p, y in zip(outs, targets)))
        """,
        ["call", "main"],
        0,
    )
    (finding,) = CollectedTensors().findings(evidence)
    alone = program.before.replace("append(out)", "append(out.detach().cpu())")
    results = [writer.patched(evidence, patch) for patch in finding.patches]
    assert results == [alone, program.after]


def test_containers_that_never_meet_stay_apart(writer: Any) -> None:
    program, evidence = _evidence(
        writer,
        """
         |outs, labels = [], []
         |for x, y in loader:
         |    out = model(x)  #@call
        -|    outs.append(out)
        +|    outs.append(out.detach().cpu())
         |    labels.append(y)
         |print(torch.cat(outs).mean(), torch.cat(labels).sum())
        """,
        ["call"],
        0,
    )
    (finding,) = CollectedTensors().findings(evidence)
    assert [writer.patched(evidence, patch) for patch in finding.patches] == [program.after]


def test_detaching_comes_first_where_a_graph_may_hold_more(writer: Any) -> None:
    program, evidence = _evidence(
        writer,
        """
         |for x in loader:
         |    out = model(x)  #@call
        -|    outs.append(out)
        +|    outs.append(out.detach().cpu())
        """,
        ["call"],
        8,
    )
    playbook = Playbook()
    candidates = playbook.propose(evidence, playbook.diagnose(evidence), ())
    plays = [candidate.play for candidate in candidates]
    assert plays == ["no_grad", "retained_graph", "retained_graph"]
    assert writer.patched(evidence, candidates[2].patch) == program.after


def test_nothing_piles_up(writer: Any) -> None:
    _, evidence = _evidence(writer, *POSITIVE["dictionary by key"], ticks=1)
    assert CollectedTensors().findings(evidence) == ()


def test_small_piles_are_left_alone(writer: Any) -> None:
    _, evidence = _evidence(writer, *POSITIVE["dictionary by key"], mib=0.9)
    assert CollectedTensors().findings(evidence) == ()
