"""A trace sees every call of torch's functions, and the program prints the same and takes the same ways."""

import subprocess
import textwrap

import pytest

pytestmark = pytest.mark.torch

PROGRAMS = {
    "warnings name the program's lines": """
        import numpy, torch
        import torch.nn.functional as F
        F.softmax(torch.ones(2))
        F.mse_loss(torch.ones(2), torch.ones(1))
        array = numpy.ones(3); array.flags.writeable = False
        torch.from_numpy(array)
        (torch.ones(2, requires_grad=True) * 2).grad
        torch.ones(2, 3, 4).T
    """,
    "tracebacks that the program prints": """
        import traceback, torch
        import torch.nn.functional as F
        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 1
            @staticmethod
            def backward(ctx, g): raise RuntimeError("bad backward")
        w = torch.ones(2, requires_grad=True)
        for attempt in (
            lambda: torch.ones(2) @ torch.ones(3),
            lambda: F.layer_norm(torch.ones(2), (3,)),
            lambda: torch.ones(2).no_such_method(),
            lambda: torch.ones(2, no_such_argument=1),
            lambda: Fails.apply(w).sum().backward(),
            lambda: torch.autograd.grad(torch.ones(1), w),
            lambda: w.backward(),
        ):
            try: attempt()
            except Exception: traceback.print_exc()
    """,
    "a traceback that ends the program": """
        import torch
        def f(): return torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.ones(5).long())
        f()
    """,
    "other modes": """
        import torch
        from torch.overrides import TorchFunctionMode
        class Counts(TorchFunctionMode):
            seen = []
            def __torch_function__(self, func, types, args=(), kwargs=None):
                self.seen.append(func.__name__)
                return func(*args, **(kwargs or {}))
        with torch.device("meta"): print(torch.ones(2).device, torch.nn.Linear(2, 2).weight.device)
        with Counts():
            x = torch.ones(2) + 1
            with torch.device("meta"): y = torch.zeros(3)
            z = torch.nn.functional.softmax(x, 0)
        print(Counts.seen, y.device, z)
        torch.set_default_device("meta"); print(torch.ones(1).device)
        torch.set_default_device("cpu"); print(torch.ones(1).device)
        torch.set_default_device(None); print(torch.ones(1).device)
    """,
    "a subclass of tensors": """
        import torch
        class Sub(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                print(func.__name__)
                return super().__torch_function__(func, types, args, kwargs)
        x = torch.ones(2).as_subclass(Sub)
        print(type(x + 1).__name__, type(torch.nn.functional.gelu(x)).__name__)
        print(torch.overrides.has_torch_function((x,)), torch.overrides.has_torch_function((1,)))
        print(torch.overrides.has_torch_function_unary(torch.ones(1)))
    """,
    "the fused kernels of attention": """
        import torch
        real, attention = torch._transformer_encoder_layer_fwd, torch._native_multi_head_attention
        def fused(*args):
            print("fused layer"); return real(*args)
        def native(*args, **kwargs):
            print("fused attention"); return attention(*args, **kwargs)
        torch._transformer_encoder_layer_fwd, torch._native_multi_head_attention = fused, native
        layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        heads = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
        x = torch.ones(1, 3, 8)
        with torch.no_grad(): torch.nn.Sequential(layer)(x); heads(x, x, x, need_weights=False)
    """,
    "torch.jit": """
        import torch
        import torch.nn.functional as F
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3), torch.nn.Softmax(-1))
        print(torch.jit.trace(model, torch.ones(2, 3)).graph_for(torch.ones(2, 3)) is not None)
        @torch.jit.script
        def f(x):
            return F.layer_norm(F.softmax(x, dim=-1), [3])
        print(f(torch.ones(2, 3)), torch.jit.script(model)(torch.ones(1, 3)).shape)
        print(torch.jit.script(torch.nn.TransformerEncoderLayer(8, 2).eval())(torch.ones(1, 3, 8)).shape)
    """,
    "symbolic tracing and functorch": """
        import torch
        from torch.func import functional_call, grad, vmap
        from torch.fx.experimental.proxy_tensor import make_fx
        class M(torch.nn.Module):
            def __init__(self): super().__init__(); self.l = torch.nn.Linear(2, 2)
            def forward(self, x): return torch.nn.functional.layer_norm(self.l(x), (2,)).relu()
        m = M()
        print(torch.fx.symbolic_trace(m).code)
        print(make_fx(lambda x: x.sin() + 1)(torch.ones(2)).code)
        print(grad(lambda x: (x ** 3).sum())(torch.ones(2)), vmap(torch.dot)(torch.ones(2, 3), torch.ones(2, 3)))
        loss = lambda p, x: functional_call(m, p, (x,)).sum()
        print(vmap(grad(loss), (None, 0))(dict(m.named_parameters()), torch.ones(4, 1, 2))["l.bias"].shape)
        print(torch.autograd.functional.hessian(lambda x: (x ** 3).sum(), torch.ones(2)))
    """,
    "second derivatives and retained graphs": """
        import torch
        w = torch.ones(3, requires_grad=True)
        loss = (w ** 3).sum()
        (first,) = torch.autograd.grad(loss, w, create_graph=True)
        first.sum().backward(retain_graph=True); first.sum().backward()
        print(w.grad, first)
        y = (w * 2).exp(); total = y.sum(); total.backward(retain_graph=True); total.backward(); print(w.grad)
        try: total.backward()
        except RuntimeError as error: print(str(error)[:40])
    """,
    "graphs that are seen from the program": """
        import torch
        m = torch.nn.Linear(2, 2)
        loss = m(torch.ones(1, 2)).sum()
        node = loss.grad_fn
        node.register_prehook(lambda grads: print("prehook", len(grads)))
        node.register_hook(lambda i, o: print("hook", len(i), len(o)))
        loss.backward()
        print(node.name(), node.next_functions[0][0].name(), m.weight.grad)
    """,
    "memory of tensors ends when it ended": """
        import gc, weakref, torch
        class Big(torch.nn.Module):
            def __init__(self): super().__init__(); self.l = torch.nn.Linear(4, 4)
            def forward(self, x):
                first = self.l(x); gone = weakref.ref(first)
                first = self.l(first)
                print("freed inside", gone() is None)
                return first
        gc.disable()
        m = Big(); out = m(torch.ones(2, 4)); gone = weakref.ref(out)
        loss = out.sum(); loss.backward(); del out; print(gone() is None)
        try:
            x = torch.ones(3); gone = weakref.ref(x); x @ torch.ones(4)
        except RuntimeError: pass
        del x; print(gone() is None)
    """,
    "names imported from torch": """
        import pickle, torch
        from torch.overrides import has_torch_function_variadic as question
        print(question.__name__, question.__doc__[:30], pickle.loads(pickle.dumps(question)) is question)
        from torch.autograd import backward, grad
        print(backward.__name__, grad.__name__, torch.compile.__name__)
    """,
    "processes": """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        class Data(TensorDataset):
            def __getitem__(self, i): return torch.nn.functional.softmax(self.tensors[0][i] * 2, 0)
        for kind in ("fork", "spawn"):
            if __name__ == "__main__":
                loader = DataLoader(Data(torch.ones(8, 2)), batch_size=4, num_workers=2, multiprocessing_context=kind)
                for batch in loader: print(kind, batch.sum())
    """,
    "checkpoints": """
        import torch
        from torch.utils.checkpoint import checkpoint
        torch.manual_seed(0)
        m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
        for reentrant in (True, False):
            x = torch.ones(4, 2, requires_grad=True)
            checkpoint(m, x, use_reentrant=reentrant).sum().backward()
            print(x.grad, m[0].weight.grad)
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(record, project, torch_python, name):
    source = textwrap.dedent(PROGRAMS[name])
    (project / "program.py").write_text(source)
    expected = subprocess.run(
        [torch_python, "program.py"], cwd=project, capture_output=True, text=True, check=False
    )
    got = record(source, python=torch_python, purpose="trace")
    assert (got.stdout, got.stderr) == (expected.stdout, expected.stderr)
    assert got.record.exit_code == expected.returncode
    assert not got.record.recorder_notes
