"""Programs that keep tensors together with their graph, and programs that only look like it."""

from typing import Any

import pytest

from headroom.agents.plays.retained_graph import RetainedGraph
from headroom.evidence.model import Frame, Tick

# Each program, and the marks of one 300 MiB stack that grew over three calls, innermost first. The first mark is a
# call of a module with gradients that never came back.
Case = tuple[str, list[str]]

POSITIVE: dict[str, Case] = {
    "append": (
        """
         |def evaluate(model, loader):
         |    losses = []
         |    for x in loader:
         |        loss = model(x).mean()  #@call
        -|        losses.append(loss)
        +|        losses.append(loss.detach())
         |    return losses
         |
         |evaluate(model, loader)  #@main
        """,
        ["call", "main"],
    ),
    "append of an expression, with a comment": (
        """
         |losses = []
         |for x in loader:
         |    out = model(x)  #@call
        -|    losses.append(out.mean() * len(x))  # weighted
        +|    losses.append((out.mean() * len(x)).detach())  # weighted
        """,
        ["call"],
    ),
    "append of the call itself": (
        """
         |outs = []
         |for x in loader:
        -|    outs.append(model(x))  #@call
        +|    outs.append(model(x).detach())
        """,
        ["call"],
    ),
    "append of a tuple: only the tensor": (
        """
         |history = []
         |for step, x in enumerate(loader):
         |    loss = model(x).mean()  #@call
        -|    history.append((step, loss, loss.item(), "train"))
        +|    history.append((step, loss.detach(), loss.item(), "train"))
        """,
        ["call"],
    ),
    "append of a dictionary": (
        """
         |history = []
         |for step, x in enumerate(loader):
         |    out = model(x)  #@call
         |    history.append({
         |        "step": step,
        -|        "out": out,
        +|        "out": out.detach(),
        -|        "mean": out.mean(),
        +|        "mean": out.mean().detach(),
         |        "shape": out.shape,
         |    })
        """,
        ["call"],
    ),
    "append of an object": (
        """
         |records = []
         |for step, x in enumerate(loader):
         |    loss = model(x).mean()  #@call
        -|    records.append(Record(step=step, loss=loss))
        +|    records.append(Record(step=step, loss=loss.detach()))
        """,
        ["call"],
    ),
    "extend with a display": (
        """
         |outs = []
         |for x in loader:
         |    a, b = model(x)  #@call
        -|    outs.extend([a, b])
        +|    outs.extend([a.detach(), b.detach()])
        """,
        ["call"],
    ),
    "deque": (
        """
         |recent = deque(maxlen=100)
         |for x in loader:
         |    out = model(x)  #@call
        -|    recent.appendleft(out)
        +|    recent.appendleft(out.detach())
        """,
        ["call"],
    ),
    "set": (
        """
         |class Log:
         |    def note(self, x):
         |        out = self.model(x)  #@call
        -|        self.seen.add(out)
        +|        self.seen.add(out.detach())
         |
         |log.note(x)  #@main
        """,
        ["call", "main"],
    ),
    "heap": (
        """
         |worst = []
         |for x in loader:
         |    loss = model(x).mean()  #@call
        -|    heappush(worst, (loss.item(), loss))
        +|    heappush(worst, (loss.item(), loss.detach()))
        """,
        ["call"],
    ),
    "dictionary by key": (
        """
         |def embed(model, items):
         |    table = {}
         |    for name, x in items:
         |        h = model(x)  #@call
        -|        table[name] = h
        +|        table[name] = h.detach()
         |    return table
         |
         |embed(model, items)  #@main
        """,
        ["call", "main"],
    ),
    "running total": (
        """
         |def validate(model, loader):
         |    total = 0
         |    for x in loader:
         |        loss = model(x).mean()  #@call
        -|        total += loss
        +|        total += loss.detach()
         |    return total / len(loader)
         |
         |validate(model, loader)  #@main
        """,
        ["call", "main"],
    ),
    "running total in parentheses": (
        """
         |total = 0
         |for x in loader:
         |    loss = model(x).mean()  #@call
        -|    total += (loss * x.size(0))
        +|    total += (loss * x.size(0)).detach()
        """,
        ["call"],
    ),
    "running total over two lines": (
        """
         |total = 0
         |for x in loader:
         |    loss = model(x).mean()  #@call
        -|    total += loss \\
        -|        * 2
        +|    total += (loss \\
        +|        * 2).detach()
        """,
        ["call"],
    ),
    "running total as an assignment": (
        """
         |total = torch.zeros(())
         |for x in loader:
         |    loss = model(x).mean()  #@call
        -|    total = total + loss / 2
        +|    total = total + (loss / 2).detach()
        """,
        ["call"],
    ),
    "running total of a regulariser beside training": (
        """
         |def train(model, loader, opt):
         |    logged = 0.0
         |    for x, y in loader:
         |        pred = model(x)  #@call
         |        penalty = (pred ** 2).mean()
         |        loss = crit(model(x), y)
         |        loss.backward()
         |        opt.step()
        -|        logged += loss.item() + 0.1 * penalty
        +|        logged += (loss.item() + 0.1 * penalty).detach()
         |    return logged
         |
         |train(model, loader, opt)  #@main
        """,
        ["call", "main"],
    ),
    "conditional: only the branch that holds": (
        """
         |total = 0.0
         |for x in loader:
         |    loss = model(x).mean()  #@call
        -|    total += loss.item() if fixed else loss
        +|    total += loss.item() if fixed else loss.detach()
        """,
        ["call"],
    ),
    "list concatenation": (
        """
         |history = []
         |for x in loader:
         |    loss = model(x).mean()  #@call
        -|    history = history + [loss]
        +|    history = history + [loss.detach()]
        """,
        ["call"],
    ),
    "tensor concatenation": (
        """
         |outs = torch.empty(0, 10)
         |for x in loader:
         |    out = model(x)  #@call
        -|    outs = torch.cat([outs, out], dim=0)
        +|    outs = torch.cat([outs, out.detach()], dim=0)
        """,
        ["call"],
    ),
    "list comprehension": (
        """
        -|outs = [model(x) for x in loader]  #@call
        +|outs = [model(x).detach() for x in loader]
         |print(len(outs))
        """,
        ["call:<listcomp>", "call"],
    ),
    "comprehension that is concatenated at once": (
        """
         |def predict(model, loader):
        -|    return torch.cat([model(x)["logits"] for x in loader])  #@call
        +|    return torch.cat([model(x)["logits"].detach() for x in loader])
         |
         |predict(model, loader)  #@main
        """,
        ["call:<listcomp>", "call", "main"],
    ),
    "dictionary comprehension of pairs": (
        """
        -|outs = {k: (model(x), k) for k, x in items}  #@call
        +|outs = {k: (model(x).detach(), k) for k, x in items}
        """,
        ["call:<dictcomp>", "call"],
    ),
    "attribute list in a method": (
        """
         |class Trainer:
         |    def step(self, x):
         |        out = self.model(x)  #@call
         |        penalty = out.abs().mean()
        -|        self.penalties.append(penalty)
        +|        self.penalties.append(penalty.detach())
         |        return out.argmax(-1)
         |
         |trainer.step(x)  #@main
        """,
        ["call", "main"],
    ),
    "attribute list inside forward": (
        """
         |class Net(nn.Module):
         |    def forward(self, x):
         |        h = self.inner(x)  #@inner
        -|        self.history.append(h)
        +|        self.history.append(h.detach())
         |        return self.head(h)
         |
         |for x in loader:
         |    model(x).sum().backward()  #@call
        """,
        ["inner", "call"],
    ),
    "forward hook": (
        """
         |features = []
         |
         |def hook(module, inputs, output):
        -|    features.append(output)
        +|    features.append(output.detach())
         |
         |model.body.register_forward_hook(hook)
         |for x in loader:
         |    model(x).argmax(-1)  #@call
        """,
        ["call"],
    ),
    "forward hook as a lambda": (
        """
         |features = []
        -|model.body.register_forward_hook(lambda module, i, o: features.append(o))
        +|model.body.register_forward_hook(lambda module, i, o: features.append(o.detach()))
         |for x in loader:
         |    model(x).argmax(-1)  #@call
        """,
        ["call"],
    ),
    "forward hook from a factory": (
        """
         |features = {}
         |
         |def keep(name):
         |    def hook(module, inputs, output):
        -|        features[name] = output
        +|        features[name] = output.detach()
         |    return hook
         |
         |model.body.register_forward_hook(keep("body"))
         |for x in loader:
         |    model(x).argmax(-1)  #@call
        """,
        ["call"],
    ),
    "forward hook with a partial": (
        """
         |def hook(self, name, module, inputs, output):
        -|    self.store.setdefault(name, []).append(output)
        +|    self.store.setdefault(name, []).append(output.detach())
         |
         |model.body.register_forward_hook(partial(hook, owner, "body"))
         |for x in loader:
         |    model(x).argmax(-1)  #@call
        """,
        ["call"],
    ),
    "a dictionary that a step returns and its caller keeps": (
        """
         |class Module:
         |    def validation_step(self, batch):
         |        out = self.net(batch)  #@call
         |        loss = out.mean()
        -|        return {"loss": loss, "out": out, "size": len(batch)}
        +|        return {"loss": loss.detach(), "out": out.detach(), "size": len(batch)}
         |
         |def validate(module, loader):
         |    outs = []
         |    for batch in loader:
         |        outs.append(module.validation_step(batch))  #@main
         |    return len(outs)
         |
         |validate(module, loader)
        """,
        ["call", "main"],
    ),
    "an output with named fields: only the fields": (
        """
         |kept = []
         |for x in loader:
         |    out = model(x)  #@call
         |    both.append(out)
        -|    kept.append(out["logits"])
        +|    kept.append(out["logits"].detach())
        """,
        ["call"],
    ),
    "meter of the program's own": (
        """
         |class Meter:
         |    def update(self, value, n=1):
        -|        self.sum += value * n
        +|        self.sum += (value * n).detach()
         |        self.count += n
         |
         |for x in loader:
         |    loss = model(x).mean()  #@call
         |    meter.update(loss, len(x))
        """,
        ["call"],
    ),
    "global list through a helper": (
        """
         |LOG = []
         |
         |def note(value):
        -|    LOG.append(value)
        +|    LOG.append(value.detach())
         |
         |def run(x):
         |    note(model(x).mean())  #@call
         |
         |run(x)  #@main
        """,
        ["call", "main"],
    ),
    "closure": (
        """
         |def make(model):
         |    kept = []
         |    def score(x):
         |        out = model(x)  #@call
        -|        kept.append(out)
        +|        kept.append(out.detach())
         |        return out.argmax(-1)
         |    return score
         |
         |score(x)  #@main
        """,
        ["call", "main"],
    ),
    "through other names, tuples and methods": (
        """
         |rows = []
         |for x in loader:
         |    out, _ = model(x)  #@call
         |    best, where = out.softmax(-1).max(-1)
         |    shown = best.mean()
        -|    rows.append(shown)
        +|    rows.append(shown.detach())
        """,
        ["call"],
    ),
    "walrus": (
        """
         |outs = []
         |for x in loader:
        -|    outs.append(out := model(x))  #@call
        +|    outs.append((out := model(x)).detach())
        """,
        ["call"],
    ),
    "semicolons and a one-line body": (
        """
         |outs = []
        -|for x in loader: out = model(x); outs.append(out)  #@call
        +|for x in loader: out = model(x); outs.append(out.detach())
        """,
        ["call"],
    ),
    "tabs and letters outside ASCII": (
        """
         |größe = []
         |for x in loader:
         |\tübung = model(x)  #@call
        -|\tgröße.append(("é", übung))
        +|\tgröße.append(("é", übung.detach()))
        """,
        ["call"],
    ),
    "await": (
        """
         |async def collect(model, queue):
         |    outs = []
         |    async for x in queue:
        -|        outs.append(await model(x))  #@call
        +|        outs.append((await model(x)).detach())
         |
         |asyncio.run(collect(model, queue))  #@main
        """,
        ["call", "main"],
    ),
    "subscript target of an attribute, under a condition": (
        """
         |class Cache:
         |    def get(self, key, x):
         |        if key not in self.store:
        -|            self.store[key] = self.model(x)  #@call
        +|            self.store[key] = self.model(x).detach()
         |        return self.store[key].argmax(-1)
         |
         |cache.get(key, x)  #@main
        """,
        ["call", "main"],
    ),
}


