"""Whole programs, run under torch on the CPU before and after the playbook's patch."""

import json
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headroom.agents.edits import apply_patch
from headroom.agents.playbook import Playbook
from headroom.agents.protocol import Evidence
from headroom.agents.text import source_text
from headroom.evidence.model import (
    Frame,
    Growth,
    GrowthId,
    Ledger,
    LiveBlock,
    Peak,
    StackId,
    StackUse,
    Tick,
)
from headroom.records.diagnosis import Candidate, Diagnosis
from headroom.records.run import CallSite

RECORDER = Path(__file__).with_name("cpu_recorder.py")

MODEL = """
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(8)])
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.layers(x))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [torch.randn(32, 64) for _ in range(3)]
large = [torch.randn(512, 64) for _ in range(4)]


def train_step(x):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""

PROGRAMS = {
    "evaluation": """
def evaluate():
    model.eval()
    total = 0.0
    for x in large:
        total += model(x).square().mean().item()
    model.train()
    return total


for epoch in range(2):
    for x in data:
        train_step(x)
    print(evaluate())
""",
    "evaluation at module level beside training": """
for epoch in range(2):
    for x in data:
        loss = train_step(x)
    for x in large:
        out = model(x)
        loss = out.square().mean()
        print(f"{epoch} {loss:.9f}")
""",
    "generator": """
def predictions(batches):
    for x in batches:
        yield model(x).argmax(-1)


train_step(data[0])
print([p.sum().item() for p in predictions(large)])
""",
    "lambda": """
train_step(data[0])
score = lambda x: model(x).square().mean()
print([score(x).item() for x in large])
""",
    "property": """
class Report:
    @property
    def score(self):
        return model(large[0]).mean().item()


train_step(data[0])
print(Report().score, Report().score)
""",
    "classmethod": """
class Report:
    @classmethod
    def score(cls):
        return model(large[1]).mean().item()


train_step(data[0])
print(Report.score(), Report.score())
""",
    "coroutine": """
import asyncio


async def evaluate(batches):
    total = 0.0
    for x in batches:
        out = model(x)
        await asyncio.sleep(0)
        total += out.mean().item()
    return total


train_step(data[0])
print(asyncio.run(evaluate(large)))
""",
    "inactive guard": """
import contextlib


@contextlib.contextmanager
def no_grad(enabled=True):
    yield


def evaluate():
    with no_grad():
        for x in large:
            out = model(x)
            print(out.mean().item())


train_step(data[0])
evaluate()
""",
    "list of losses that are never used for training": """
kept = []
for epoch in range(3):
    for x in data:
        train_step(x)
        penalty = model(x).abs().mean()
        kept.append(penalty)
print(torch.stack(kept).mean().item())
""",
    "running total of a regulariser": """
total = 0.0
for epoch in range(3):
    for x in data:
        out = model(x)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += 0.1 * out.abs().mean() + loss.detach()
print(float(total))
""",
    "retained graph of the training loss": """
def train(steps):
    curve = []
    for step in range(steps):
        loss = model(data[step % 3]).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        curve.append(loss)
    return curve


curve = train(8)
print(len(curve), torch.stack(curve[-4:]).mean().item())
""",
    "features of a forward hook": """
features = []
model.layers[3].register_forward_hook(lambda module, inputs, output: features.append(output))
train_step(data[0])
for x in large:
    model(x)
print(len(features), features[-1].mean().item())
""",
    "meter": """
class Meter:
    def __init__(self):
        self.sum = 0.0

    def update(self, value, n=1):
        self.sum += value * n


meter = Meter()
for x in data * 3:
    train_step(x)
    aux = model(x).abs().mean()
    meter.update(aux, len(x))
print(float(meter.sum))
""",
}

PROGRAMS |= {
    "one function that trains and evaluates": """
def run_epoch(batches, training=False):
    model.train(training)
    total = 0.0
    for x in batches:
        loss = model(x).square().mean()
        if training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total


for epoch in range(2):
    print(run_epoch(data, training=True), run_epoch(large))
print(model.head.weight.sum().item())
""",
    "a penalty that is a plain number at times": """
total = 0.0
for step in range(9):
    train_step(data[step % 3])
    penalty = model(large[step % 3]).abs().mean()
    if step % 4 == 3:
        penalty = 0.0
    total += penalty
print(float(total))
""",
    "dictionaries that are copied": """
history = []


def step(x):
    out = model(x)
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    return {"loss": loss, "rows": len(x)}


for number in range(9):
    logs = step(data[number % 3])
    history.append(dict(logs, number=number))
print(sum(logs["rows"] for logs in history), torch.stack([logs["loss"] for logs in history]).sum().item())
""",
    "lists that are joined": """
logs = []


def step(x):
    losses = []
    for part in x.chunk(2):
        loss = model(part).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss)
    return losses


for number in range(6):
    found = step(large[number % 3])
    logs.extend(found)
print(len(logs), torch.stack(logs).sum().item())
""",
}

LEFT_ALONE = {
    "a loss scaler that is an object": """
