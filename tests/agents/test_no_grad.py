"""Programs that evaluate with gradients on, and programs that only look like it."""

import dataclasses
from typing import Any

import pytest

from headroom.agents.plays.no_grad import NoGrad

TRAINED = {"calls": 8, "reached_calls": 8}
EVALUATED = {"calls": 8, "eval_calls": 8}

# Each program, the call sites by mark, and the marks of one 100 MiB stack of the peak, innermost first.
Case = tuple[str, dict[str, dict[str, Any]], list[str]]

POSITIVE: dict[str, Case] = {
    "function": (
        """
         |import torch
         |
         |def train(model, loader, opt):
         |    for x, y in loader:
         |        loss = crit(model(x), y)  #@train
         |        loss.backward()
         |        opt.step()
         |
        +|@torch.no_grad()
         |def evaluate(model, loader):
         |    model.eval()
         |    total = 0.0
         |    for x, y in loader:
         |        loss = crit(model(x), y)  #@call
         |        total += loss.item()
         |    return total
         |
         |for epoch in range(3):
         |    train(model, loader, opt)
         |    evaluate(model, loader)  #@main
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call", "main"],
    ),
    "train mode, but no gradient ever came": (
        """
         |import torch
         |
         |def train(model, x):
         |    model(x).sum().backward()  #@train
         |
        +|@torch.no_grad()
         |def probe(model, x):
         |    return model(x).mean()  #@call
         |
         |train(model, x)
         |print(probe(model, x))  #@main
        """,
        {"train": TRAINED, "call": {"calls": 4}},
        ["call", "main"],
    ),
    "method, torch under another name": (
        """
         |import torch as th
         |
         |class Trainer:
         |    def fit(self):
         |        self.model(x).sum().backward()  #@train
         |        self.validate()  #@main
         |
        +|    @th.no_grad()
         |    def validate(self):
         |        for x in self.loader:
         |            self.metric.update(self.model(x))  #@call
        """,
        {"train": TRAINED, "call": {}},
        ["call", "main"],
    ),
    "tabs": (
        """
         |import torch
         |class Runner:
         |\tdef train(self, x):
         |\t\tself.net(x).sum().backward()  #@train
        +|\t@torch.no_grad()
         |\tdef check(self, x):
         |\t\treturn float(self.net(x))  #@call
         |
         |Runner().check(x)  #@main
        """,
        {"train": TRAINED, "call": {}},
        ["call", "main"],
    ),
    "no torch import, docstring and future import": (
        '''
         |#!/usr/bin/env python
         |"""Evaluate a model."""
         |
         |from __future__ import annotations
         |
        +|import torch
         |from mymodel import Net
         |
        +|@torch.no_grad()
         |def evaluate(net, x):
         |    return float(net(x))  #@call
         |
         |evaluate(Net().eval(), x)  #@main
        ''',
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "only submodules of torch are imported under other names": (
        """
        +|import torch
         |import torch.nn as nn
         |import torch.nn.functional as F
         |
        +|@torch.no_grad()
         |def evaluate(net, x):
         |    return F.softmax(net(x), -1).max().item()  #@call
         |
         |evaluate(net, x)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "import of a submodule binds torch": (
        """
         |import torch.nn
         |
        +|@torch.no_grad()
         |def evaluate(net, x):
         |    return net(x).max().item()  #@call
         |
         |evaluate(net, x)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "no imports at all: the function is the first statement": (
        """
        +|import torch
        +|@torch.no_grad()
         |def evaluate(net, x):
         |    return net(x).max().item()  #@call
         |
         |evaluate(net, x)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "no imports at all: the loop is the first statement": (
        """
        -|for x in loader:
        -|    print(net(x).max().item())  #@call
        +|import torch
        +|with torch.no_grad():
        +|    for x in loader:
        +|        print(net(x).max().item())
        """,
        {"call": EVALUATED},
        ["call"],
    ),
    "no imports at all, but a docstring": (
        """
         |'Evaluate.'
        -|x = net(x)  #@call
        +|import torch
        +|with torch.no_grad():
        +|    x = net(x)
        """,
        {"call": EVALUATED},
        ["call"],
    ),
    "torch is imported too late": (
        """
        +|import torch
         |import sys
         |
        +|@torch.no_grad()
         |def evaluate(net, x):
         |    return net(x).max().item()  #@call
         |
         |import torch
         |evaluate(net, x)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "decorators: ours goes closest to the function": (
        """
         |import torch
         |
         |class Model:
         |    @property
         |    @timed("score")
        +|    @torch.no_grad()
         |    def score(self):
         |        return self.net(self.batch).item()  #@call
         |
         |print(model.score)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "a decorator that turns gradients on again": (
        """
         |import torch
         |
         |@torch.enable_grad()
        +|@torch.no_grad()
         |def evaluate(net, x):
         |    return net(x).max().item()  #@call
         |
         |evaluate(net, x)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "validation step that a library calls": (
        """
         |import torch
         |
         |class Module(LightningModule):
         |    def training_step(self, batch, index):
         |        return self.net(batch).mean()  #@train
         |
        +|    @torch.no_grad()
         |    def validation_step(self, batch, index):
         |        loss = self.net(batch).mean()  #@call
         |        self.log("val", loss)
         |        return loss
         |
         |trainer.validate(module)  #@main
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call", "main"],
    ),
    "generator function": (
        """
         |import torch
         |
        +|@torch.no_grad()
         |def predictions(net, loader):
         |    for x in loader:
         |        yield net(x)  #@call
         |
         |for p in predictions(net, loader):  #@main
         |    print(p.mean())
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "nested function": (
        """
         |import torch
         |
         |def fit(model, opt):
        +|    @torch.no_grad()
         |    def validate(x):
         |        return model(x).argmax(-1)  #@call
         |
         |    for x in loader:
         |        loss = model(x).sum()  #@train
         |        loss.backward()
         |        opt.step()
         |        print(validate(x))  #@main
        """,
        {"train": TRAINED, "call": {}},
        ["call", "main"],
    ),
    "lambda": (
        """
         |import torch
         |
        -|score = lambda x: model(x).argmax(-1)  #@call
        +|score = torch.no_grad()(lambda x: model(x).argmax(-1))
         |
         |for x in loader:
         |    print(score(x))  #@main
        """,
        {"call:<lambda>": EVALUATED},
        ["call:<lambda>", "main"],
    ),
    "lambda as an argument": (
        """
         |import torch
         |
         |train(model)  #@train
        -|results = run(lambda x: (model(x), 1), loader)  #@call
        +|results = run(torch.no_grad()(lambda x: (model(x), 1)), loader)
        """,
        {"train": TRAINED, "call:<lambda>": EVALUATED},
        ["call:<lambda>"],
    ),
    "async function: the decorator would do nothing there": (
        """
         |import torch
         |
         |async def evaluate(net, loader):
        -|    async for x in loader:
        -|        y = net(x)  #@call
        -|        await send(float(y.mean()))
        +|    with torch.no_grad():
        +|        async for x in loader:
        +|            y = net(x)
        +|            await send(float(y.mean()))
         |
         |asyncio.run(evaluate(net, loader))  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "async evaluation beside async training: no await under the guard": (
        """
         |import torch
         |
         |async def train(net, loader):
         |    async for x in loader:
         |        net(x).sum().backward()  #@train
         |
         |async def evaluate(net, loader):
         |    async for x in loader:
        -|        y = net(x)  #@call
        +|        with torch.no_grad():
        +|            y = net(x)
         |        await send(float(y.mean()))
         |
         |asyncio.gather(train(net, a), evaluate(net, b))  #@main
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call", "main"],
    ),
    "module level, beside training in one loop": (
        """
         |import torch
         |
         |for epoch in range(3):
         |    for x, y in train_loader:
         |        loss = crit(model(x), y)  #@train
         |        opt.zero_grad()
         |        loss.backward()
         |        opt.step()
         |
         |    model.eval()
        -|    for x, y in val_loader:
        -|        # held-out data
        -|
        -|        loss = crit(model(x), y)  #@call
        -|        total += float(loss)
        +|    with torch.no_grad():
        +|        for x, y in val_loader:
        +|            # held-out data
        +|
        +|            loss = crit(model(x), y)
        +|            total += float(loss)
         |    model.train()
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call"],
    ),
    "multi-line strings inside the wrapped block": (
        '''
         |import torch
         |
         |for x in train_loader:
         |    model(x).sum().backward()  #@train
         |
        -|for x in val_loader:
        -|    y = model(x)  #@call
        -|    print("""mean
        -|  of this batch:
        -|    """, y.mean())
        -|    print(f"""
        -|{y.mean()}
        -|""", \'a\\
        -|b\')
        +|with torch.no_grad():
        +|    for x in val_loader:
        +|        y = model(x)
        +|        print("""mean
        +|  of this batch:
        +|    """, y.mean())
        +|        print(f"""
        +|{y.mean()}
        +|""", \'a\\
        +|b\')
        ''',
        {"train": TRAINED, "call": EVALUATED},
        ["call"],
    ),
    "one-line loop body": (
        """
         |import torch
         |
         |for x in train_loader: model(x).sum().backward()  #@train
        -|for x in val_loader: total += float(model(x).mean()); seen += 1  #@call
        +|with torch.no_grad():
        +|    for x in val_loader: total += float(model(x).mean()); seen += 1
         |print(total)
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call"],
    ),
    "semicolons: the neighbours move along": (
        """
         |import torch
         |
         |for x, v in loader:
         |    loss = model(x).sum()  #@train
        -|    n += 1; out = model(v); acc = (out > 0).sum()  #@call
        +|    with torch.no_grad():
        +|        n += 1; out = model(v); acc = (out > 0).sum()
         |    loss.backward()
        """,
        {"train": TRAINED, "call": {}},
        ["call"],
    ),
    "continued lines and hanging parentheses": (
        """
         |import torch
         |
         |for x, v in loader:
         |    model(x).sum().backward()  #@train
        -|    out = teacher(  #@call
        -|        v,
        -|  mask=None,
        -|)
        +|    with torch.no_grad():
        +|        out = teacher(
        +|            v,
        +|      mask=None,
        +|    )
         |    best = \\
         |        out.argmax(-1)
        """,
        {"train": TRAINED, "call": {}},
        ["call"],
    ),
    "walrus": (
        """
         |import torch
         |
         |def train(x):
         |    model(x).sum().backward()  #@train
         |
         |train(x)
        -|while (out := model(next(batches))).mean() > 0.5:  #@call
        -|    shown += 1
        +|with torch.no_grad():
        +|    while (out := model(next(batches))).mean() > 0.5:
        +|        shown += 1
        """,
        {"train": TRAINED, "call": {}},
        ["call"],
    ),
    "comprehension": (
        """
         |import torch
         |
         |def train(x):
         |    model(x).sum().backward()  #@train
         |
         |train(x)
        -|scores = [model(x).mean().item() for x in loader]  #@call
        +|with torch.no_grad():
        +|    scores = [model(x).mean().item() for x in loader]
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call:<listcomp>", "call"],
    ),
    "generator expression that is consumed at once": (
        """
         |import torch
         |
         |model(x).sum().backward()  #@train
        -|total = sum(model(x).mean() for x in loader)  #@call
        +|with torch.no_grad():
        +|    total = sum(model(x).mean() for x in loader)
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call:<genexpr>", "call"],
    ),
    "inactive guard: gradients are switched on inside it": (
        """
         |import torch
         |
         |def evaluate(model, loader, need_grad=True):
         |    model.eval()
         |    with torch.set_grad_enabled(need_grad):
        -|        for x in loader:
        -|            y = model(x)  #@call
        -|            total += float(y.mean())
        +|        with torch.no_grad():
        +|            for x in loader:
        +|                y = model(x)
        +|                total += float(y.mean())
         |
         |evaluate(model, loader)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "inactive guard: home-made context manager of the right name": (
        """
         |import torch
         |from helpers import inference_mode
         |
         |def evaluate(model, loader):
         |    with inference_mode(True):
        -|        for x in loader:
        -|            y = model(x)  #@call
        +|        with torch.no_grad():
        +|            for x in loader:
        +|                y = model(x)
         |
         |evaluate(model, loader)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "inactive guard: a statement that switches gradients on": (
        """
         |import torch
         |
         |def evaluate(model, loader):
         |    torch.set_grad_enabled(True)
        -|    for x in loader:
        -|        y = model(x)  #@call
        +|    with torch.no_grad():
        +|        for x in loader:
        +|            y = model(x)
         |
         |evaluate(model, loader)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "what is frozen asks for no gradients": (
        """
         |import torch
         |
        +|@torch.no_grad()
         |def evaluate(model, loader):
         |    for parameter in model.parameters():
         |        parameter.requires_grad = False
         |    model.requires_grad_(False)
         |    torch.set_grad_enabled(False)
         |    for x in loader:
         |        y = model(x)  #@call
         |
         |evaluate(model, loader)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "a region that asks for gradients is left outside": (
        """
         |import torch
         |
         |def evaluate(model, loader):
         |    bias = torch.zeros(1)
         |    bias.requires_grad = True
        -|    for x in loader:
        -|        y = model(x)  #@call
        +|    with torch.no_grad():
        +|        for x in loader:
        +|            y = model(x)
         |
         |evaluate(model, loader)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "autocast says nothing about gradients": (
        """
         |import torch
         |
        +|@torch.no_grad()
         |def evaluate(model, loader):
         |    with torch.autocast("cuda"):
         |        for x in loader:
         |            y = model(x)  #@call
         |
         |evaluate(model, loader)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "validation inside the training function": (
        """
         |import torch
         |
         |def fit(model, opt, loader, held_out):
         |    for step, x in enumerate(loader):
         |        loss = model(x).sum()  #@train
         |        loss.backward()
         |        opt.step()
         |        if step % 10 == 0:
         |            print(step)
        -|            for v in held_out:
        -|                shown = model(v)  #@call
        -|                print(shown.mean().item())
        +|            with torch.no_grad():
        +|                for v in held_out:
        +|                    shown = model(v)
        +|                    print(shown.mean().item())
         |
         |fit(model, opt, loader, held_out)  #@main
        """,
        {"train": TRAINED, "call": {}},
        ["call", "main"],
    ),
    "elif cannot be wrapped, its body can": (
        """
         |import torch
         |
         |for phase in phases:
         |    if phase == "train":
         |        model(x).sum().backward()  #@train
         |    elif phase == "val":
        -|        y = model(x)  #@call
        +|        with torch.no_grad():
        +|            y = model(x)
         |        print(y.mean())
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call"],
    ),
    "frozen teacher whose output is detached": (
        """
         |import torch
         |
         |def step(x):
        -|    target = teacher(x)  #@call
        +|    with torch.no_grad():
        +|        target = teacher(x)
         |    loss = mse(student(x), target.detach())  #@train
         |    loss.backward()
         |
         |step(x)  #@main
        """,
        {"train": TRAINED, "call": {"module": "Teacher"}},
        ["call", "main"],
    ),
    "loss function shared with training": (
        """
         |import torch
         |
         |def loss_of(out, y):
         |    return ((out - y) ** 2).mean()
         |
         |def train(x, y):
         |    loss = loss_of(model(x), y)  #@train
         |    loss.backward()
         |
        +|@torch.no_grad()
         |def evaluate(x, y):
         |    out = model(x)  #@call
         |    return loss_of(out, y).item()
         |
         |train(x, y)
         |evaluate(x, y)  #@main
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call", "main"],
    ),
    "rollout in a helper, learnt from later by another call": (
        """
         |import torch
         |
        +|@torch.no_grad()
         |def act(policy, obs):
         |    return policy(obs).argmax(-1).item()  #@call
         |
         |def rollout(env, policy):
         |    while not env.done:
         |        env.step(act(policy, env.obs))  #@outer
         |
         |def learn(policy, batch):
         |    policy(batch).mean().backward()  #@train
         |
         |rollout(env, policy)  #@main
         |learn(policy, batch)
        """,
        {"train": TRAINED, "call": {"calls": 300}},
        ["call", "outer", "main"],
    ),
    "generator beside training: its consumer must not run under the guard": (
        """
         |import torch
         |
         |def fit(model, loader, held_out):
         |    for x in loader:
         |        model(x).sum().backward()  #@train
         |    for v in held_out:
        -|        out = model(v)  #@call
        +|        with torch.no_grad():
        +|            out = model(v)
         |        yield out.mean().item()
         |
         |list(fit(model, loader, held_out))  #@main
        """,
        {"train": TRAINED, "call": EVALUATED},
        ["call", "main"],
    ),
    "teacher in a step whose backward pass a library runs": (
        """
         |import torch
         |
         |class Module(LightningModule):
         |    def training_step(self, batch, index):
        -|        target = self.teacher(batch)  #@call
        +|        with torch.no_grad():
        +|            target = self.teacher(batch)
         |        return mse(self.net(batch), target.detach())  #@train
         |
         |launch(module)  #@main
        """,
        {"train": TRAINED, "call": {"module": "Teacher"}},
        ["call", "main"],
    ),
    "something else in the function is trained": (
        """
         |import torch
         |
         |def features(x):
        -|    h = encoder(x)  #@call
        +|    with torch.no_grad():
        +|        h = encoder(x)
         |    z = x @ weight
         |    return h.detach(), z
         |
         |for x in loader:
         |    h, z = features(x)  #@main
         |    (h * z).sum().backward()
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "decorator that reads the source": (
        """
         |import torch
         |
         |@torch.jit.script
         |def evaluate(net, x):
        -|    y = net(x)  #@call
        +|    with torch.no_grad():
        +|        y = net(x)
         |    print(y.mean())
         |
         |evaluate(net, x)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
    "generator expression that the program itself consumes elsewhere": (
        """
         |import torch
         |
         |def outputs(model, loader):
         |    return (model(x).argmax(-1) for x in loader)  #@call
         |
        -|for y in outputs(model, loader):  #@main
        -|    print(y)
        +|with torch.no_grad():
        +|    for y in outputs(model, loader):
        +|        print(y)
        """,
        {"call:<genexpr>": EVALUATED},
        ["call:<genexpr>", "main"],
    ),
    "the only call, in eval mode, ran out of memory": (
        """
         |import torch
         |
         |model.eval()
        -|out = model(images)  #@call
        +|with torch.no_grad():
        +|    out = model(images)
         |print(out.argmax(-1))
        """,
        {"call": {"calls": 1, "eval_calls": 1}},
        ["call"],
    ),
    "the only call, in a program that never trains": (
        """
         |import torch
         |
        +|@torch.no_grad()
         |def embed(model, images):
         |    features = model(images)  #@call
         |    save(features.cpu().numpy())
         |
         |embed(model, images)  #@main
        """,
        {"call": {"calls": 1}},
        ["call", "main"],
    ),
    "a scheduler's step is no optimizer's": (
        """
         |import torch
         |
        +|@torch.no_grad()
         |def validate(model, scheduler, x):
         |    loss = model(x).mean()  #@call
         |    scheduler.step(loss)
         |    bar.update(1)
         |
         |validate(model, scheduler, x)  #@main
        """,
        {"call": EVALUATED},
        ["call", "main"],
    ),
}


@pytest.mark.parametrize("name", POSITIVE)
def test_the_guard_goes_where_it_belongs(writer: Any, name: str) -> None:
    text, sites, at = POSITIVE[name]
    program = writer.read(text)
    evidence = writer.evidence(
        program,
        [writer.site(program, mark, **counts) for mark, counts in sites.items()],
        [writer.Stack(at)],
    )
    (cause,) = NoGrad().detect(evidence)
    assert cause.kind == "evaluation_with_graph"
    assert cause.peak_bytes == 100 << 20
    assert cause.stack_ids == ("S001",)
    (patch,) = NoGrad().edits(evidence, cause)
    assert writer.patched(evidence, patch) == program.after


NEGATIVE: dict[str, Case] = {
    "gradients came back": (
        """
         |def evaluate(model, x):
         |    return model(x)  #@call
         |
         |evaluate(model, x)  #@main
        """,
        {"call": {"reached_calls": 1}},
        ["call", "main"],
    ),
    "gradients were off": (
        """
         |def evaluate(model, x):
         |    return model(x)  #@call
         |
         |evaluate(model, x)  #@main
        """,
        {"call": {"grad_calls": 0, "eval_calls": 8}},
        ["call", "main"],
    ),
    "the word evaluate alone, its bytes elsewhere": (
        """
         |def evaluate(model, x):
         |    return model(x)  #@call
         |
         |buffer = torch.zeros(10**9, device="cuda")  #@other
         |evaluate(model, x)
        """,
        {"call": EVALUATED},
        ["other"],
    ),
    "first training step ran out of memory": (
        """
         |def train(model, loader, opt):
         |    for x in loader:
         |        loss = model(x).mean()  #@call
         |        loss.backward()
         |        opt.step()
         |
         |train(model, loader, opt)  #@main
        """,
        {"call": {"calls": 1}},
        ["call", "main"],
    ),
    "first training step, the backward pass in the caller": (
        """
         |def forward_loss(model, x):
         |    return model(x).mean()  #@call
         |
         |for x in loader:
         |    loss = forward_loss(model, x)  #@main
         |    loss.backward()
        """,
        {"call": {"calls": 1}},
        ["call", "main"],
    ),
    "first training step, the backward pass in a library": (
        """
         |class Module(LightningModule):
         |    def training_step(self, batch, index):
         |        return self.net(batch).mean()  #@call
         |
         |launch(module)  #@main
        """,
        {"call": {"calls": 1}},
        ["call", "main"],
    ),
    "two views before the first backward pass, in a library's loop": (
        """
         |class Module(LightningModule):
         |    def training_step(self, views, index):
         |        return loss_of([self.net(view) for view in views])  #@call
         |
         |launch(module)  #@main
        """,
        {"call": {"calls": 2}},
        ["call", "main"],
    ),
    "one call, in train mode, beside training": (
        """
         |def fit(model, loader, v):
         |    for x in loader:
         |        model(x).sum().backward()  #@train
         |    shown = model(v)  #@call
         |    print(shown.mean())
         |
         |fit(model, loader, v)  #@main
        """,
        {"train": TRAINED, "call": {"calls": 1}},
        ["call", "main"],
    ),
    "unrolled steps before the first backward pass": (
        """
         |def unroll(cell, xs):
         |    h = None
         |    for x in xs:
         |        h = cell(x, h)  #@call
         |    return h
         |
         |unroll(cell, xs).sum().backward()  #@main
        """,
        {"call": {"calls": 100}},
        ["call", "main"],
    ),
    "losses summed before the first backward pass": (
        """
         |def objective(model, parts):
         |    losses = []
         |    for part in parts:
         |        losses.append(model(part).mean())  #@call
         |    return torch.stack(losses).sum()
         |
         |total = objective(model, parts)  #@main
         |accelerator.backward(total)
        """,
        {"call": {"calls": 4}},
        ["call", "main"],
    ),
    "kept in an attribute until the backward pass": (
        """
         |class Agent:
         |    def act(self, obs):
         |        log_prob = self.policy(obs)  #@call
         |        self.saved.append(log_prob)
         |
         |    def learn(self):
         |        loss = -sum(self.saved)
         |        loss.backward()
         |
         |agent.act(obs)  #@main
        """,
        {"call": {"calls": 50}},
        ["call", "main"],
    ),
    "kept in a global until the backward pass": (
        """
         |saved = []
         |
         |def act(obs):
         |    saved.append(policy(obs))  #@call
         |
         |def learn():
         |    torch.stack(saved).sum().backward()
         |
         |act(obs)  #@main
        """,
        {"call": {"calls": 50}},
        ["call", "main"],
    ),
    "handed to a function that runs the backward pass": (
        """
         |def optimise(loss, opt):
         |    loss.backward()
         |    opt.step()
         |
         |for x in loader:
         |    out = model(x)  #@call
         |    optimise(out.mean(), opt)
        """,
        {"call": {"calls": 1}},
        ["call"],
    ),
    "closure for an optimizer": (
        """
         |def fit(model, x, opt):
         |    out = model(x)  #@call
         |    def closure():
         |        loss = out.mean()
         |        loss.backward()
         |        return loss
         |    opt.step(closure)
         |
         |fit(model, x, opt)  #@main
        """,
        {"call": {"calls": 1}},
        ["call", "main"],
    ),
    "autograd.grad with respect to the input, in eval mode": (
        """
         |def saliency(model, x):
         |    score = model(x).max()  #@call
         |    return torch.autograd.grad(score, x)[0]
         |
         |saliency(model, x)  #@main
        """,
        {"call": {"calls": 1, "eval_calls": 1}},
        ["call", "main"],
    ),
    "eval mode, and the output goes into the training loss": (
        """
         |backbone.eval()
         |for x, y in loader:
         |    features = backbone(x)  #@call
         |    loss = crit(features @ head, y)
         |    loss.backward()
        """,
        {"call": {"calls": 1, "eval_calls": 1}},
        ["call"],
    ),
    "generator expression that somebody else consumes": (
        """
         |def outputs(model, loader):
         |    return (model(x) for x in loader)  #@call
        """,
        {"call:<genexpr>": EVALUATED},
        ["call:<genexpr>"],
    ),
    "a file that does not parse": (
        """
         |print "old"
         |model(x)  #@call
        """,
        {"call:<module>": EVALUATED},
        ["call:<module>"],
    ),
    "one call, in train mode, in a function whose value leaves the program": (
        """
         |def compute_loss(self, model, inputs):
         |    outputs = model(inputs)  #@call
         |    return outputs.mean()
        """,
        {"call": {"calls": 1}},
        ["call"],
    ),
    "backward over the output behind a walrus": (
        """
         |for x in loader:
         |    if (loss := model(x).mean()) > 0:  #@call
         |        loss.backward()
        """,
        {"call": {"calls": 1}},
        ["call"],
    ),
    "backward over the output behind tuple unpacking and a dictionary": (
        """
         |def run(model, x):
         |    out, aux = model(x)  #@call
         |    parts = {"main": out.mean(), "aux": aux.mean()}
         |    return parts
         |
         |parts = run(model, x)  #@main
         |total = sum(value for value in parts.values())
         |scaler.scale(total).backward()
        """,
        {"call": {"calls": 1}},
        ["call", "main"],
    ),
    "backward over the output in the next iteration": (
        """
         |previous = None
         |for x in loader:
         |    if previous is not None:
         |        previous.backward()
         |    out = model(x).mean()  #@call
         |    previous = out
        """,
        {"call": {"calls": 2}},
        ["call"],
    ),
    "a tensor is asked for its gradient, which fails without one": (
        """
         |model(x).sum().backward()  #@train
         |for x in loader: out = model(x); out.register_hook(print)  #@other
        """,
        {"train": TRAINED, "other": EVALUATED},
        ["other"],
    ),
    "an attack needs the gradient of its input": (
        """
         |def attack(model, x):
         |    x.requires_grad_(True)
         |    out = model(x)  #@call
         |    out.sum().backward()
         |    return x.grad
         |
         |attack(model, x)  #@main
        """,
        {"call": {"calls": 1, "eval_calls": 1}},
        ["call", "main"],
    ),
}


def _findings(writer: Any, case: Case, **stack: Any) -> Any:
    text, sites, at = case
    program = writer.read(text)
    rows = []
    for mark, counts in sites.items():
        rows.append(writer.site(program, mark, **counts))
    return NoGrad().findings(writer.evidence(program, rows, [writer.Stack(at, **stack)]))


@pytest.mark.parametrize("name", NEGATIVE)
def test_nothing_is_proposed(writer: Any, name: str) -> None:
    assert _findings(writer, NEGATIVE[name]) == ()


def test_bytes_of_the_backward_pass_do_not_count(writer: Any) -> None:
    assert _findings(writer, POSITIVE["function"])
    assert _findings(writer, POSITIVE["function"], backward=True) == ()


@pytest.mark.parametrize(("mib", "rest", "found"), [(1, 45, True), (1, 60, False), (0.9, 1, False)])
def test_small_shares_are_left_alone(writer: Any, mib: float, rest: float, found: bool) -> None:
    text, sites, at = POSITIVE["function"]
    program = writer.read(text)
    rows = [writer.site(program, mark, **counts) for mark, counts in sites.items()]
    stacks = [writer.Stack(at, mib=mib)]
    evidence = writer.evidence(program, rows, stacks, rest_mib=rest)
    assert bool(NoGrad().findings(evidence)) is found


def test_sites_under_one_guard_make_one_cause_with_all_their_stacks(writer: Any) -> None:
    program = writer.read(
        """
         |import torch
         |
        +|@torch.no_grad()
         |def evaluate(encoder, decoder, x):
         |    z = encoder(x)  #@one
         |    return decoder(z).mean().item()  #@two
         |
         |evaluate(encoder, decoder, x)  #@main
        """
    )
    sites = [writer.site(program, mark, **EVALUATED) for mark in ("one", "two")]
    stacks = [writer.Stack(["one", "main"], mib=30), writer.Stack(["two", "main"], mib=70)]
    evidence = writer.evidence(program, sites, stacks)
    (finding,) = NoGrad().findings(evidence)
    assert finding.cause.peak_bytes == 100 << 20
    assert finding.cause.stack_ids == ("S001", "S002")
    assert writer.patched(evidence, finding.patches[0]) == program.after


def test_a_site_that_trains_forbids_the_line_for_every_module_on_it(writer: Any) -> None:
    program = writer.read(
        """
         |def run(model, x):
         |    return crit(model(x))  #@call
         |
         |run(model, x)  #@main
        """
    )
    sites = [
        writer.site(program, "call", module="Net"),
        writer.site(program, "call", module="Loss", reached_calls=8),
    ]
    evidence = writer.evidence(program, sites, [writer.Stack(["call", "main"])])
    assert NoGrad().findings(evidence) == ()


def test_a_lambda_that_trains_is_left_alone(writer: Any) -> None:
    program = writer.read("|run = lambda x: crit(model(x))  #@call")
    sites = [
        writer.site(program, "call:<lambda>", module="Net"),
        writer.site(program, "call:<lambda>", module="Loss", reached_calls=8),
    ]
    evidence = writer.evidence(program, sites, [writer.Stack(["call:<lambda>"])])
    assert NoGrad().findings(evidence) == ()


def test_a_caller_through_a_library_gets_no_guard(writer: Any) -> None:
    text, sites, at = POSITIVE["generator expression that the program itself consumes elsewhere"]
    program = writer.read(text)
    rows = [writer.site(program, mark, **counts) for mark, counts in sites.items()]
    stack = writer.Stack(at)
    own, outer = writer.evidence(program, rows, [stack]).ledger.stacks[0].user_frames
    library = writer.frame("/venv/library.py", 1, "loop")
    through = dataclasses.replace(stack, frames=(own, library, outer))
    assert NoGrad().findings(writer.evidence(program, rows, [stack]))
    assert NoGrad().findings(writer.evidence(program, rows, [through])) == ()


def test_guards_that_would_overlap_are_not_put_together(writer: Any) -> None:
    program = writer.read(
        """
         |import torch
         |for x in loader:
         |    a = model(x)  #@one
         |    with quiet():
        -|        b = model(x)  #@two
        +|        with torch.no_grad():
        +|            b = model(x)
        """
    )
    sites = [writer.site(program, mark, **EVALUATED) for mark in ("one", "two")]
    stacks = [writer.Stack(["one"], mib=30), writer.Stack(["two"], mib=70)]
    evidence = writer.evidence(program, sites, stacks)
    first, second = NoGrad().findings(evidence)
    assert len(first.patches) == len(second.patches) == 1
    assert writer.patched(evidence, second.patches[0]) == program.after


def test_a_call_in_a_file_that_is_not_the_programs_is_guarded_by_its_caller(writer: Any) -> None:
    program = writer.read(
        """
         |import torch
         |import library
         |
        +|@torch.no_grad()
         |def evaluate(model, loader):
         |    scores = library.predict(model, loader)  #@caller
         |    print(scores)
         |
         |evaluate(model, loader)  #@main
        """
    )
    frame = writer.frame("/lib/library.py", 7, "predict")
    site = writer.site(program, "caller", **EVALUATED)
    site = site.model_copy(update={"file": frame.filename, "line": 7, "function": "predict"})
    stack = dataclasses.replace(writer.Stack(["caller", "main"]), inner=(frame,))
    evidence = writer.evidence(program, [site], [stack])
    (finding,) = NoGrad().findings(evidence)
    assert writer.patched(evidence, finding.patches[0]) == program.after
