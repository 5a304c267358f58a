"""Live storages have names and holders, and looking for them changes nothing."""

import pickle
import subprocess
import textwrap
from itertools import pairwise

import pytest

from headroom.records.names import read_names

pytestmark = pytest.mark.torch

VIRTUAL = {"device": "virtual", "card": "h200"}
HELD = """
    import functools, torch
    from torch import nn
    def tensor(kib): return torch.empty(kib * 256, device="cuda")
    class Slots:
        __slots__ = ("kept", "unset")
    class Trainer:
        shared = tensor(1001)
        def __init__(self): self.memory = [tensor(1002)]
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.cache = nn.Linear(512, 512), {}
            self.register_buffer("mean", tensor(1003))
        def forward(self, x):
            self.cache["x"] = x.detach().clone()
            return self.layer(x).relu().sum()
    kept_globally = tensor(1004)
    def fail(): inside = tensor(1005); raise ValueError
    def fail_again(): handled = tensor(1012); raise ValueError
    def main():
        net, trainer, slots = Net().cuda(), Trainer(), Slots()
        slots.kept = tensor(1006)
        optimizer = torch.optim.AdamW(net.parameters())
        captured = tensor(1007)
        def closure(): return captured
        call = functools.partial(print, tensor(1008))
        of_generator = (part for part in [tensor(1009)])
        pairs, named = (1, [tensor(1010)]), {("a", 1): tensor(1011)}
        for _ in range(2):
            net(torch.ones(300, 512, device="cuda")).backward(); optimizer.step()
        losses = [net(torch.ones(300, 512, device="cuda"))]
        try: fail()
        except ValueError as error: last = error
        try: fail_again()
        except ValueError:
            try: torch.empty(2**44, device="cuda", dtype=torch.uint8)
            except torch.OutOfMemoryError: pass
    main()
"""


def walks(done):
    assert done.record.names == "names.jsonl"
    return read_names((done.folder / "names.jsonl").read_text())


def at_oom(done):
    (walk,) = [walk for walk in walks(done) if walk.reason == "oom"]
    assert not walk.cut
    return walk


