"""The module hooks step aside inside a call, and nobody notices: not the program, not torch, not other threads."""

import pytest

pytestmark = pytest.mark.torch

NET = """
    import copy, io, threading, torch
    hooks = torch.nn.modules.module
    registered = lambda: (len(hooks._global_forward_pre_hooks), len(hooks._global_forward_hooks))
    class Net(torch.nn.Module):
        def __init__(self, inside=lambda net: None):
            super().__init__()
            self.a, self.b, self.inside = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1), inside
        def forward(self, x):
            self.inside(self)
            return self.b(self.a(x))
"""


def test_inside_a_call_torch_sees_no_hook_and_afterwards_ours(record, torch_python):
    source = (
        NET
        + """
    print("before", registered())
    net = Net(lambda net: print("inside", registered(), len(net.a._forward_hooks)))
    net(torch.ones(3, 2))
    print("after", registered(), len(net._forward_hooks), len(net._forward_hooks_always_called))
    """
    )
    done = record(source, python=torch_python)
    assert done.stdout.splitlines() == [
        "before (1, 1)",
        "inside (0, 0) 0",
        "after (1, 1) 0 0",
    ]
    assert [(site.module, site.calls, site.rows) for site in done.record.call_sites] == [
        ("Net", 1, 3)
    ]


@pytest.mark.parametrize("error", ["ValueError", "KeyboardInterrupt"])
def test_calls_are_counted_after_one_that_was_broken_off(record, torch_python, error):
    source = (
        NET
        + f"""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    def fail(net): raise {error}
    for _ in range(2):
        try: Net(fail)(torch.ones(1, 2))
        except {error}: pass
        optimizer.step()
        model(torch.ones(5, 2)).sum().backward(); optimizer.step()
    print(registered())
    """
    )
    done = record(source, python=torch_python)
    assert done.stdout == "(1, 1)\n"
    sites = {(site.module, site.calls, site.reached_calls) for site in done.record.call_sites}
    assert sites == {("Net", 2, 0), ("Linear", 2, 2)}


def test_a_module_copied_or_pickled_in_its_own_call_takes_a_hook_along_that_does_nothing(
    record, torch_python, project
):
    source = (
        NET
        + """
    class Saves(torch.nn.Linear):
        def forward(self, x):
            if saving:
                copied.append(copy.deepcopy(self))
                torch.save(self, "saved.pt")
            return super().forward(x)
    saving, copied = True, []
    Saves(2, 2)(torch.ones(1, 2))
    saving = False
    loaded = torch.load("saved.pt", weights_only=False)
    for module in (copied[0], loaded):
        print([hook.__self__ for hook in module._forward_hooks.values()])
        print(module(torch.ones(1, 2)).shape, len(module._forward_hooks))
    """
    )
    done = record(source, python=torch_python)
    assert done.stdout.count("[<contextlib.nullcontext") == 2
    assert done.stdout.count("torch.Size([1, 2]) 0") == 2
    assert [(site.function, site.calls) for site in done.record.call_sites] == [
        ("<module>", 1),
        ("<module>", 2),
    ]


def test_a_module_that_calls_itself_is_one_call(record, torch_python):
    source = (
        NET
        + """
    class Tree(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(2, 2)
        def forward(self, x, depth):
            x = self(x, depth - 1) if depth else x
            return self.lin(x)
    tree = Tree(); optimizer = torch.optim.SGD(tree.parameters(), 0.1)
    for _ in range(2):
        tree(torch.ones(3, 2), 2).sum().backward(); optimizer.step()
    """
    )
    done = record(source, python=torch_python).record
    assert [(site.module, site.calls, site.rows) for site in done.call_sites] == [("Tree", 2, 6)]
    assert done.samples_per_update == (3, 3)


def test_hooks_that_a_module_gets_in_its_own_call_stay(record, torch_python):
    source = (
        NET
        + """
    def add(net):
        if not net._forward_hooks or len(net._forward_hooks) == 1:
            net.handle = net.register_forward_hook(lambda *_: print("hooked"))
    net = Net(add)
    net(torch.ones(1, 2)); net.inside = lambda net: None; net(torch.ones(1, 2))
    print(len(net._forward_hooks))
    """
    )
    done = record(source, python=torch_python)
    assert done.stdout.splitlines() == ["hooked", "hooked", "1"]


def test_the_hooks_of_a_program_stay_in_order(record, torch_python):
    source = (
        NET
        + """
    torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: print(type(m).__name__))
    order = list(hooks._global_forward_hooks)
    Net()(torch.ones(1, 2))
    print(list(hooks._global_forward_hooks) == order)
    """
    )
    done = record(source, python=torch_python)
    assert done.stdout.splitlines() == ["Linear", "Linear", "Net", "True"]


@pytest.mark.parametrize(
    "thread", ["threading.Thread(target=work, daemon=True)", "threading.Timer(0, work)"]
)
def test_a_call_in_another_thread_meanwhile_is_counted(record, torch_python, thread):
    source = (
        NET
        + f"""
    other, started, done = Net(), threading.Event(), threading.Event()
    def work():
        started.wait()
        other(torch.ones(7, 2))
        done.set()
    thread = {thread}
    thread.daemon = True
    thread.start()
    def meanwhile(net):
        started.set(); done.wait(30)
    Net(meanwhile)(torch.ones(3, 2))
    thread.join()
    """
    )
    done = record(source, python=torch_python).record
    assert sorted((site.module, site.calls, site.rows) for site in done.call_sites) == [
        ("Net", 1, 3),
        ("Net", 1, 7),
    ]


def test_torchs_choice_of_a_fused_kernel_stays_the_same(record, torch_python):
    source = """
    import torch
    real = torch._transformer_encoder_layer_fwd
    def fused(*args):
        print("fused")
        return real(*args)
    torch._transformer_encoder_layer_fwd = fused
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with torch.no_grad():
        layer(torch.ones(1, 3, 8))
        torch.nn.Sequential(layer)(torch.ones(1, 3, 8))
    """
    assert record(source, python=torch_python).stdout == "fused\nfused\n"