def _evidence(writer: Any, text: str, at: list[str], **stack: Any) -> Any:
    program = writer.read(text)
    site = writer.site(program, "call", calls=20)
    return program, writer.evidence(
        program, [site], [writer.Stack(at, **{"mib": 300, "ticks": 3, **stack})]
    )


@pytest.mark.parametrize("name", POSITIVE)
def test_the_stored_value_is_detached(writer: Any, name: str) -> None:
    program, evidence = _evidence(writer, *POSITIVE[name])
    (finding,) = RetainedGraph().findings(evidence)
    assert finding.cause.kind == "retained_graph"
    assert finding.cause.peak_bytes == 300 << 20
    assert finding.saving_bytes == 200 << 20
    assert finding.cause.stack_ids == ("S001",)
    detaching = [patch for patch in finding.patches if patch.title.startswith("Detach")]
    assert [writer.patched(evidence, patch) for patch in detaching] == [program.after]


NEGATIVE: dict[str, Case] = {
    "a Python number": (
        """
         |losses = []
         |for x in loader:
         |    loss = model(x).mean()  #@call
         |    losses.append(loss.item())
         |    total += float(loss)
         |    text = f"{loss:.3f}"
         |    lines.append("%.3f" % loss)
         |    lines.append(str(loss))
        """,
        ["call"],
    ),
    "detached already": (
        """
         |for x in loader:
         |    loss = model(x).mean()  #@call
         |    losses.append(loss.detach())
         |    others.append(loss.data)
         |    moved.append(loss.detach().cpu() * 2)
         |    shown = loss.detach()
         |    kept.append((shown, shown + 1))
        """,
        ["call"],
    ),
    "no graph behind an index, a comparison or a shape": (
        """
         |for x, y in loader:
         |    out = model(x)  #@call
         |    hits.append(out.argmax(-1) == y)
         |    correct += (out.argmax(-1) == y).sum()
         |    shapes.append(out.shape)
         |    sizes.append(out.size(0))
        """,
        ["call"],
    ),
    "summed for the backward pass": (
        """
         |for batch in loader:
         |    losses = []
         |    for x in batch:
         |        losses.append(model(x).mean())  #@call
         |    sum(losses).backward()
        """,
        ["call"],
    ),
    "running total for the backward pass": (
        """
         |total = 0
         |for x in batch:
         |    total += model(x).mean()  #@call
         |total.backward()
        """,
        ["call"],
    ),
    "the backward pass comes first in the text": (
        """
         |pending = []
         |for x in loader:
         |    if len(pending) == 4:
         |        torch.stack(pending).mean().backward()
         |        pending.clear()
         |    pending.append(model(x).mean())  #@call
        """,
        ["call"],
    ),
    "needed by another method": (
        """
         |class Agent:
         |    def act(self, obs):
         |        log_prob = self.policy(obs)  #@call
         |        self.log_probs.append(log_prob)
         |
         |    def learn(self, returns):
         |        loss = 0
         |        for log_prob, value in zip(self.log_probs, returns):
         |            loss = loss - log_prob * value
         |        loss.backward()
         |
         |agent.act(obs)  #@main
        """,
        ["call", "main"],
    ),
    "needed by another file's trainer through an attribute": (
        """
         |class Router(nn.Module):
         |    def forward(self, x):
         |        gates = self.gate(x)  #@inner
         |        self.aux_losses.append(gates.var())
         |        return gates
         |
         |def train(model, x, y):
         |    out = model(x)  #@call
         |    loss = mse(out, y) + sum(model.aux_losses)
         |    accelerator.backward(loss)
        """,
        ["inner", "call"],
    ),
    "hidden state carried across iterations": (
        """
         |h = None
         |for x in loader:
         |    out, h = rnn(x, h)  #@call
         |    out.mean().backward(retain_graph=True)
        """,
        ["call"],
    ),
    "residual connections": (
        """
         |class Net(nn.Module):
         |    def forward(self, x):
         |        for layer in self.layers:
         |            x = x + layer(x)  #@inner
         |            x += self.norm(x)
         |        return x
         |
         |for x in loader:
         |    model(x).argmax(-1)  #@call
        """,
        ["inner", "call"],
    ),
    "a parameter that is assigned anew": (
        """
         |def step(total, x):
         |    total = total + model(x).mean()  #@call
         |    print(total)
         |
         |step(0, x)  #@main
        """,
        ["call", "main"],
    ),
    "returned to a caller out of sight": (
        """
         |class Module(LightningModule):
         |    def training_step(self, parts, index):
         |        losses = {}
         |        for name, part in parts:
         |            losses[name] = self.net(part).mean()  #@call
         |        return losses
         |
         |trainer.fit(module)
        """,
        ["call"],
    ),
    "hidden state in an attribute": (
        """
         |class Net(nn.Module):
         |    def forward(self, x):
         |        self.h = self.cell(x, self.h)  #@inner
         |        return self.h
         |
         |for x in loader:
         |    model(x).mean().backward(retain_graph=True)  #@call
         |    model.h.mean().backward()
        """,
        ["inner", "call"],
    ),
    "a dictionary that a training step returns": (
        """
         |class Module:
         |    def step(self, batch):
         |        loss = self.net(batch).mean()  #@call
         |        return {"loss": loss, "size": len(batch)}
         |
         |for batch in loader:
         |    outs.append(module.step(batch))  #@main
         |    outs[-1]["loss"].backward()
        """,
        ["call", "main"],
    ),
    "made anew in each iteration": (
        """
         |for x in loader:
         |    outs = []
         |    out = model(x)  #@call
         |    outs.append(out)
         |    print(len(outs))
        """,
        ["call"],
    ),
    "local to forward": (
        """
         |class Net(nn.Module):
         |    def forward(self, x):
         |        skips = []
         |        for layer in self.layers:
         |            x = layer(x)  #@inner
         |            skips.append(x)
         |        return torch.stack(skips)
         |
         |for x in loader:
         |    model(x).argmax(-1)  #@call
        """,
        ["inner", "call"],
    ),
    "something else is appended": (
        """
         |names = []
         |for name, x in loader:
         |    out = model(x)  #@call
         |    print(out.mean())
         |    names.append(name)
         |    sizes.append(len(x))
        """,
        ["call"],
    ),
    "the name is used for something else by then": (
        """
         |kept = []
         |for x in loader:
         |    out = model(x)  #@call
         |    print(out.mean())
         |    out = "done"
         |    kept.append(out)
        """,
        ["call"],
    ),
    "without a graph inside torch.no_grad": (
        """
         |import torch
         |
         |ema = 0
         |for x in loader:
         |    loss = model(x).mean()  #@call
         |    with torch.no_grad():
         |        ema = 0.9 * ema + 0.1 * loss
         |        trail.append(loss * 2)
        """,
        ["call"],
    ),
    "autograd's own context": (
        """
         |class Square(torch.autograd.Function):
         |    @staticmethod
         |    def forward(ctx, x):
         |        y = x * inner(x)  #@inner
         |        ctx.y = y
         |        return y
         |
         |for x in loader:
         |    model(x)  #@call
        """,
        ["inner", "call"],
    ),
    "gradients and data are autograd's own": (
        """
         |for x in loader:
         |    out = model(x)  #@call
         |    weight.grad = out
         |    weight.data = out
        """,
        ["call"],
    ),
    "going through a list holds nothing new": (
        """
         |def show(losses):
         |    return [float(loss) for loss in losses]
         |
         |for x in loader:
         |    out = model(x)  #@call
         |    print([part.shape for part in out], sum(part for part in out))
        """,
        ["call"],
    ),
    "torch.add is no container": (
        """
         |for x in loader:
         |    out = model(x)  #@call
         |    print(torch.add(out, 1), F.insert(out))
        """,
        ["call"],
    ),
    "the right container of a dictionary of lists is needed": (
        """
         |store = {"loss": []}
         |for x in batch:
         |    store["loss"].append(model(x).mean())  #@call
         |torch.stack(store["loss"]).sum().backward()
        """,
        ["call"],
    ),
    "needed by an optimizer's closure": (
        """
         |def fit(model, batch, opt):
         |    losses = []
         |    for x in batch:
         |        losses.append(model(x).mean())  #@call
         |    def closure():
         |        total = torch.stack(losses).sum()
         |        total.backward()
         |        return total
         |    opt.step(closure)
         |
         |fit(model, batch, opt)  #@main
        """,
        ["call", "main"],
    ),
    "needed by the caller": (
        """
         |def losses_of(model, batch):
         |    losses = []
         |    for x in batch:
         |        losses.append(model(x).mean())  #@call
         |    return losses
         |
         |for batch in loader:
         |    losses = losses_of(model, batch)  #@main
         |    total = torch.stack(losses).mean()
         |    total.backward()
        """,
        ["call", "main"],
    ),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_nothing_is_detached(writer: Any, name: str) -> None:
    _, evidence = _evidence(writer, *NEGATIVE[name])
    assert RetainedGraph().findings(evidence) == ()


def test_nothing_piles_up(writer: Any) -> None:
    _, evidence = _evidence(writer, *POSITIVE["append"], ticks=1)
    assert RetainedGraph().findings(evidence) == ()


def test_what_an_earlier_call_left_behind_counts_where_nothing_grows(writer: Any) -> None:
    born = Tick(update=4, call=33)
    program, evidence = _evidence(writer, *POSITIVE["append"], ticks=1, born=born)
    (finding,) = RetainedGraph().findings(evidence)
    assert finding.saving_bytes == finding.cause.peak_bytes == 300 << 20
    assert writer.patched(evidence, finding.patches[0]) == program.after


@pytest.mark.parametrize("born", [None, Tick(update=0, call=0)])
def test_the_model_itself_is_not_left_behind(writer: Any, born: Tick | None) -> None:
    _, evidence = _evidence(writer, *POSITIVE["append"], ticks=1, born=born)
    assert RetainedGraph().findings(evidence) == ()


def test_an_attribute_holds_what_the_last_call_left(writer: Any) -> None:
    program, evidence = _evidence(
        writer,
        """
         |class Trainer:
         |    def validate(self, x):
         |        out = self.model(x)  #@call
        -|        self.last = out.mean()
        +|        self.last = out.mean().detach()
         |
         |trainer.validate(x)  #@main
        """,
        ["call", "main"],
        ticks=1,
        born=Tick(update=5, call=39),
    )
    (finding,) = RetainedGraph().findings(evidence)
    assert writer.patched(evidence, finding.patches[0]) == program.after


def test_stacks_of_the_backward_pass_do_not_count(writer: Any) -> None:
    _, evidence = _evidence(writer, *POSITIVE["append"], backward=True)
    assert RetainedGraph().findings(evidence) == ()


def test_optimizer_state_does_not_count(writer: Any) -> None:
    program, _ = _evidence(writer, *POSITIVE["append"])
    adam = Frame(filename="/venv/torch/optim/adam.py", line=100, name="_init_group")
    stack = writer.Stack(["call", "main"], mib=300, ticks=3, frames=(adam,))
    evidence = writer.evidence(program, [writer.site(program, "call")], [stack])
    assert RetainedGraph().findings(evidence) == ()


def test_without_gradients_there_is_no_graph(writer: Any) -> None:
    program, _ = _evidence(writer, *POSITIVE["append"])
    site = writer.site(program, "call", calls=20, grad_calls=0)
    stacks = [writer.Stack(["call", "main"], mib=300, ticks=3)]
    assert RetainedGraph().findings(writer.evidence(program, [site], stacks)) == ()


def test_small_piles_are_left_alone(writer: Any) -> None:
    _, evidence = _evidence(writer, *POSITIVE["append"], mib=0.9)
    assert RetainedGraph().findings(evidence) == ()


SEVERAL = """
 |def evaluate(model, loader):
 |    losses, outs = [], {}
 |    for step, x in enumerate(loader):
 |        out = model(x)  #@call
 |        loss = out.mean()  #@loss
-|        outs[step] = out
+|        outs[step] = out.detach()
 |        self.last = out
 |        self.last = None
-|        losses.append(loss)
+|        losses.append(loss.detach())
 |    return losses, outs
 |
 |evaluate(model, loader)  #@main
"""


def test_single_edits_come_first_and_then_all_together(writer: Any) -> None:
    program = writer.read(
        SEVERAL.replace(" |        self.last = out\n |        self.last = None\n", "")
    )
    stacks = [
        writer.Stack(["call", "main"], mib=300, ticks=3),
        writer.Stack(["loss", "main"], mib=30, ticks=3),
    ]
    evidence = writer.evidence(program, [writer.site(program, "call")], stacks)
    (finding,) = RetainedGraph().findings(evidence)
    assert finding.cause.stack_ids == ("S001", "S002")
    results = [writer.patched(evidence, patch) for patch in finding.patches]
    # A loss can hold both stacks, an output only the first.
    assert results[0] == program.before.replace("append(loss)", "append(loss.detach())")
    assert results[1] == program.before.replace("= out\n", "= out.detach()\n")
    assert results[2] == program.after
    # Where detaching saves nothing, the values themselves are what piles up.
    assert results[3:] == [program.after.replace(".detach()", ".detach().cpu()")]


def test_an_attribute_is_tried_after_what_piles_up(writer: Any) -> None:
    program = writer.read(SEVERAL)
    stacks = [writer.Stack(["call", "main"], mib=300, ticks=3)]
    evidence = writer.evidence(program, [writer.site(program, "call")], stacks)
    (finding,) = RetainedGraph().findings(evidence)
    lines = [patch.edits[0].start for patch in finding.patches[:3]]
    assert lines == [6, 9, 7]


def test_a_value_made_on_the_device_has_no_graph(writer: Any) -> None:
    program = writer.read(
        """
         |targets = []
         |for x, y in loader:
         |    y = y.cuda()  #@move
         |    targets.append(y)
        """
    )
    evidence = writer.evidence(program, [], [writer.Stack(["move"], mib=300, ticks=3)])
    assert RetainedGraph().findings(evidence) == ()


def test_a_value_made_where_it_is_stored_has_no_graph(writer: Any) -> None:
    program = writer.read(
        """
         |targets = []
         |for x in loader:
         |    targets.append(torch.randint(0, 9, (4,), device="cuda"))  #@make
        """
    )
    evidence = writer.evidence(program, [], [writer.Stack(["make"], mib=300, ticks=3)])
    assert RetainedGraph().findings(evidence) == ()


def test_a_running_total_never_moves_to_the_host(writer: Any) -> None:
    _, evidence = _evidence(writer, *POSITIVE["running total"])
    (finding,) = RetainedGraph().findings(evidence)
    assert [patch.title for patch in finding.patches] == ["Detach `loss` at line 5"]


def test_operations_outside_of_any_module_may_have_a_graph(writer: Any) -> None:
    program = writer.read(
        """
         |losses = []
         |for x, y in loader:
         |    h = torch.relu(x @ weight)  #@op
         |    loss = h.mean()
        -|    losses.append(loss)
        +|    losses.append(loss.detach())
        """
    )
    evidence = writer.evidence(program, [], [writer.Stack(["op"], mib=300, ticks=3)])
    (finding,) = RetainedGraph().findings(evidence)
    assert writer.patched(evidence, finding.patches[0]) == program.after
