"""Trains a GPT and prints its own step times: the program whose slowing by the recorder is measured."""

import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

options = dict(word.split("=") for word in sys.argv[1:])
DEVICE = options.get("device", "cuda")
LARGE = DEVICE == "cuda"
STEPS = int(options.get("steps", 60 if LARGE else 25))
WARMUP = 10 if LARGE else 5
LAYERS, DIM, HEADS = (12, 768, 12) if LARGE else (4, 128, 4)
BATCH, CONTEXT, VOCAB = (8, 512, 50304) if LARGE else (4, 64, 1000)
BATCH = int(options.get("batch", BATCH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.act, self.down = nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.proj(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        )
        return x + self.down(self.act(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCAB, DIM), nn.LayerNorm(DIM)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embed(tokens))))


def clock():
    """A point in time on the device, or on the host without one."""
    if DEVICE == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


torch.manual_seed(0)
model = GPT().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
tokens = torch.randint(0, VOCAB, (BATCH, CONTEXT + 1), device=DEVICE)
marks = []
for step in range(STEPS):
    with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=LARGE):
        loss = F.cross_entropy(model(tokens[:, :-1]).view(-1, VOCAB), tokens[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    marks.append(clock())
if DEVICE == "cuda":
    torch.cuda.synchronize()
    seconds = [a.elapsed_time(b) / 1e3 for a, b in zip(marks, marks[1:])]
else:
    seconds = [b - a for a, b in zip(marks, marks[1:])]
peak = torch.cuda.max_memory_allocated() if DEVICE == "cuda" else None
print("STEPS " + json.dumps({"seconds": seconds[WARMUP:], "peak_bytes": peak, "loss": loss.item()}))
