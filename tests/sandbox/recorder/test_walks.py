"""A walk looks at nothing that may change or be unfinished, keeps nothing alive, and runs nothing of the program's."""

import pytest

from headroom.records.names import read_names

pytestmark = pytest.mark.torch

VIRTUAL = {"device": "virtual", "card": "h200"}
SAME = {
    "tuples that are being built": """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).cuda()
        def make(i): return torch.ones(2**20, device="cuda") if i < 3 else torch.empty(2**45, device="cuda")
        kept = []
        for step in range(6):
            x = torch.ones(1000 * (step + 1), 512, device="cuda")
            outs = tuple(net(x) for _ in range(4))
            kept.append(outs)
            sum(out.sum() for out in outs).backward()
        try: parts = tuple(make(i) for i in range(5))
        except torch.OutOfMemoryError: print("oom")
        try: parts = tuple(map(make, range(5)))
        except torch.OutOfMemoryError: print("oom")
        print(len(kept))
    """,
    "iterators that hold a tuple with gaps": """
        import itertools, torch
        pairs = itertools.zip_longest([1], [torch.ones(2**20, device="cuda"), 2, 3, 4])
        next(pairs); next(pairs)
        try: torch.empty(2**45, device="cuda")
        except torch.OutOfMemoryError: print("oom", next(pairs))
    """,
    "other threads are at work": """
        import threading, torch
        stop = False
        def work():
            def inner(n):
                a, b, c = [n], {n: n}, (n, [n])
                return a and inner(n - 1) if n else c
            def numbers():
                value = [0]
                while True: value = [len(value)]; yield value
            made = numbers(); shared.append(made)
            while not stop:
                inner(20); next(made)
                try: raise ValueError
                except ValueError as error: shared[0] = error
        shared = [None]
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for _ in range(30):
            try: torch.empty(2**45, device="cuda")
            except torch.OutOfMemoryError: pass
        stop = True
        for thread in threads: thread.join()
        print("done")
    """,
    "nothing is kept alive while the collector is off": """
        import gc, torch, weakref
        gc.collect(); gc.disable()
        class Thing: pass
        net = torch.nn.Linear(1024, 1024).cuda()
        def step(n):
            thing = Thing(); watched = weakref.ref(thing)
            batch = torch.ones(n, 1024, device="cuda")
            net(batch).relu().sum().backward()
            return watched
        for k in range(1, 9):
            print(step(8192 * k)() is None, torch.cuda.memory_allocated())
        def fail():
            thing = Thing(); dead.append(weakref.ref(thing))
            held = torch.ones(2**20, device="cuda")
            torch.empty(2**45, device="cuda")
        dead = []
        for _ in range(3):
            try: fail()
            except torch.OutOfMemoryError: pass
            print(dead.pop()() is None, torch.cuda.memory_allocated())
        print(torch.cuda.max_memory_allocated())
    """,
    "a result that a hook has replaced is let go": """
        import torch
        def shorten(module, args, result): return result[:1] * 2
        def show(module, args, result): print(torch.cuda.memory_allocated())
        net = torch.nn.Sequential(torch.nn.Linear(1024, 1024)).cuda()
        net[0].register_forward_hook(shorten); net[0].register_forward_hook(show)
        with torch.no_grad(): net(torch.ones(4096, 1024, device="cuda"))
        print(torch.cuda.max_memory_allocated())
    """,
    "a wrapper's own dispatch": """
        import torch
        class Wrapper(torch.Tensor):
            @staticmethod
            def __new__(cls):
                policy = dict(dispatch_device=True, dispatch_sizes_strides_policy="sizes")
                return torch.Tensor._make_wrapper_subclass(cls, (2,), device="cuda", **policy)
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                print("dispatch", func)
                return torch.device("cuda:0") if "device" in str(func) else NotImplemented
        wrapper = Wrapper()
        keep = torch.ones(2**22, device="cuda")
        net = torch.nn.Linear(8, 8).cuda()
        print("call"); net(torch.ones(2, 8, device="cuda")).sum().backward(); print("done")
    """,
    "the names of a class body": """
        import torch
        class Space(dict):
            def items(self): print("items"); return super().items()
        class Meta(type):
            @classmethod
            def __prepare__(meta, *given): return Space()
        net = torch.nn.Linear(8, 8).cuda()
        keep = torch.ones(2**22, device="cuda")
        class Made(metaclass=Meta): y = net(torch.ones(2, 8, device="cuda"))
        print("done")
    """,
}


