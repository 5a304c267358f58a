"""What the recorder writes down of real torch programs, on the CPU: no device is needed to count and to sum."""

import pytest

from tests.sandbox.recorder.programs import TRAIN, TRAIN_HEAD

pytestmark = pytest.mark.torch


def test_updates_losses_samples_and_parameters(record, torch_python):
    done = record(TRAIN, python=torch_python).record
    assert done.outcome == "completed"
    assert done.updates == 6
    assert done.samples_per_update == (3, 4, 5, 6, 7, 8)
    assert [p.name for p in done.parameters] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [p.requires_grad for p in done.parameters] == [False, True, True, True]
    assert done.parameters[0].shape == (8, 4)
    assert done.parameters[0].size_bytes == 128
    assert done.recorder_notes == ()
    assert done.device is None
    assert len(done.step_seconds) == 6 and done.step_seconds[0] is None
    assert all(seconds > 0 for seconds in done.step_seconds[1:])
    assert done.seeded == ("random", "torch", "numpy")


def test_the_same_seed_gives_the_same_run_and_another_seed_another(record, torch_python):
    source = """
        import random, numpy, torch
        print(random.random(), numpy.random.rand(), torch.rand(1).item(), hash("text"))
    """
    first = record(source, python=torch_python, seed=1).stdout
    assert record(source, python=torch_python, seed=1).stdout == first
    assert record(source, python=torch_python, seed=2).stdout != first


def test_stop_after_updates(record, torch_python):
    source = TRAIN + "\n    print('not reached')\n"
    done = record(source, python=torch_python, updates=4)
    assert done.record.outcome == "completed"
    assert done.record.stopped_after_updates
    assert done.record.updates == 4
    assert len(done.record.losses) == 4
    assert "not reached" not in done.stdout
    assert done.stderr == ""


def test_step_inside_backward_counts_as_one_update_each(record, torch_python):
    source = """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        optimizers = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}
        def step(p):
            optimizers[p].step(); optimizers[p].zero_grad()
        for p in model.parameters(): p.register_post_accumulate_grad_hook(step)
        for _ in range(4): model(torch.ones(5, 2)).sum().backward()
    """
    done = record(source, python=torch_python).record
    assert done.updates == 4
    assert done.samples_per_update == (5, 5, 5, 5)


def test_call_sites_tell_training_from_evaluation_by_the_gradient(record, torch_python):
    source = """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        def train():
            for _ in range(3):
                model(torch.ones(4, 2)).sum().backward()
                optimizer.step()
        def evaluate():
            model.eval()
            for _ in range(2): model(torch.ones(7, 2))
        def careful():
            with torch.no_grad(): model(input=torch.ones(9, 2))
        train(); evaluate(); careful()
    """
    done = record(source, python=torch_python).record
    sites = {site.function: site for site in done.call_sites}
    train, evaluate, careful = sites["train"], sites["evaluate"], sites["careful"]
    assert (train.calls, train.grad_calls, train.reached_calls, train.eval_calls, train.rows) == (
        3,
        3,
        3,
        0,
        12,
    )
    assert (evaluate.calls, evaluate.grad_calls, evaluate.reached_calls, evaluate.eval_calls) == (
        2,
        2,
        0,
        2,
    )
    assert (careful.calls, careful.grad_calls, careful.reached_calls, careful.rows) == (1, 0, 0, 9)
    assert train.module == "Linear"
    assert train.file.endswith("program.py") and train.line == 7
    assert (train.reached_rows, evaluate.reached_rows) == (12, 0)
    assert [(p.train, p.grad, p.calls) for p in done.phases] == [
        (True, True, 3),
        (False, True, 2),
        (False, False, 1),
    ]


def test_a_frozen_encoder_and_a_criterion_feed_no_samples(record, torch_python):
    source = """
        import torch
        from torch import nn
        encoder = nn.Linear(2, 3).requires_grad_(False)
        head, criterion = nn.Linear(3, 2), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(head.parameters(), 0.1)
        for _ in range(2):
            loss = criterion(head(encoder(torch.ones(6, 2))), torch.zeros(6, dtype=torch.long))
            loss.backward(); optimizer.step()
    """
    assert record(source, python=torch_python).record.samples_per_update == (6, 6)


