"""Layers, losses, optimizers and wrappers on a CUDA device."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from virtual_check import check, raises


CUDA = "cuda"
MIB = 1 << 20


def live():
    return torch.cuda.memory_allocated()


def on_device(*tensors):
    return all(t.is_cuda and t.device == torch.device("cuda", 0) for t in tensors)


def trains(model, *inputs):
    """Runs forward and backward; every parameter gets a gradient of its own shape, on the device."""
    output = model(*inputs)
    output = output[0] if isinstance(output, tuple) else output
    output.sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None and parameter.grad.shape == parameter.shape
        assert on_device(parameter.grad)
    return output


@check
def recurrent_layers():
    x = torch.randn(4, 10, 16, device=CUDA)
    lstm = nn.LSTM(16, 32, 2, batch_first=True, dropout=0.1).cuda()
    flat = {p.untyped_storage().data_ptr() for p in lstm.parameters()}
    assert len(flat) == 1  # cuDNN wants all weights in one buffer
    assert trains(lstm, x).shape == (4, 10, 32)
    assert trains(nn.GRU(16, 32, bidirectional=True).cuda(), x).shape == (4, 10, 64)
    assert trains(nn.RNN(16, 32).cuda(), x).shape == (4, 10, 32)
    packed = nn.utils.rnn.pack_padded_sequence(x, [10, 9, 8, 7], batch_first=True)
    output, (hidden, _) = lstm(packed)
    assert output.data.shape == (34, 32) and hidden.shape == (2, 4, 32)
    with torch.autocast("cuda", torch.bfloat16):
        assert lstm(x)[0].dtype is torch.bfloat16


@check
def attention_layers():
    x = torch.randn(2, 7, 32, device=CUDA)
    attention = nn.MultiheadAttention(32, 4, batch_first=True).cuda()
    output, weights = attention(x, x, x)
    output.sum().backward()
    assert output.shape == (2, 7, 32) and weights.shape == (2, 7, 7)
    transformer = nn.Transformer(32, 4, 1, 1, 64).cuda()
    assert trains(transformer, x.transpose(0, 1), x.transpose(0, 1)).shape == (7, 2, 32)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).cuda().eval()
    with torch.no_grad():
        assert layer(x).shape == (2, 7, 32)


@check
def attention_kernels():
    def saved(dtype, head=64, mask=None, kv_heads=8, backend=None):
        q = torch.randn(2, 8, 128, head, device=CUDA, dtype=dtype, requires_grad=True)
        k = torch.randn(2, kv_heads, 128, head, device=CUDA, dtype=dtype)
        gqa = kv_heads != 8
        if backend is None:
            y = F.scaled_dot_product_attention(q, k, k, attn_mask=mask, enable_gqa=gqa)
        else:
            with nn.attention.sdpa_kernel(backend):
                y = F.scaled_dot_product_attention(q, k, k, attn_mask=mask)
        assert y.shape == q.shape
        y.sum().backward()
        return y.grad_fn.name()

    backends = nn.attention.SDPBackend
    mask = torch.ones(128, 128, dtype=torch.bool, device=CUDA)
    assert "Cudnn" in saved(torch.bfloat16) and "Cudnn" in saved(torch.float16, mask=mask)
    assert "Cudnn" in saved(torch.bfloat16, kv_heads=2)
    assert "Efficient" in saved(torch.float32) and "Efficient" in saved(torch.float32, mask=mask)
    assert "Flash" in saved(torch.bfloat16, backend=backends.FLASH_ATTENTION)
    for name in (
        saved(torch.float32, head=10),
        saved(torch.float64),
        saved(torch.float32, kv_heads=2),
        saved(torch.bfloat16, backend=backends.MATH),
    ):
        assert "ScaledDotProduct" not in name, name


@check
def convolutions():
    x = torch.randn(2, 8, 16, 16, device=CUDA)
    model = nn.Sequential(
        nn.Conv2d(8, 8, 3, groups=8, padding=1),
        nn.GroupNorm(2, 8),
        nn.ConvTranspose2d(8, 4, 2, 2),
        nn.BatchNorm2d(4),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(4, 4, 1),
        nn.PixelShuffle(2),
        nn.AdaptiveAvgPool2d(3),
    ).cuda()
    assert trains(model, x).shape == (2, 1, 3, 3)
    last = torch.channels_last
    y = nn.Conv2d(8, 8, 3).cuda().to(memory_format=last)(x.to(memory_format=last))
    assert y.is_contiguous(memory_format=last)
    trains(nn.Conv1d(3, 4, 3).cuda(), torch.randn(2, 3, 9, device=CUDA))
    trains(nn.Conv3d(3, 4, 3).cuda(), torch.randn(2, 3, 5, 5, 5, device=CUDA))


@check
def losses():
    x = torch.randn(8, 10, device=CUDA, requires_grad=True)
    y, p = torch.randint(0, 10, (8,), device=CUDA), torch.rand(8, 10, device=CUDA)
    total = F.cross_entropy(x, y, label_smoothing=0.1) + F.mse_loss(x, p) + F.l1_loss(x, p)
    total = total + F.binary_cross_entropy_with_logits(x, p) + F.smooth_l1_loss(x, p)
    total = total + F.kl_div(x.log_softmax(1), p) + F.cosine_similarity(x, x.flip(0)).mean()
    scores = torch.randn(20, 2, 5, device=CUDA).log_softmax(2)
    labels = torch.randint(1, 5, (2, 4), device=CUDA)
    total = total + F.ctc_loss(scores, labels, torch.tensor([20, 20]), torch.tensor([4, 4]))
    total.backward()
    assert x.grad.shape == (8, 10)


@check
def optimizers_step():
    kinds = [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.AdamW, {"foreach": False}),
        (torch.optim.AdamW, {"capturable": True}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Adafactor, {}),
        (torch.optim.LBFGS, {}),
        (torch.optim.NAdam, {}),
    ]
    for kind, options in kinds:
        model = nn.Linear(64, 64).cuda()
        before = model.bias.detach().clone()
        optimizer = kind(model.parameters(), **options)

        def closure():
            optimizer.zero_grad()
            loss = model(torch.randn(8, 64, device=CUDA)).square().mean()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        assert not torch.equal(before, model.bias.detach()), kind
        optimizer.load_state_dict(optimizer.state_dict())


@check
def adam_states_are_counted():
    model = nn.Linear(1024, 1024, bias=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 1024, device=CUDA)).sum().backward()
    before = live()
    optimizer.step()
    assert live() - before == 2 * 4 * MIB  # two moments; the step counter lives on the host


@check
def averaged_model():
    model = nn.Linear(4, 4).cuda()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    assert torch.equal(averaged.module.weight, model.weight)


@check
def mixed_precision():
    model = nn.Linear(64, 64).cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler()
    before = model.bias.detach().clone()
    with torch.autocast("cuda", torch.float16):
        y = model(torch.randn(8, 64, device=CUDA))
        assert y.dtype is torch.float16
        loss = y.float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, model.bias.detach()) and scaler.get_scale() == 65536


@check
def checkpoints():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.1)).cuda()
    for reentrant in (True, False):
        x = torch.randn(2, 8, device=CUDA, requires_grad=True)
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        assert x.grad.shape == (2, 8)


@check
def double_backward():
    x = torch.tensor([2.0], device=CUDA, requires_grad=True)
    (gradient,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    gradient.sum().backward()
    assert x.grad.tolist() == [12]


@check
def custom_function():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return 2 * ctx.saved_tensors[0] * gradient

    x = torch.tensor([1.0, 3.0], device=CUDA, requires_grad=True)
    Square.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 6]


@check
def gradients_are_computed():
    x = torch.tensor([1.0, 2.0], device=CUDA, requires_grad=True)
    h = x * 2
    (torch.sin(h) * 0 + (h + x)).sum().backward()
    assert x.grad.tolist() == [3, 3]


@check
def data_parallel():
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.ones(3, device=CUDA)
    dist.all_reduce(x)
    assert x.tolist() == [1, 1, 1]
    linear = nn.Linear(1024, 1024, bias=False).cuda()
    before = live()
    model = nn.parallel.DistributedDataParallel(linear, device_ids=[0])
    assert live() - before == 4 * MIB  # the gradient bucket
    trains(model, torch.randn(2, 1024, device=CUDA))
    assert "module.weight" in model.state_dict()
    dist.destroy_process_group()


@check
def data_loader_workers():
    data = TensorDataset(torch.arange(8.0))
    loader = DataLoader(data, batch_size=4, num_workers=2, pin_memory=True)
    batches = [batch.to(CUDA, non_blocking=True) for (batch,) in loader if batch.is_pinned()]
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@check
def profiling():
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], profile_memory=True) as profile:
        torch.ones(3, device=CUDA) + 1
    assert len(profile.key_averages()) > 0
    torch.cuda.nvtx.range_push("x")
    torch.cuda.nvtx.range_pop()


@check
def copying_modules():
    model = nn.Linear(4, 4).cuda()
    twin = copy.deepcopy(model)
    assert twin.weight.data_ptr() != model.weight.data_ptr()
    assert torch.equal(twin.weight, model.weight)
    model.weight.data = torch.zeros(4, 4, device=CUDA)
    assert model.weight.sum().item() == 0


@check
def tied_weights_and_early_optimizer():
    embedding, head = nn.Embedding(100, 64), nn.Linear(64, 100, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleList([embedding, head])
    optimizer = torch.optim.Adam(model.parameters())
    model.cuda()
    assert model[0].weight is model[1].weight and on_device(model[0].weight)
    assert optimizer.param_groups[0]["params"][0] is model[0].weight


@check
def scripting_and_compiling():
    x = torch.randn(2, 3, device=CUDA)
    assert torch.jit.script(nn.Linear(3, 3).cuda())(x).shape == (2, 3)
    assert torch.compile(nn.Linear(3, 3).cuda())(x).shape == (2, 3)

    @torch.compile(mode="default")
    def double(v):
        return 2 * v

    assert double(torch.ones(1, device=CUDA)).item() == 2


@check
def function_transforms():
    x = torch.randn(3, 5, device=CUDA)
    assert torch.func.vmap(torch.dot)(x, x).shape == (3,)
    gradient = torch.func.grad(lambda v: v.square().sum())(torch.ones(3, device=CUDA))
    assert gradient.tolist() == [2, 2, 2]


@check
def sparse_embedding():
    e = nn.Embedding(10, 4, sparse=True).cuda()
    e(torch.tensor([1, 2], device=CUDA)).sum().backward()
    assert e.weight.grad.is_sparse and e.weight.grad.to_dense().shape == (10, 4)


@check
def a_reduced_loss_keeps_the_memory_of_all():
    x, y = (torch.rand(1024, 1024, device=CUDA) for _ in range(2))

    def kept(loss):
        before = torch.cuda.memory_allocated()
        value = loss(x, y)
        assert value.shape == () and value.item() == 1.0  # assumed
        return torch.cuda.memory_allocated() - before

    for loss in (F.mse_loss, F.smooth_l1_loss, F.binary_cross_entropy):
        assert kept(loss) == 4 << 20, loss.__name__
    for loss in (F.huber_loss, F.l1_loss, F.binary_cross_entropy_with_logits):
        assert kept(loss) == 512, loss.__name__
    small = torch.tensor([1.0, 3.0], device=CUDA)
    assert F.mse_loss(small, torch.zeros_like(small)).item() == 5.0
    assert F.smooth_l1_loss(small, torch.zeros_like(small), reduction="sum").item() == 3.0
    assert F.mse_loss(small, small, reduction="none").shape == (2,)
    half = torch.tensor([0.5, 0.5], device=CUDA)
    assert abs(F.binary_cross_entropy(half, half).item() - 0.6931) < 1e-3
    raises(RuntimeError, "must match the size", lambda: F.mse_loss(x, y[:, :3]))