@pytest.mark.parametrize("name", SAME)
def test_the_program_does_the_same(record, torch_python, name):
    measured = record(SAME[name], python=torch_python, **VIRTUAL)
    traced = record(SAME[name], python=torch_python, purpose="trace", **VIRTUAL)
    assert measured.record.outcome == traced.record.outcome == "completed"
    assert measured.stdout and traced.stdout == measured.stdout
    assert traced.stderr == measured.stderr
    assert traced.record.recorder_notes == ()
    assert read_names((traced.folder / "names.jsonl").read_text())


def test_a_walk_looks_into_no_very_long_container(record, torch_python):
    source = """
        import torch
        def main():
            short = [[0] * 9_000 + [torch.ones(2**18, device="cuda")]]
            long = [[0] * 10_000 + [torch.ones(2**19, device="cuda")]]
            try: torch.empty(2**45, device="cuda")
            except torch.OutOfMemoryError: pass
        main()
    """
    done = record(source, python=torch_python, purpose="trace", **VIRTUAL)
    walks = read_names((done.folder / "names.jsonl").read_text())
    (walk,) = [walk for walk in walks if walk.reason == "oom"]
    assert not walk.cut
    assert [storage.name for storage in walk.storages] == ["short[0][9000]"]


def test_a_walk_ends_when_its_time_is_up(record, torch_python):
    source = """
        import sys, torch
        walk = sys.modules[next(name for name in sys.modules if name.endswith(".walk"))]
        class Clock:
            now = 0.0
            @classmethod
            def monotonic(cls): cls.now += 0.1; return cls.now
        walk.time = Clock
        nets = [torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(40))).cuda() for _ in range(40)]
        def visited():
            Clock.now = 0.0
            try: torch.empty(2**45, device="cuda")
            except torch.OutOfMemoryError: return round(Clock.now, 1)
        print(visited() < 1.0)
        x = torch.ones(1, 2, device="cuda")
        for net in nets: net(x)
        print(visited() < 1.0)
    """
    done = record(source, python=torch_python, purpose="trace", **VIRTUAL)
    assert done.stdout == "True\nTrue\n", done.stderr
    walks = read_names((done.folder / "names.jsonl").read_text())
    assert all(walk.cut for walk in walks if walk.reason == "oom")


def test_modules_that_are_gone_are_forgotten(record, torch_python):
    source = """
        import gc, torch
        net = torch.nn.Linear(8, 8).cuda()
        x = torch.ones(2, 8, device="cuda")
        for _ in range(500):
            torch.nn.MSELoss()(net(x), x).backward()
        (ours,) = [item for item in gc.get_objects() if type(item).__name__ == "Modules"]
        print(len(ours._roots) <= 65, len(ours._inside) <= 130, len(ours._parameters))
        net.weight = torch.nn.Parameter(torch.ones(8, 8, device="cuda"))
        (net(x).sum() + net.weight.sum()).backward()
        print(ours.parameter_name(net.weight), ours.parameter_name(net.bias))
    """
    done = record(source, python=torch_python, purpose="trace", **VIRTUAL)
    assert done.stdout == "True True 2\nLinear.weight Linear.bias\n", done.stderr
    assert done.record.recorder_notes == ()


def test_the_mode_leaves_after_a_call_in_which_a_compiler_was_used(record, torch_python):
    source = """
        import torch
        class Sub(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                with torch._C.DisableTorchFunctionSubclass():
                    if func is torch.Tensor.add: torch.compile(lambda x: x + 1, backend="eager")
                    return func(*args, **(kwargs or {}))
        torch.ones(3).as_subclass(Sub).add(1)
        print(torch.nn.functional.relu(torch.ones(1)))
        print(torch.nn.functional.normalize(torch.ones(1), dim=0))
        print(torch._C._len_torch_function_stack())
        print(torch.nn.functional.has_torch_function_variadic is torch._C._has_torch_function_variadic)
        def f(x): return torch.sin(x) + torch.nn.functional.relu(x)
        print(torch.compile(f, fullgraph=True, backend="eager")(torch.ones(2)))
    """
    done = record(source, python=torch_python, purpose="trace")
    assert done.stdout.splitlines() == [
        "tensor([1.])",
        "tensor([1.])",
        "0",
        "True",
        "tensor([1.8415, 1.8415])",
    ], done.stderr
    assert len([note for note in done.record.recorder_notes if "torch.compile" in note]) == 1
