"""Tensors on a CUDA device: every check asserts devices, shapes, values or bytes."""

import io
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F

from virtual_check import check, raises


CUDA = "cuda"
MIB = 1 << 20


def live():
    return torch.cuda.memory_allocated()


def on_device(*tensors):
    return all(t.is_cuda and t.device == torch.device("cuda", 0) for t in tensors)


@check
def device_is_named():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    assert torch.cuda.get_device_name(0) == "NVIDIA H200"
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_properties(0).total_memory == 150_109_880_320
    assert torch.cuda.is_bf16_supported()
    assert torch.cuda.current_device() == 0
    assert torch.accelerator.current_accelerator() == torch.device("cuda")


@check
def tensors_are_plain():
    x = torch.randn(2, device=CUDA)
    assert type(x) is torch.Tensor and on_device(x) and x.get_device() == 0
    assert x.type() == "torch.cuda.FloatTensor" and not x.is_cpu


@check
def printing():
    assert "device='cuda:0'" in str(torch.ones(3, device=CUDA))
    assert "..." in str(torch.randn(2000, 2000, device=CUDA))


@check
def small_values_are_computed():
    x = torch.tensor([1.0, 2.0], device=CUDA)
    assert (x * 3).sum().item() == 9 and x.tolist() == [1, 2]
    assert torch.randperm(5, device=CUDA).sort()[0].tolist() == [0, 1, 2, 3, 4]
    assert torch.arange(0, 1, 0.25, device=CUDA).tolist() == [0, 0.25, 0.5, 0.75]
    assert torch.arange(0, 1, 0.5, device=CUDA).shape == (2,)


@check
def bytes_of_a_tensor():
    before = live()
    x = torch.empty(1000, 1000, device=CUDA)
    assert live() - before == 4_000_256  # rounded up to 512
    assert x.untyped_storage().nbytes() == 4_000_000
    view = x[10:20]
    assert view.untyped_storage().data_ptr() == x.data_ptr()
    del x
    assert live() - before == 4_000_256  # the view holds it
    del view
    assert live() == before


@check
def integers_keep_values():
    x = torch.arange(100_000, device=CUDA)
    assert x[99_999].item() == 99_999 and (x % 7 == 0).sum().item() == 14_286


@check
def masks():
    x = torch.randn(1000, 100, device=CUDA)
    assert x[x > 0].shape == (100_000,)  # unknown values: the upper bound
    assert x[torch.tensor([1, 2], device=CUDA)].shape == (2, 100)
    assert x[[1, 2, 3]].shape == (3, 100)
    known = torch.tensor([3.0, -1.0, 2.0], device=CUDA)
    assert known[known > 0].tolist() == [3, 2]


@check
def mask_assignment():
    x = torch.tensor([3.0, -1.0, 2.0], device=CUDA)
    x[x < 0] = 0
    x[1:] += 1
    assert x.tolist() == [3, 1, 3]
    large = torch.randn(1000, 100, device=CUDA)
    large[large > 0] = 0
    large[:, None].mul_(2)
    assert large.shape == (1000, 100)


@check
def nonzero_and_where():
    assert torch.eye(5, device=CUDA).nonzero().shape == (5, 2)
    assert torch.where(torch.eye(3, device=CUDA))[0].tolist() == [0, 1, 2]
    assert torch.randn(1000, 1000, device=CUDA).nonzero().shape == (1_000_000, 2)


@check
def to_the_host():
    assert torch.ones(3, device=CUDA).cpu().numpy().tolist() == [1, 1, 1]
    assert torch.randn(1000, 100, device=CUDA).cpu().mean().item() == 1.0  # assumed


@check
def mixed_devices_raise():
    text = "Expected all tensors to be on the same device"
    raises(RuntimeError, text, lambda: torch.ones(3, device=CUDA) + torch.ones(3))
    assert (torch.ones(3, device=CUDA) + torch.tensor(2.0)).tolist() == [3, 3, 3]


@check
def wrong_shapes_raise():
    x = torch.randn(300, 400, device=CUDA)
    raises(RuntimeError, "shapes cannot be multiplied", lambda: x @ x)
    raises(RuntimeError, "broadcast", lambda: x.add_(torch.randn(5, 7, device=CUDA)))


