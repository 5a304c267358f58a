"""Twelve training programs of other kinds than those in h200/, one after the other; prints the peak of each."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from virtual_cases import case, run_cases

CUDA, BF16 = "cuda", torch.bfloat16


def train(model, batches, optimizer, loss_of, autocast=None, scaler=None):
    for batch in batches:
        with torch.autocast("cuda", autocast or BF16, enabled=autocast is not None):
            loss = loss_of(model, batch)
        optimizer.zero_grad()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def tokens(vocabulary, *shape):
    return torch.randint(0, vocabulary, shape, device=CUDA)


class VisionBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


@case
def vision_transformer():
    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 384, 16, 16)
            self.position = nn.Parameter(torch.zeros(1, 196, 384))
            self.blocks = nn.Sequential(*[VisionBlock(384, 6) for _ in range(8)])
            self.head = nn.Linear(384, 1000)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2) + self.position
            return self.head(self.blocks(x).mean(1))

    model = ViT().to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batches = [(torch.randn(64, 3, 224, 224, device=CUDA), tokens(1000, 64)) for _ in range(2)]
    train(model, batches, optimizer, lambda m, b: F.cross_entropy(m(b[0]), b[1]), BF16)


@case
def unet_half_precision():
    def double(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.GroupNorm(8, outputs),
            nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.SiLU(),
        )

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([double(3, 64), double(64, 128), double(128, 256)])
            self.up = nn.ModuleList([double(256 + 128, 128), double(128 + 64, 64)])
            self.last = nn.Conv2d(64, 3, 1)

        def forward(self, x):
            kept = []
            for level in self.down:
                x = level(x if not kept else F.max_pool2d(x, 2))
                kept.append(x)
            for level, skip in zip(self.up, kept[-2::-1]):
                x = level(torch.cat([F.interpolate(x, scale_factor=2), skip], 1))
            return self.last(x)

    model = UNet().to(CUDA)
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler()
    batches = [torch.randn(8, 3, 128, 128, device=CUDA) for _ in range(2)]
    train(model, batches, optimizer, lambda m, x: F.mse_loss(m(x), x), torch.float16, scaler)


@case
def resnet_channels_last():
    class Bottleneck(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(4 * width, width, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, 4 * width, 1, bias=False),
                nn.BatchNorm2d(4 * width),
            )

        def forward(self, x):
            return F.relu(x + self.layers(x))

    first = nn.Conv2d(3, 256, 7, 4, 3)
    model = nn.Sequential(first, *[Bottleneck(64) for _ in range(4)], nn.AdaptiveAvgPool2d(1))
    model = nn.Sequential(model, nn.Flatten(), nn.Linear(256, 10))
    model = model.to(CUDA, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(32, 3, 224, 224, device=CUDA).to(memory_format=torch.channels_last)
    batches = [(images, tokens(10, 32))] * 2
    train(model, batches, optimizer, lambda m, b: F.cross_entropy(m(b[0]), b[1]), BF16)


@case
def lstm_language_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(20000, 512)
            self.rnn = nn.LSTM(512, 512, 2, batch_first=True, dropout=0.2)
            self.head = nn.Linear(512, 20000, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x):
            return self.head(self.rnn(self.embedding(x))[0])

    model = Model().to(CUDA)
    optimizer = torch.optim.Adam(model.parameters())
    batches = [tokens(20000, 32, 65) for _ in range(2)]

    def loss(m, x):
        return F.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    train(model, batches, optimizer, loss)


@case
def translation_transformer():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(8000, 512)
            self.transformer = nn.Transformer(512, 8, 3, 3, 2048, 0.1, batch_first=True)
            self.head = nn.Linear(512, 8000)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=CUDA)
            y = self.transformer(self.embedding(source), self.embedding(target), tgt_mask=mask)
            return self.head(y)

    model = Model().to(CUDA)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    batches = [(tokens(8000, 24, 100), tokens(8000, 24, 81)) for _ in range(2)]

    def loss(m, batch):
        scores = m(batch[0], batch[1][:, :-1]).flatten(0, 1)
        return F.cross_entropy(scores, batch[1][:, 1:].flatten(), label_smoothing=0.1)

    train(model, batches, optimizer, loss)


@case
def recommender():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(100_000, 64) for _ in range(6)])
            self.top = nn.Sequential(
                nn.Linear(6 * 64 + 15, 1024),
                nn.ReLU(),
                nn.Linear(1024, 256),
                nn.ReLU(),
                nn.Linear(256, 1),
            )

        def forward(self, ids):
            parts = torch.stack([t(i) for t, i in zip(self.tables, ids.unbind(1))], 1)
            products = torch.bmm(parts, parts.transpose(1, 2))
            row, column = torch.tril_indices(6, 6, -1, device=CUDA)
            return self.top(torch.cat([parts.flatten(1), products[:, row, column]], 1))

    model = Model().to(CUDA)
    optimizer = torch.optim.Adagrad(model.parameters())
    batches = [(tokens(100_000, 8192, 6), torch.rand(8192, 1, device=CUDA)) for _ in range(2)]
    loss = F.binary_cross_entropy_with_logits
    train(model, batches, optimizer, lambda m, b: loss(m(b[0]), b[1]))


@case
def adversarial():
    generator = nn.Sequential(
        nn.ConvTranspose2d(100, 256, 4), nn.BatchNorm2d(256), nn.ReLU(True),
        nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.ReLU(True),
        nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(True),
        nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh(),
    ).to(CUDA)  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128),
        nn.LeakyReLU(0.2), nn.Conv2d(128, 1, 8),
    ).to(CUDA)  # fmt: skip
    adam = [torch.optim.Adam(m.parameters(), betas=(0.5, 0.999)) for m in (generator, critic)]
    for _ in range(2):
        fake = generator(torch.randn(128, 100, 1, 1, device=CUDA))
        real = torch.randn(128, 3, 32, 32, device=CUDA)
        adam[1].zero_grad()
        (critic(fake.detach()).mean() - critic(real).mean()).backward()
        adam[1].step()
        adam[0].zero_grad()
        (-critic(fake).mean()).backward()
        adam[0].step()


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return y.type_as(x) * self.weight


class LlamaBlock(nn.Module):
    def __init__(self, width=512, heads=8, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 1408, bias=False)
        self.up = nn.Linear(width, 1408, bias=False)
        self.down = nn.Linear(1408, width, bias=False)

    def rotate(self, x, angles):
        first, second = x.chunk(2, -1)
        sine, cosine = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
        return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)

    def forward(self, x, angles):
        batch, length, _ = x.shape
        y = self.norm1(x)
        q = self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(y).view(batch, length, 2, self.groups, self.size).permute(2, 0, 3, 1, 4)
        q, k = self.rotate(q, angles), self.rotate(k, angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, recompute):
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(32000, 512)
        self.blocks = nn.ModuleList([LlamaBlock() for _ in range(6)])
        self.norm, self.head = RMSNorm(512), nn.Linear(512, 32000, bias=False)

    def forward(self, x):
        y = self.embedding(x)
        frequencies = 10000 ** (-torch.arange(0, 32, device=CUDA) / 32)
        angles = torch.arange(x.shape[1], device=CUDA)[:, None] * frequencies
        for block in self.blocks:
            if self.recompute:
                y = checkpoint(block, y, angles, use_reentrant=True)
            else:
                y = block(y, angles)
        return self.head(self.norm(y))


def llama(recompute):
    model = Llama(recompute).to(CUDA, BF16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(2):
        for _ in range(2):
            x = tokens(32000, 4, 513)
            scores = model(x[:, :-1])
            loss = F.cross_entropy(scores.float().view(-1, 32000), x[:, 1:].reshape(-1)) / 2
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@case
def llama_in_bfloat16():
    llama(False)


@case
def llama_recomputed():
    llama(True)


@case
def mixture_of_experts():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(512, 8, bias=False)
            self.experts = nn.ModuleList(
                [
                    nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))
                    for _ in range(8)
                ]
            )

        def forward(self, x):
            weights, chosen = self.router(x).softmax(-1).topk(2, -1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                share = ((chosen == number) * weights).sum(-1, keepdim=True)
                out = out + share * expert(x)
            return out

    model = nn.Sequential(Layer(), nn.LayerNorm(512), Layer(), nn.Linear(512, 100)).to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters())
    batches = [(torch.randn(4096, 512, device=CUDA), tokens(100, 4096)) for _ in range(2)]
    train(model, batches, optimizer, lambda m, b: F.cross_entropy(m(b[0]), b[1]), BF16)


@case
def contrastive():
    model = nn.Sequential(
        nn.Linear(2048, 4096), nn.BatchNorm1d(4096), nn.ReLU(), nn.Linear(4096, 256)
    ).to(CUDA)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-4)

    def loss(m, x):
        one, two = (F.normalize(m(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
        features = torch.cat([one, two])
        scores = features @ features.T / 0.1
        scores = scores.masked_fill(torch.eye(len(scores), device=CUDA, dtype=torch.bool), -1e9)
        half = len(x)
        labels = torch.cat([torch.arange(half, 2 * half), torch.arange(half)]).to(CUDA)
        return F.cross_entropy(scores, labels)

    train(model, [torch.randn(2048, 2048, device=CUDA) for _ in range(2)], optimizer, loss)


@case
def meta_learning():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1024)).to(CUDA)
    optimizer = torch.optim.Adam(model.parameters())
    names = [name for name, _ in model.named_parameters()]
    for _ in range(2):
        total = 0
        for _ in range(3):
            x, y = torch.randn(512, 1024, device=CUDA), torch.randn(512, 1024, device=CUDA)
            weights = dict(model.named_parameters())
            for _ in range(2):
                inner = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
                gradients = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
                weights = {n: w - 0.01 * g for n, w, g in zip(names, weights.values(), gradients)}
            total = total + F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()


run_cases()