def test_recomputation_under_checkpointing_is_no_call(record, torch_python):
    source = """
        import torch
        from torch.utils.checkpoint import checkpoint
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
            def forward(self, x):
                return self.b(checkpoint(self.a, x, use_reentrant=False))
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            model(torch.ones(5, 2)).sum().backward(); optimizer.step()
    """
    done = record(source, python=torch_python).record
    assert [(site.module, site.calls) for site in done.call_sites] == [("Net", 3)]
    assert done.samples_per_update == (5, 5, 5)


def test_an_exception_inside_a_module_does_not_upset_the_nesting(record, torch_python):
    source = """
        import torch
        class Fails(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(2, 2)
            def forward(self, x):
                self.inner(x)
                raise ValueError("no")
        for _ in range(2):
            try: Fails()(torch.ones(1, 2))
            except ValueError: pass
        torch.nn.Linear(2, 2)(torch.ones(3, 2))
    """
    done = record(source, python=torch_python).record
    assert [(site.module, site.calls, site.rows) for site in done.call_sites] == [
        ("Fails", 2, 2),
        ("Linear", 1, 3),
    ]


def test_workers_of_a_data_loader_stay_silent(record, torch_python):
    source = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        class Data(TensorDataset):
            def __getitem__(self, i): return torch.nn.Linear(2, 2)(self.tensors[0][i]).detach()
        for batch in DataLoader(Data(torch.ones(8, 2)), batch_size=4, num_workers=2): print(batch.shape)
    """
    done = record(source, python=torch_python)
    assert done.record.outcome == "completed"
    assert done.stdout.count("torch.Size([4, 2])") == 2
    assert done.record.call_sites == ()


def test_torch_is_not_imported_for_a_program_that_does_not_import_it(record, torch_python):
    done = record(
        "import sys; print('torch' in sys.modules, 'numpy' in sys.modules)", python=torch_python
    )
    assert done.stdout == "False False\n"
    assert done.record.versions.torch is None


def test_the_import_leaves_no_trace(record, torch_python):
    source = """
        import sys, torch
        print(type(torch.__loader__).__module__, torch.__spec__.loader is torch.__loader__)
        print([f for f in sys.meta_path if "headroom" in type(f).__module__])
        print([p for p in sys.path if "recorder" in p], "recorder" in sys.modules)
    """
    lines = record(source, python=torch_python).stdout.splitlines()
    assert lines[0] == "_frozen_importlib_external True"
    assert lines[1:] == ["[]", "[] False"]


def test_own_files_are_hashed_and_installed_ones_are_not(record, project, torch_python):
    import hashlib

    (project / "model.py").write_text("import torch\n")
    done = record("import model\n", python=torch_python).record
    assert done.sources == {
        str(project / name): hashlib.sha256((project / name).read_bytes()).hexdigest()
        for name in ("model.py", "program.py")
    }


def test_a_broken_hook_leaves_a_note_and_the_program_goes_on(record, torch_python):
    source = """
        import torch
        class Odd(torch.nn.Module):
            training = property(lambda self: 1 / 0, lambda self, value: None)
            def forward(self, x): return x
        print(Odd()(torch.ones(1)))
    """
    done = record(source, python=torch_python)
    assert done.record.outcome == "completed"
    assert done.stdout == "tensor([1.])\n"
    assert any("ZeroDivisionError" in note for note in done.record.recorder_notes)


def test_a_traceback_through_backward_shows_no_frame_of_ours(record, torch_python):
    source = """
        import torch
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 1
            @staticmethod
            def backward(ctx, g): raise RuntimeError("bad backward")
        Bad.apply(torch.ones(1, requires_grad=True)).sum().backward()
    """
    done = record(source, python=torch_python)
    assert "bad backward" in done.stderr
    assert "recorder" not in done.stderr
    assert done.record.exception.line == 7


def test_one_line_that_trains_and_evaluates_has_two_records(record, torch_python):
    source = """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        def run_epoch(train):
            model.train(train)
            for _ in range(2):
                out = model(torch.ones(4, 2))
                if train: out.sum().backward(); optimizer.step()
        run_epoch(True); run_epoch(False)
    """
    sites = record(source, python=torch_python).record.call_sites
    assert [(s.line, s.calls, s.eval_calls, s.reached_calls) for s in sites] == [
        (8, 2, 0, 2),
        (8, 2, 2, 0),
    ]


def test_gradients_are_counted_at_each_update(record, torch_python):
    source = """
        import torch
        first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1)
        for step in range(3):
            hidden = first(torch.ones(4, 2))
            second(hidden.detach() if step == 1 else hidden).sum().backward()
            optimizer.step(); optimizer.zero_grad()
    """
    assert record(source, python=torch_python).record.gradients_per_update == (4, 2, 4)


def test_tracing_is_left_alone(record, torch_python):
    source = """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        traced = torch.jit.trace(model, torch.ones(2, 3))
        print(traced(torch.zeros(5, 3)).shape)
    """
    done = record(source, python=torch_python)
    assert done.stdout == "torch.Size([5, 3])\n"
    assert "recorder" not in done.stderr and "TracerWarning" not in done.stderr


def test_a_module_that_hands_out_its_parameter_gets_no_hook_on_it(record, torch_python):
    source = """
        import torch
        class Prompt(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = torch.nn.Parameter(torch.ones(4, 2))
            def forward(self): return self.tokens
        prompt = Prompt()
        optimizer = torch.optim.SGD(prompt.parameters(), 0.1)
        for _ in range(5):
            prompt().sum().backward(); optimizer.step()
        print(prompt.tokens._backward_hooks)
    """
    done = record(source, python=torch_python)
    assert done.stdout == "None\n"
    assert done.record.call_sites[0].reached_calls == 5


def test_a_bare_except_does_not_outlive_the_updates_asked_for(record, torch_python):
    source = """
        import torch
        w = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([w], 0.1)
        for step in range(50):
            try:
                w.sum().backward(); optimizer.step()
            except:
                print("skipped", step)
    """
    done = record(source, python=torch_python, updates=3)
    assert (done.record.updates, done.record.stopped_after_updates) == (3, True)
    assert done.record.outcome == "completed"
    assert done.stdout == "skipped 2\n"


def test_an_empty_parameter_group_hides_no_update(record, torch_python):
    source = """
        import torch
        w = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([{"params": []}, {"params": [w]}], 0.1)
        for _ in range(3): w.sum().backward(); optimizer.step()
    """
    assert record(source, python=torch_python).record.updates == 3


def test_training_in_a_thread_is_recorded_to_its_end(record, torch_python):
    source = """
        import threading, time, torch
        def train():
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(3):
                time.sleep(0.1)
                model(torch.ones(4, 2)).sum().backward(); optimizer.step()
        threading.Thread(target=train).start()
        print("main is done")
    """
    done = record(source, python=torch_python).record
    assert done.updates == 3
    assert done.call_sites[0].reached_calls == 3


def test_inputs_that_want_a_gradient_are_samples(record, torch_python):
    source = (
        TRAIN_HEAD
        + """
        x = torch.ones(5, 2, requires_grad=True)
        for _ in range(2):
            model(x).sum().backward(); optimizer.step()
    """
    )
    assert record(source, python=torch_python).record.samples_per_update == (5, 5)


def test_outputs_in_slots_nested_inputs_and_lazy_modules_are_seen(record, torch_python):
    source = (
        TRAIN_HEAD
        + """
        import dataclasses
        @dataclasses.dataclass(slots=True)
        class Output:
            value: torch.Tensor
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.LazyLinear(1)
            def forward(self, x): return Output(self.layer(x))
        net = Net()
        for _ in range(2):
            net(torch.ones(5, 2)).value.sum().backward(); optimizer.step()
        model(torch.nested.nested_tensor([torch.ones(3, 2), torch.ones(1, 2)]))
    """
    )
    done = record(source, python=torch_python).record
    assert done.recorder_notes == ()
    assert [(s.module, s.calls, s.rows, s.reached_rows) for s in done.call_sites] == [
        ("Net", 2, 10, 10),
        ("Linear", 1, 2, 0),
    ]
    assert sorted(parameter.name for parameter in done.parameters) == [
        "bias",
        "layer.bias",
        "layer.weight",
        "weight",
    ]