class Scaler:
    def __call__(self, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train(scaler):
    model.eval()
    losses = []
    for x in large:
        losses.append(model(x).square().mean())
    scaler(sum(losses))


train(Scaler())
print(model.head.weight.sum().item())
""",
    "a loss in a partial": """
from functools import partial


def pooled(scale, features):
    return torch.stack(features).square().mean() * scale


features = []
for x in large:
    features.append(model(x))
closure = partial(pooled, 2.0, features)
closure().backward()
print(model.head.weight.grad.sum().item())
""",
    "losses summed before one backward pass": """
losses = []
for x in large:
    losses.append(model(x).square().mean())
sum(losses).backward()
print(model.head.weight.grad.sum().item())
""",
    "policy gradient": """
class Agent:
    def __init__(self):
        self.log_probs = []

    def act(self, x):
        log_prob = model(x).log_softmax(-1)[:, 0].mean()
        self.log_probs.append(log_prob)

    def learn(self):
        loss = -torch.stack(self.log_probs).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        self.log_probs.clear()


agent = Agent()
for episode in range(2):
    for x in large:
        agent.act(x)
    agent.learn()
print(model.head.weight.sum().item())
""",
    "evaluation that is guarded already": """
@torch.no_grad()
def evaluate():
    return [model(x).mean().item() for x in large]


for x in data:
    train_step(x)
print(evaluate())
""",
}


@dataclass(frozen=True)
class Result:
    """A program's evidence, what the playbook made of it, and both runs."""

    evidence: Evidence
    diagnosis: Diagnosis
    candidates: tuple[Candidate, ...]
    before: dict[str, Any]
    after: dict[str, Any]


def run(python: str, paths: list[Path], folder: Path) -> list[dict[str, Any]]:
    out = folder / "records.json"
    command = [python, "-W", "ignore", str(RECORDER), str(out), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(out.read_text()))


@pytest.fixture(scope="module")
def results(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Every program, run before and after the first candidate; one interpreter for all, since torch starts slowly."""
    folder = tmp_path_factory.mktemp("programs")
    sources = {**PROGRAMS, **LEFT_ALONE}
    paths = [folder / f"program_{number}.py" for number in range(len(sources))]
    for path, source in zip(paths, sources.values(), strict=True):
        path.write_text(MODEL + source)
    before = run(torch_python, paths, folder)
    evidences = [evidence_of(path, record) for path, record in zip(paths, before, strict=True)]
    playbook = Playbook()
    diagnoses = [playbook.diagnose(evidence) for evidence in evidences]
    candidates = [
        playbook.propose(evidence, diagnosis, ())
        for evidence, diagnosis in zip(evidences, diagnoses, strict=True)
    ]
    for path, evidence, proposed in zip(paths, evidences, candidates, strict=True):
        if proposed:
            files = apply_patch(proposed[0].patch, evidence.files()).files
            path.write_bytes(files[str(path)])
    after = run(torch_python, paths, folder)
    rows = zip(evidences, diagnoses, candidates, before, after, strict=True)
    return {name: Result(*row) for name, row in zip(sources, rows, strict=True)}


def evidence_of(path: Path, record: dict[str, Any]) -> Evidence:
    sites = [CallSite(file=str(path), rows=0, **site) for site in record["sites"]]
    return Evidence(
        ledger=ledger_of(path, record),
        call_sites=tuple(sites),
        sources={str(path): source_text(path.read_bytes())},
        parameters_bytes=0,
        pack="",
        roots=(str(path.parent),),
    )


def ledger_of(path: Path, record: dict[str, Any]) -> Ledger:
    blocks: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for size, stack, backward, call in record["blocks"]:
        blocks[tuple(map(tuple, stack)), backward].append((size, call))
    uses, live, growth = [], [], []
    for number, ((stack, backward), members) in enumerate(blocks.items(), 1):
        frames = tuple(Frame(filename=str(path), line=line, name=code) for line, code in stack)
        use = stack_use(StackId(f"S{number:03}"), frames, backward, members)
        uses.append(use)
        live += live_blocks(use, members)
        calls = {call for _, call in members if call}
        if len(calls) >= 3:
            growth.append(growth_of(use, len(calls)))
    peak_bytes = record["peak_bytes"]
    now = Tick(update=0, call=record["call"])
    return Ledger(
        device=0,
        peak=Peak(allocated_bytes=peak_bytes, requested_bytes=peak_bytes, entry=0, tick=now),
        live_allocated_bytes=peak_bytes,
        live_requested_bytes=peak_bytes,
        reserved_bytes=peak_bytes,
        peak_reserved_bytes=peak_bytes,
        complete=True,
        entries=0,
        stacks=tuple(uses),
        blocks=tuple(live),
        unattributed={},
        growth=tuple(growth),
        failure=None,
    )


def stack_use(
    name: StackId, frames: tuple[Frame, ...], backward: bool, members: list[tuple[int, int]]
) -> StackUse:
    total = sum(size for size, _ in members)
    return StackUse(
        id=name,
        frames=frames,
        user_frames=frames,
        backward=backward,
        allocated_bytes=total,
        requested_bytes=total,
        blocks=len(members),
    )


def live_blocks(use: StackUse, members: list[tuple[int, int]]) -> list[LiveBlock]:
    return [
        LiveBlock(
            stack=use.id,
            allocated_bytes=size,
            requested_bytes=size,
            born=Tick(update=0, call=call),
        )
        for size, call in members
    ]


def growth_of(use: StackUse, ticks: int) -> Growth:
    return Growth(
        id=GrowthId(f"G{use.id}"),
        stack=use.id,
        kind="call",
        ticks=ticks,
        bytes_per_tick=use.allocated_bytes // ticks,
        allocated_bytes=use.allocated_bytes,
    )


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_candidate_lowers_the_peak_and_prints_the_same(
    results: dict[str, Result], name: str
) -> None:
    result = results[name]
    assert result.before["error"] == ""
    assert result.candidates, result.diagnosis.largest
    assert result.after["error"] == ""
    assert result.after["printed"] == result.before["printed"]
    assert result.after["peak_bytes"] < 0.8 * result.before["peak_bytes"]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_program_that_needs_its_graphs_is_left_alone(
    results: dict[str, Result], name: str
) -> None:
    result = results[name]
    assert result.before["error"] == ""
    assert result.candidates == ()
    assert result.diagnosis.causes == ()
    assert "program_" in result.diagnosis.largest