@check
def numpy_raises():
    raises(TypeError, "can't convert cuda", lambda: torch.ones(3, device=CUDA).numpy())


@check
def another_device_raises():
    raises(RuntimeError, "invalid device ordinal", lambda: torch.empty(3, device="cuda:1"))


@check
def save_and_load():
    model, buffer = nn.Linear(4, 4).cuda(), io.BytesIO()
    torch.save(model.state_dict(), buffer)
    for location, device in (("cuda", "cuda"), (None, "cuda"), ("cpu", "cpu")):
        buffer.seek(0)
        state = torch.load(buffer, map_location=location)
        assert state["weight"].device.type == device
        assert torch.equal(state["weight"].cpu(), model.weight.detach().cpu())
        model.load_state_dict(state)


@check
def generators():
    generator = torch.Generator(device=CUDA).manual_seed(0)
    assert isinstance(generator, torch.Generator) and generator.device.type == "cuda"
    first = torch.randn(2, device=CUDA, generator=generator).tolist()
    again = torch.randn(2, device=CUDA, generator=generator.manual_seed(0)).tolist()
    assert first == again and isinstance(torch.default_generator, torch.Generator)


@check
def host_random_stream_is_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(3).tolist()
    torch.manual_seed(1)
    torch.randn(4, device=CUDA)
    F.dropout(torch.ones(4, device=CUDA))
    assert torch.rand(3).tolist() == expected
    torch.cuda.manual_seed(3)
    first = torch.rand(3, device=CUDA).tolist()
    state = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(3)
    assert torch.rand(3, device=CUDA).tolist() == first
    assert torch.equal(torch.cuda.get_rng_state(), state)


@check
def streams_and_events():
    stream = torch.cuda.Stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        x = torch.ones(3, device=CUDA)
    assert torch.cuda.current_stream() == torch.cuda.default_stream() != stream
    x.record_stream(torch.cuda.current_stream())
    end.record()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0 and isinstance(stream, torch.Stream)


@check
def default_device():
    torch.set_default_device("cuda")
    try:
        x, model = torch.randn(3, requires_grad=True), nn.Linear(3, 3)
        model(x * x).sum().backward()
        assert on_device(x, model.weight, x.grad)
    finally:
        torch.set_default_device("cpu")


@check
def inference_mode():
    with torch.inference_mode():
        assert nn.Linear(3, 3).cuda()(torch.randn(2, 3, device=CUDA)).shape == (2, 3)


@check
def threads():
    shapes = []
    thread = threading.Thread(target=lambda: shapes.append(torch.randn(3, device=CUDA).shape))
    thread.start()
    thread.join()
    assert shapes == [(3,)]


@check
def linear_algebra():
    a = torch.randn(4, 8, 8, device=CUDA)
    positive = a @ a.mT + 10 * torch.eye(8, device=CUDA)
    assert torch.linalg.cholesky(positive).shape == (4, 8, 8)
    assert torch.linalg.svd(a)[1].shape == (4, 8) and torch.linalg.inv(a).shape == (4, 8, 8)
    assert torch.einsum("bij,bjk->bik", a, a).shape == torch.cdist(a, a).shape == (4, 8, 8)


@check
def fourier():
    x = torch.randn(8, 64, device=CUDA)
    y = torch.fft.rfft(x)
    assert y.dtype is torch.complex64 and torch.fft.irfft(y).shape == (8, 64)


@check
def sorting():
    x = torch.randn(1000, 1000, device=CUDA)
    assert x.sort(-1)[1].dtype is torch.int64 and x.topk(5)[0].shape == (1000, 5)
    assert x.unique().shape == (1_000_000,) and x.argmax(-1).bincount().dim() == 1
    assert torch.multinomial(x.softmax(-1), 1).shape == (1000, 1)
    assert torch.tensor([3, 1, 2], device=CUDA).sort()[0].tolist() == [1, 2, 3]


@check
def scattering():
    x, i = torch.zeros(4, 2, device=CUDA), torch.tensor([0, 0, 3], device=CUDA)
    x.index_add_(0, i, torch.ones(3, 2, device=CUDA))
    assert x[:, 0].tolist() == [2, 0, 0, 1]
    assert F.one_hot(i, 4).sum(0).tolist() == [2, 0, 0, 1]
    assert torch.gather(x, 0, i[:, None])[:, 0].tolist() == [2, 2, 1]


