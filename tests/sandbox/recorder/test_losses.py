"""The loss of each update: at full precision, summed over roots, with its scaling undone."""

import pytest

from tests.sandbox.recorder.programs import TRAIN, TRAIN_HEAD, printed_floats

pytestmark = pytest.mark.torch


def test_losses_have_full_precision(record, torch_python):
    done = record(TRAIN, python=torch_python)
    assert list(done.record.losses) == printed_floats(done.stdout)


def test_several_backward_roots_are_summed_and_several_optimizers_counted_once(
    record, torch_python
):
    source = """
        import torch
        a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        first, second = torch.optim.SGD([a], 0.1), torch.optim.SGD([b], 0.1)
        for step in range(3):
            (a * 2).sum().backward()
            torch.autograd.backward([(b * 3).sum()])
            first.step(); second.step()
            first.zero_grad(); second.zero_grad()
    """
    done = record(source, python=torch_python).record
    assert done.updates == 3
    assert done.losses[0] == 5.0
    assert done.samples_per_update == (None, None, None)


def test_loss_scaling_is_undone(record, torch_python):
    source = """
        import torch
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
            print(repr(loss.item()))
        (scaler.scale(model(torch.ones(2, 3)).mean()) / 2).backward()
        scaler.step(optimizer)
    """
    done = record(source, python=torch_python)
    assert list(done.record.losses[:3]) == printed_floats(done.stdout)
    assert done.record.losses[3] is None  # scaled, then changed: what it was is not known


def test_nan_losses_are_kept_apart_from_missing_ones(record, torch_python):
    source = """
        import torch
        w = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([w], 0.1)
        (w.sum() * float("nan")).backward(); optimizer.step()
        torch.autograd.backward([w * 1], [torch.ones(1)]); optimizer.step()
        optimizer.step()
    """
    done = record(source, python=torch_python).record
    assert str(done.losses[0]) == "nan"
    assert done.losses[2] is None
    assert type(done).from_json(done.to_json()).losses[2] is None
    assert str(type(done).from_json(done.to_json()).losses[0]) == "nan"


def test_reentrant_checkpointing_leaves_the_loss_of_the_outer_pass(record, torch_python):
    source = (
        TRAIN_HEAD
        + """
        from torch.utils.checkpoint import checkpoint
        for _ in range(2):
            x = torch.ones(5, 2, requires_grad=True)
            loss = checkpoint(model, x, use_reentrant=True).mean()
            loss.backward(); optimizer.step(); print(repr(loss.item()))
    """
    )
    done = record(source, python=torch_python)
    assert list(done.record.losses) == [float(line) for line in done.stdout.split()]


def test_unscaled_values_outlive_their_tensors_and_come_in_lists(record, torch_python):
    source = (
        TRAIN_HEAD
        + """
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(2):
            scaler.scale(model(torch.ones(5, 2)).mean()).backward(); scaler.step(optimizer); scaler.update()
        one, two = scaler.scale([model(torch.ones(5, 2)).mean(), model(torch.zeros(5, 2)).mean()])
        torch.autograd.backward([one, two]); scaler.step(optimizer)
        print(repr((one / scaler.get_scale() + two / scaler.get_scale()).item()))
    """
    )
    done = record(source, python=torch_python)
    assert None not in done.record.losses
    assert done.record.losses[2] == pytest.approx(float(done.stdout), rel=1e-6)
