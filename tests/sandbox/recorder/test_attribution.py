"""A trace says who allocates: phase, module, and the forward line of what the backward pass allocates."""

import pickle
import re
from collections import Counter

import pytest

pytestmark = pytest.mark.torch

VIRTUAL = {"device": "virtual", "card": "h200", "purpose": "trace"}
LABEL = re.compile(
    r"hr:u=(?P<u>\d+),c=(?P<c>\d+),p=(?P<p>[a-z]+)(,n=(?P<n>[^,]*))?(,s=(?P<s>\d+))?(,g=(?P<g>.*)|,m=(?P<m>.*))?"
)
NET = """
    import torch, torch.nn as nn, torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(256), nn.Linear(256, 512), nn.Linear(512, 256)
        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))
    class Net(nn.Module):
        def __init__(self, reentrant=None):
            super().__init__()
            self.reentrant = reentrant
            self.blocks, self.head = nn.ModuleList(Block() for _ in range(2)), nn.Linear(256, 10)
        def forward(self, x):
            for block in self.blocks:
                x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
            return self.head(x)
    def batch(): return torch.randn(64, 256, device="cuda", requires_grad=True)
"""


def allocations(done):
    """The allocations of a run's snapshot, each with its label taken apart."""
    snapshot = pickle.loads((done.folder / "snapshot.pickle").read_bytes())
    found = []
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            match = LABEL.fullmatch(entry["user_metadata"])
            assert match is not None or not entry["user_metadata"], entry["user_metadata"]
            found.append((match.groupdict() if match else {}, entry))
    return found


def test_phases_and_modules(record, torch_python):
    source = (
        NET
        + """
    net = Net().cuda(); optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        F.cross_entropy(net(batch()), torch.zeros(64, dtype=torch.long, device="cuda")).backward()
        optimizer.step(); optimizer.zero_grad()
    net.eval()
    with torch.no_grad(): net(batch())
    net.train()
    with torch.no_grad(): net(batch())
    """
    )
    done = record(source, python=torch_python, **VIRTUAL)
    assert done.record.recorder_notes == ()
    labels = [label for label, _ in allocations(done)]
    assert {label["p"] for label in labels if label} == {
        "forward",
        "evaluation",
        "backward",
        "optimizer",
        "other",
    }
    modules = {label["m"] for label in labels if label and label["p"] == "forward"}
    paths = {f"Net.blocks.{i}{part}" for i in (0, 1) for part in ("", ".norm", ".up", ".down")}
    assert paths | {"Net.head"} <= modules
    # Both evaluations: in eval mode, and in train mode with gradients off.
    assert {label["c"] for label in labels if label and label["p"] == "evaluation"} == {"3", "4"}
    assert {label["u"] for label in labels if label and label["p"] == "optimizer"} <= {"0", "1"}
    assert {label["m"] for label in labels if label and label["p"] == "optimizer"} == {None}


@pytest.mark.parametrize("reentrant", ["None", "False", "True"])
def test_backward_allocations_have_the_forward_line_that_the_virtual_gpu_finds(
    record, torch_python, reentrant
):
    source = (
        NET
        + f"""
    net = Net({reentrant}).cuda(); optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        F.cross_entropy(net(batch()), torch.zeros(64, dtype=torch.long, device="cuda")).backward()
        optimizer.step(); optimizer.zero_grad()
    # Our sites, beside the owners that the virtual GPU found in its own way.
    import gc, re
    (ours,) = [item for item in gc.get_objects() if type(item).__name__ == "Sites"]
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    compared = 0
    for entry in trace:
        label = re.match(r"hr:.*,p=backward,n=([^,]*),s=(\\d+)", entry["user_metadata"])
        if label and entry["action"] == "alloc" and label[1] != "AccumulateGrad":
            mine = ours.frames(int(label[2]))
            assert entry["frames"][0]["name"] == "[backward] " + label[1]
            assert mine and entry["frames"][-len(mine):] == mine, entry
            compared += 1
    print(compared)
    """
    )
    done = record(source, python=torch_python, **VIRTUAL)
    assert int(done.stdout or 0) > 30, done.stderr


@pytest.mark.parametrize("reentrant", ["None", "False", "True"])
def test_nearly_all_of_the_backward_pass_has_an_owner(record, torch_python, reentrant):
    source = (
        NET
        + f"""
    net = Net({reentrant}).cuda(); optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        F.cross_entropy(net(batch()), torch.zeros(64, dtype=torch.long, device="cuda")).backward()
        optimizer.step(); optimizer.zero_grad()
    """
    )
    sizes: Counter[bool] = Counter()
    for label, entry in allocations(record(source, python=torch_python, **VIRTUAL)):
        if label and label["p"] == "backward" and label["n"] != "CheckpointFunctionBackward":
            sizes[label["s"] is not None or label["n"] is None] += entry["size"]
    assert sizes[True] >= 0.95 * sizes.total()