@check
def jagged_tensors():
    parts = [torch.randn(2, 4), torch.randn(3, 4)]
    nested = torch.nested.nested_tensor(parts, device=CUDA, layout=torch.jagged)
    assert (nested * 2).is_cuda


@check
def resizing():
    out = torch.empty(0, device=CUDA)
    torch.add(torch.ones(5, device=CUDA), 1, out=out)
    assert out.tolist() == [2] * 5 and torch.empty(2, device=CUDA).resize_(10).shape == (10,)
    before = live()
    x = torch.empty(MIB, device=CUDA)
    x.untyped_storage().resize_(0)
    assert live() == before and x.untyped_storage().size() == 0
    x.untyped_storage().resize_(4 * MIB)
    assert live() - before == 4 * MIB


@check
def reduced_types():
    x = torch.randn(64, 64, device=CUDA).to(torch.float8_e4m3fn)
    assert on_device(x) and x.untyped_storage().nbytes() == 4096
    assert torch.zeros(3, dtype=torch.complex64, device=CUDA).sum().item() == 0


@check
def sparse():
    i = torch.tensor([[0, 1], [1, 0]], device=CUDA)
    s = torch.sparse_coo_tensor(i, torch.ones(2, device=CUDA), (2, 2))
    assert (s @ torch.ones(2, 2, device=CUDA)).tolist() == [[1, 1], [1, 1]]


@check
def private_pools_are_refused():
    raises(RuntimeError, "does not model CUDA graphs", torch.cuda.CUDAGraph)
    raises(RuntimeError, "does not model memory pools", torch.cuda.MemPool)


@check
def streams_for_any_device():
    stream = torch.Stream(0)
    assert isinstance(stream, torch.Stream) and isinstance(torch.cuda.Stream(), torch.Stream)
    assert issubclass(torch.cuda.Stream, torch.Stream) and stream.device.type == "cuda"
    torch.accelerator.current_stream().wait_stream(stream)
    assert torch.cuda.Stream(priority=-1).priority == -1
    with torch.cuda.Stream() as entered:
        assert torch.cuda.current_stream() == entered
    assert torch.cuda.current_stream() != entered
    event = torch.Event("cuda", enable_timing=True)
    event.record()
    assert isinstance(event, torch.Event) and event.query()


@check
def data_parallel_scatters_and_gathers():
    model = nn.DataParallel(nn.Linear(4, 2).cuda())
    before = live()
    out = model(torch.ones(8, 4))
    out.sum().backward()
    assert out.shape == (8, 2) and model.module.weight.grad is not None
    del out
    model.zero_grad(set_to_none=True)
    assert live() - before <= MIB  # what is freed on a second stream waits for the next request
    chunks = torch.nn.parallel.comm.scatter(torch.arange(6, device=CUDA), [0])
    assert [chunk.tolist() for chunk in chunks] == [[0, 1, 2, 3, 4, 5]]
    parts = [torch.ones(2, 3, device=CUDA), torch.zeros(1, 3, device=CUDA)]
    assert torch.nn.parallel.comm.gather(parts, 0, 0).shape == (3, 3)
    assert torch.nn.parallel.comm.gather(parts, 0, "cpu").device.type == "cpu"


@check
def distributions_take_assumed_values():
    logits = nn.Linear(256, 512).cuda()(torch.randn(128, 256, device=CUDA))
    policy = torch.distributions.Categorical(logits=logits)
    assert policy.log_prob(policy.sample()).shape == (128,)
    assert torch.distributions.Normal(logits, logits.exp()).rsample().shape == (128, 512)


@check
def compiler_state_is_reset():
    torch.compiler.reset()
    assert not torch.cuda.tunable.is_enabled()


@check
def forward_mode():
    x = torch.tensor([1.0, 2.0], device=CUDA)
    value, tangent = torch.func.jvp(lambda t: (t**2).sum(), (x,), (torch.ones_like(x),))
    assert value.item() == 5 and tangent.item() == 6
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device=CUDA)
    assert nested.to_padded_tensor(0.0).sum(-1).tolist() == [[3, 3, 0, 0], [3, 3, 3, 3]]
