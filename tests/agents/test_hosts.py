"""What is collected may only move to the host where its host copies serve as well."""

from typing import Any

import pytest

from headroom.agents.plays.collected_tensors import CollectedTensors
from headroom.agents.plays.retained_graph import RetainedGraph

WRITTEN = {
    "divided in place": """
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |    out /= out.norm()
        """,
    "a method in place": """
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |    out.clamp_(0, 1)
        """,
    "an element is assigned": """
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |    out[out < 0] = 0
        """,
    "through another name": """
         |for x in loader:
         |    out = net(x)  #@call
         |    first = out[:, 0]
         |    outs.append(out)
         |    first.zero_()
        """,
    "a view of what is written": """
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out[0])
         |    out.zero_()
        """,
    "as the result of an operation": """
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |    torch.mul(out, 2, out=out)
        """,
    "by a module in place": """
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |    y = F.relu(out, inplace=True)
        """,
    "in the next iteration": """
         |out = net(start)  #@call
         |for x in loader:
         |    out.add_(x)
         |    outs.append(out)
        """,
    "weights that are still trained": """
         |for x in loader:
         |    train(net, x)
         |    kept.append({name: value.detach() for name, value in net.state_dict().items()})  #@call
        """,
}
WRITTEN["by a module in place, behind a hook"] = """
         |net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
         |def hook(module, args, output):
         |    outs.append(output)
         |net[0].register_forward_hook(hook)
         |for x in loader:
         |    net(x)  #@call
        """
MIXED = {
    "labels on the device": """
         |import torch
         |def evaluate(net, loader, labels):
         |    outs = []
         |    for x in loader:
         |        out = net(x)  #@call
         |        outs.append(out)
         |    return (torch.cat(outs).argmax(1) == labels).sum().item()
         |
         |evaluate(net, loader, torch.zeros(3, device="cuda"))  #@main
        """,
    "labels that are moved to the device": """
         |import torch
         |outs = []
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |hits = torch.cat(outs).argmax(1) == torch.cat([y for y in batches]).to("cuda")
        """,
    "weights of a loss": """
         |import torch
         |import torch.nn.functional as F
         |outs, labels = [], []
         |for x, y in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |    labels.append(y.cuda())
         |weights = torch.ones(10, device="cuda")
         |loss = F.cross_entropy(torch.cat(outs), torch.cat(labels), weight=weights)
        """,
    "a product": """
         |import torch
         |outs = []
         |weights = torch.rand(10, device="cuda")
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |score = torch.cat(outs) @ weights
        """,
    "a mask on the device": """
         |import torch
         |outs = []
         |mask = torch.rand(10, device="cuda") > 0.5
         |kept = torch.logical_not(mask)
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |score = torch.cat(outs)[kept].mean()
        """,
    "a module": """
         |import torch
         |head = torch.nn.Linear(3, 3).cuda()
         |outs = []
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |score = head(torch.cat(outs)).mean()
        """,
    "a running total on the device": """
         |import torch
         |total = torch.zeros(10, device="cuda")
         |outs = []
         |for x in loader:
         |    out = net(x)  #@call
         |    outs.append(out)
         |total += torch.cat(outs).sum(0)
        """,
}


def _results(writer: Any, text: str) -> tuple[Any, list[str]]:
    program = writer.read(text)
    at = [mark for mark in ("call", "main") if mark in program.lines]
    sites = []
    if "net(" in program.before.split("\n")[program.lines["call"] - 1]:
        sites.append(writer.site(program, "call", grad_calls=0))
    evidence = writer.evidence(program, sites, [writer.Stack(at, mib=300, ticks=3)])
    patches = [patch for item in CollectedTensors().findings(evidence) for patch in item.patches]
    return program, [writer.patched(evidence, patch) for patch in patches]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_in_place_later_stays(writer: Any, name: str) -> None:
    assert _results(writer, WRITTEN[name])[1] == []


@pytest.mark.parametrize("name", MIXED)
def test_what_meets_the_device_later_stays(writer: Any, name: str) -> None:
    assert _results(writer, MIXED[name])[1] == []


EACH = "value.detach().cpu() if torch.is_tensor(value) else value"
MOVED = {
    "written before it is stored": """
         |for x in loader:
         |    out = net(x)  #@call
         |    out /= out.norm()
        -|    outs.append(out)
        +|    outs.append(out.detach().cpu())
        """,
    "written, but what is stored is a copy": """
         |for x in loader:
         |    out = net(x)
        -|    outs.append(out.clone())  #@call
        +|    outs.append(out.clone().detach().cpu())
         |    out.zero_()
        """,
    "numbers, settings and its own kind": """
         |import torch
         |def summarise(net, loader, threshold=0.5, k=3):
         |    outs = []
         |    for x in loader:
         |        out = net(x)  #@call
        -|        outs.append(out)
        +|        outs.append(out.detach().cpu())
         |    all_ = torch.cat(outs, dim=0)
         |    top = all_.topk(k, dim=1).values.to(torch.float32)
         |    print((all_ > threshold).sum(), all_ - all_.mean(), top[:, 0], outs[0] / len(outs))
         |
         |summarise(net, loader)  #@main
        """,
    "weights of every epoch": """
         |kept = []
         |for x in loader:
         |    train(net, x)
        -|    kept.append({name: value.clone() for name, value in net.state_dict().items()})  #@call
        +|    kept.append({name: value.clone().detach().cpu() for name, value in net.state_dict().items()})
         |net.load_state_dict(kept[0])
        """,
    "a deep copy of the weights": f"""
         |import copy
         |import torch
         |kept = []
         |for x in loader:
         |    train(net, x)
        -|    kept.append(copy.deepcopy(net.state_dict()))  #@call
        +|    kept.append({{key: {EACH} for key, value in copy.deepcopy(net.state_dict()).items()}})
         |net.load_state_dict(kept[0])
        """,
}


@pytest.mark.parametrize("name", MOVED)
def test_what_serves_as_well_on_the_host_moves(writer: Any, name: str) -> None:
    program, results = _results(writer, MOVED[name])
    assert results == [program.after]


def test_a_hook_moves_what_no_module_writes_into(writer: Any) -> None:
    text = WRITTEN["by a module in place, behind a hook"].replace("inplace=True", "")
    assert len(_results(writer, text)[1]) == 1


def test_a_snapshot_of_weights_has_no_graph(writer: Any) -> None:
    program = writer.read(MOVED["weights of every epoch"])
    evidence = writer.evidence(program, [], [writer.Stack(["call"], mib=300, ticks=3)])
    assert RetainedGraph().findings(evidence) == ()


def test_weights_that_a_model_takes_over_as_they_are_stay_on_the_device(writer: Any) -> None:
    text = MOVED["weights of every epoch"].replace("(kept[0])", "(kept[0], assign=True)")
    assert _results(writer, text)[1] == []