def test_owners_are_not_guessed(record, torch_python):
    """Nodes of other threads and of passes that make graphs have numbers of their own, and no site of ours."""
    source = """
        import threading, torch
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 2
            @staticmethod
            def backward(ctx, g): return g * 2
        w = torch.ones(1000, 1000, device="cuda", requires_grad=True)
        for _ in range(20): w.exp()  # numbers that another thread's nodes will have too
        losses = []
        def forward(): losses.append(w.sin().cos().sum())
        thread = threading.Thread(target=forward); thread.start(); thread.join()
        losses[0].backward()
        (g,) = torch.autograd.grad((w ** 3).sum(), w, create_graph=True)
        g.sum().backward(retain_graph=True); g.sum().backward()
        Twice.apply(w).sum().backward()
    """
    done = record(source, python=torch_python, **VIRTUAL)
    assert done.record.outcome == "completed" and done.record.recorder_notes == ()
    sites: dict[str, set[tuple[object, ...]]] = {}
    for label, entry in allocations(done):
        if label and label["p"] == "backward" and label["n"]:
            lines = [f["line"] for f in entry["frames"] if f["filename"].endswith("program.py")]
            sites.setdefault(label["n"], set()).add((label["s"] is not None, *lines[-1:]))
    assert {known for known, *_ in sites["SinBackward0"] | sites["CosBackward0"]} == {False}
    assert sites["PowBackward0"] == {(False,), (True, 14)}


def test_gradients_are_labelled_with_their_parameter(record, torch_python):
    source = """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).cuda()
        net(torch.ones(8, 64, device="cuda")).sum().backward()
        weight = net[0].weight
        # An expanded gradient cannot be taken over, so accumulating makes a copy.
        (weight.sum() * 2 + net[1].bias.sum()).backward()
        net.zero_grad()
        weight.sum().backward()
    """
    found = [
        label
        for label, _ in allocations(record(source, python=torch_python, **VIRTUAL))
        if label and label["n"] == "AccumulateGrad"
    ]
    assert "Sequential.0.weight" in {label["g"] for label in found}


def test_no_frame_of_ours_is_in_a_snapshot(record, torch_python):
    source = (
        NET
        + """
    net = Net().cuda()
    net(batch()).sum().backward()
    """
    )
    done = record(source, python=torch_python, **VIRTUAL)
    frames = [f for _, entry in allocations(done) for f in entry.get("frames", ())]
    assert frames
    assert not [f for f in frames if "recorder" in f["filename"] or f["name"].startswith("<head")]


def test_a_step_that_failed_does_not_label_what_comes_after(record, torch_python):
    source = """
        import torch
        net = torch.nn.Linear(64, 64).cuda(); optimizer = torch.optim.SGD(net.parameters(), 0.1)
        def closure(): raise ValueError
        try: optimizer.step(closure)
        except ValueError: pass
        net(torch.ones(8, 64, device="cuda"))
        after = torch.empty(777, 1024, device="cuda")
    """
    found = allocations(record(source, python=torch_python, **VIRTUAL))
    (after,) = [label for label, entry in found if entry["size"] == 777 * 1024 * 4]
    assert after["p"] == "other"


def test_a_program_that_compiles_is_left_alone(record, torch_python):
    source = """
        import torch
        from torch.overrides import _get_current_function_mode_stack as modes
        net = torch.nn.Linear(2, 2)
        print(len(modes()))
        compiled = torch.compile(net, backend="eager")
        print(len(modes()), torch.nn.functional.has_torch_function_variadic is torch._C._has_torch_function_variadic)
        print(type(torch._C._has_torch_function_variadic).__name__, torch.compile.__module__)
        with torch.device("meta"): pass
        compiled(torch.ones(1, 2)).sum().backward(); print(net.bias.grad)
    """
    done = record(source, python=torch_python, purpose="trace")
    assert done.stdout.splitlines() == [
        "1",
        "0 True",
        "builtin_function_or_method torch",
        "tensor([1., 1.])",
    ]
    assert [note for note in done.record.recorder_notes if "torch.compile" in note]


def test_a_measure_pass_has_no_mode(record, torch_python):
    source = """
        import torch
        print(torch._C._len_torch_function_stack(), torch.autograd.grad.__code__.co_filename[-20:])
    """
    done = record(source, python=torch_python)
    assert done.stdout == "0 autograd/__init__.py\n"