def test_everything_that_holds_a_tensor_is_named(record, torch_python):
    done = record(HELD, python=torch_python, purpose="trace", **VIRTUAL)
    assert done.record.recorder_notes == ()
    walk = at_oom(done)
    held = {
        storage.size_bytes // 1024: (storage.holder.kind, storage.holder.name)
        for storage in walk.storages
        if storage.category == "variable" and storage.holder
    }
    expected = {
        1002: ("container", "trainer.memory[0]"),
        1004: ("global", "kept_globally"),
        1005: ("exception", "inside"),
        1006: ("attribute", "slots.kept"),
        1008: ("closure", "call.args[0]"),
        1010: ("container", "pairs[1][0]"),
        1011: ("container", "named[('a', 1)]"),
        1012: ("exception", "handled"),
        600: ("container", "Net.cache['x']"),
    }
    assert {size: held.get(size) for size in expected} == expected
    assert held[1001][0] == "attribute" and held[1001][1].endswith(".shared")
    assert held[1007] == ("variable", "captured")
    assert 1009 in held
    by_size = {storage.size_bytes // 1024: storage for storage in walk.storages}
    inside = by_size[1005].holder
    assert inside.function == "fail" and inside.line == 19 and inside.file.endswith("program.py")
    assert by_size[1002].holder.function == "main"
    names = {(storage.category, storage.name) for storage in walk.storages}
    assert {
        ("parameter", "Net.layer.weight"),
        ("gradient", "Net.layer.weight"),
        ("buffer", "Net.mean"),
        ("optimizer_state", "AdamW.exp_avg of Net.layer.weight"),
        ("optimizer_state", "AdamW.exp_avg_sq of Net.layer.bias"),
    } <= names
    saved = [storage for storage in walk.storages if storage.category == "saved"]
    assert {(s.holder.kind, s.holder.name) for s in saved} == {("graph", "losses[0].grad_fn")}
    assert "ReluBackward0.result" in {storage.name for storage in saved}


def test_addresses_and_times_are_the_allocators(record, torch_python):
    done = record(HELD, python=torch_python, purpose="trace", **VIRTUAL)
    snapshot = pickle.loads((done.folder / "snapshot.pickle").read_bytes())
    blocks = {
        block["address"]: block["requested_size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
    last = walks(done)[-1]
    assert last.reason == "end"
    assert all(blocks[storage.address] == storage.size_bytes for storage in last.storages)
    times = [entry["time_us"] for entry in snapshot["device_traces"][0]]
    assert times[0] <= walks(done)[0].time_us <= last.time_us
    assert all(one.time_us <= two.time_us for one, two in pairwise(walks(done)))


def test_walks_are_taken_when_memory_has_grown(record, torch_python):
    source = """
        import torch
        net = torch.nn.Linear(512, 512).cuda(); optimizer = torch.optim.SGD(net.parameters(), 0.1)
        kept = []
        for step in range(60):
            net(torch.ones(64, 512, device="cuda")).sum().backward(); optimizer.step(); optimizer.zero_grad()
            if step > 50: kept.append(torch.ones(4 * 2**20, device="cuda"))
    """
    found = walks(record(source, python=torch_python, purpose="trace", **VIRTUAL))
    assert len(found) < 20
    grown = [walk for walk in found if walk.update > 51 and walk.reason in ("call", "update")]
    assert grown and any(storage.name == "kept[0]" for storage in grown[0].storages)
    assert all(
        later.live_bytes > earlier.live_bytes * 1.05 for earlier, later in pairwise(found[:-1])
    )


UNTOUCHED = {
    "memory is let go as before": """
        import torch
        def size(): return torch.cuda.memory_allocated() >> 20
        class Net(torch.nn.Module):
            def __init__(self): super().__init__(); self.l = torch.nn.Linear(1024, 1024)
            def forward(self, x):
                x = self.l(x); x = x.relu(); x = self.l(x)
                return x
        def main():
            net = Net().cuda(); optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for step in range(3):
                x = torch.ones(2048 * (step + 1), 1024, device="cuda")
                loss = net(x).sum(); loss.backward(); optimizer.step()
                x = None; print(size()); loss = None; print(size())
            names = locals(); print(sorted(names)); x = torch.ones(2**20, device="cuda")
            net(torch.ones(9000, 1024, device="cuda")); print(names["x"], size())
        main(); print(size(), torch.cuda.max_memory_allocated() >> 20)
    """,
    "no code of the program's runs": """
        import torch
        class Loud:
            def __getattr__(self, name): print("getattr", name); raise AttributeError(name)
            def __eq__(self, other): print("eq"); return True
            def __hash__(self): print("hash"); return 1
            def __len__(self): print("len"); return 1
            def __iter__(self): print("iter"); return iter(())
            def __repr__(self): print("repr"); return ""
            @property
            def __class__(self): print("class"); return torch.Tensor
            @property
            def __dict__(self): print("dict"); return {}
            @property
            def value(self): print("value")
        class Meta(type):
            def __getattribute__(cls, name): print("meta", name); return super().__getattribute__(name)
            def __instancecheck__(cls, other): print("instance"); return False
            def __eq__(cls, other): print("meta eq"); return True
            def __hash__(cls): print("meta hash"); return 2
        class Made(metaclass=Meta): pass
        class Items(dict):
            def items(self): print("items"); return ()
        class Sequence(list):
            def __iter__(self): print("list iter"); return iter(())
            def __getitem__(self, at): print("list item")
        class Sub(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                print(func.__name__); return super().__torch_function__(func, types, args, kwargs)
        def main():
            loud, made, items, sequence = Loud(), Made(), Items(a=Loud()), Sequence([Made()])
            sub = torch.ones(5, device="cuda").as_subclass(Sub)
            net = torch.nn.Linear(2048, 2048).cuda()
            net(torch.ones(2048, 2048, device="cuda")).sum().backward()
            print("done")
        main()
    """,
    "unpack hooks do not run": """
        import torch
        from torch.utils.checkpoint import checkpoint
        def pack(x): print("pack"); return x
        def unpack(x): print("unpack"); return x
        net = torch.nn.Linear(1024, 1024).cuda()
        class Part(torch.nn.Module):
            def __init__(self): super().__init__(); self.l = torch.nn.Linear(1024, 1024)
            def forward(self, x): print("forward"); return self.l(x).exp()
        part = Part().cuda()
        x = torch.ones(2048, 1024, device="cuda")
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack): kept = net(x).exp()
        also = checkpoint(part, x, use_reentrant=False)
        net(torch.ones(9000, 1024, device="cuda"))
        try: torch.empty(2**44, device="cuda", dtype=torch.uint8)
        except torch.OutOfMemoryError: print("oom")
    """,
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_looking_changes_nothing(record, torch_python, name):
    plain = record(UNTOUCHED[name], python=torch_python, **VIRTUAL)
    traced = record(UNTOUCHED[name], python=torch_python, purpose="trace", **VIRTUAL)
    assert plain.stdout and traced.stdout == plain.stdout
    assert traced.stderr == plain.stderr
    assert traced.record.recorder_notes == ()
    assert traced.record.peak_allocated_bytes == plain.record.peak_allocated_bytes
    assert len(walks(traced)) > 1


def test_a_forked_child_writes_no_names(record, torch_python):
    source = """
        import os, torch
        net = torch.nn.Linear(2, 2)
        x = torch.ones(2**20, device="cuda")
        pid = os.fork()
        for _ in range(2): net(torch.ones(1, 2)).sum().backward()
        if pid == 0: os._exit(0)
        print(os.waitpid(pid, 0)[1])
    """
    done = record(source, python=torch_python, purpose="trace", **VIRTUAL)
    assert done.stdout == "0\n"
    found = walks(done)
    assert [walk.call for walk in found] == sorted(walk.call for walk in found)
    assert [walk.reason for walk in found].count("end") == 1


def test_a_measure_pass_has_no_names(record, torch_python):
    done = record("import torch; torch.ones(5, device='cuda')", python=torch_python, **VIRTUAL)
    assert done.record.names is None
    assert not (done.folder / "names.jsonl").exists()


def test_variables_of_running_frames_are_read_without_their_dictionary(root, torch_python):
    source = f"""
        import sys
        sys.path.insert(0, {str(root / "sandbox" / "recorder")!r})
        from variables import variables
        def outer(a, b=2, *args, c=3, **more):
            x, gone = [1], 5
            del gone
            def inner():
                q = x
                return dict(variables(sys._getframe(1), stands=True))
            return inner()
        found = outer(1, 9, 8, d=4); del found["inner"]
        print(found)
        def generator():
            big = 9
            yield
        waiting = generator(); next(waiting)
        print(variables(waiting.gi_frame, stands=True), variables(waiting.gi_frame, stands=False))
        def fails():
            kept, cell = 7, 8
            def inner(): return cell
            1 / 0
        try: fails()
        except ZeroDivisionError as error: frame = error.__traceback__.tb_next.tb_frame
        print([pair for pair in variables(frame, stands=False) if pair[0] != "inner"])
    """
    done = subprocess.run(
        [torch_python, "-c", textwrap.dedent(source)], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "{'a': 1, 'b': 9, 'c': 3, 'args': (8,), 'more': {'d': 4}, 'x': [1]}",
        "[('big', 9)] []",
        "[('kept', 7), ('cell', 8)]",
    ], done.stderr
