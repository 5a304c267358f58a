"""Programs with torch print the same, and end the same, whether they are recorded or not."""

import subprocess
import textwrap

import pytest

pytestmark = pytest.mark.torch

PROGRAMS = {
    "idle executor": """
        from concurrent.futures import ThreadPoolExecutor
        import torch
        pool = ThreadPoolExecutor(2)
        print(pool.submit(lambda: 3).result())
    """,
    "looks for torch before it imports it": """
        import importlib.util
        spec = importlib.util.find_spec("torch")
        print(type(spec.loader).__name__)
        import torch
        print(torch.nn.Linear(2, 2)(torch.ones(1, 2)).shape, len(__import__("sys").meta_path))
    """,
    "backward of a generator": """
        import torch
        w = torch.ones(1, requires_grad=True)
        torch.autograd.backward(t for t in [w.sum() * 2, w.sum() * 3])
        print(w.grad)
    """,
    "hook added in a forward and removed after it": """
        import torch
        class M(torch.nn.Module):
            def forward(self, x):
                self.handle = self.register_forward_hook(lambda *_: print("hook") if later else None)
                return x
        m, later = M(), False
        m(torch.ones(1)); m.handle.remove(); print(len(m._forward_hooks))
        later = True
        M.forward = lambda self, x: x
        m(torch.ones(1))
    """,
    "hook removed in a forward": """
        import torch
        class M(torch.nn.Module):
            def forward(self, x):
                self.handle.remove()
                return x
        m = M(); m.handle = m.register_forward_hook(lambda *_: print("hook"))
        m(torch.ones(1)); print(len(m._forward_hooks))
    """,
    "hooks cleared in a forward": """
        import torch
        class M(torch.nn.Module):
            def forward(self, x):
                self._forward_hooks.clear()
                return x
        m = M(); m(torch.ones(1)); m(torch.ones(1)); print(len(m._forward_hooks))
    """,
    "a failed model is given up": """
        import gc, weakref, torch
        class M(torch.nn.Module):
            def forward(self, x): raise ValueError
        m = M(); gone = weakref.ref(m)
        try: m(torch.ones(1))
        except ValueError: pass
        del m; gc.collect(); print(gone())
    """,
    "parameters are swapped": """
        import torch
        torch.__future__.set_swap_module_params_on_conversion(True)
        m = torch.nn.Linear(4, 4); o = torch.optim.SGD(m.parameters(), 0.1)
        m(torch.ones(3, 4)).sum().backward(); o.step(); o.zero_grad()
        m.double(); print(m.weight.dtype)
        m(torch.ones(3, 4).double()).sum().backward(); o.step(); print(m.weight.dtype)
    """,
    "warnings are errors": """
        import io, warnings, torch
        warnings.simplefilter("error")
        m = torch.nn.Linear(4, 4)
        torch.save(m(torch.ones(3, 4)), io.BytesIO())
        scaled = torch.amp.GradScaler("cpu").scale(m(torch.ones(3, 4)).mean())
        torch.save(scaled, io.BytesIO())
        print(bool(getattr(torch.nn.modules.module, "_has_any_global_hook", bool)()))
    """,
    "children that train": """
        import multiprocessing, torch
        def work():
            m = torch.nn.Linear(2, 1); o = torch.optim.SGD(m.parameters(), 0.1)
            for _ in range(5): m(torch.ones(1, 2)).sum().backward(); o.step()
            print("trained", flush=True)
        if __name__ == "__main__":
            child = multiprocessing.get_context("fork").Process(target=work)
            child.start(); child.join(); print(child.exitcode)
    """,
    "arguments with code of their own": """
        import torch
        class Proxy:
            def __getattr__(self, name):
                if not name.startswith("__torch"): print("asked for", name)
                raise AttributeError(name)
        class Values(dict):
            def values(self): print("values"); return super().values()
        class M(torch.nn.Module):
            def named_parameters(self, *a, **k): print("named"); return super().named_parameters(*a, **k)
            def forward(self, proxy, values, x): return x
        M()(Proxy(), Values(a=1), torch.ones(2))
        print("done")
    """,
}


@pytest.mark.parametrize("purpose", ["measure", "trace"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(record, project, torch_python, name, purpose):
    source = textwrap.dedent(PROGRAMS[name])
    (project / "program.py").write_text(source)
    expected = subprocess.run(
        [torch_python, "program.py"], cwd=project, capture_output=True, text=True, check=False
    )
    updates = 2 if "children" in name else None
    got = record(source, python=torch_python, purpose=purpose, updates=updates)
    assert (got.stdout, got.stderr) == (expected.stdout, expected.stderr)
    assert (got.record.outcome, got.record.exit_code) == ("completed", expected.returncode)
    assert not got.record.recorder_notes
