"""Small GPT (own causal attention with a materialised mask, or SDPA with sdpa=1), AdamW, autocast bf16, grad clipping."""

import math, sys, time, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, d, h, T, sdpa):
        super().__init__()
        self.h, self.sdpa = h, sdpa
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.register_buffer("mask", torch.tril(torch.ones(T, T)).view(1, 1, T, T))

    def attn(self, x):
        B, T, C = x.shape
        q, k, v = (
            t.view(B, T, self.h, C // self.h).transpose(1, 2) for t in self.qkv(x).split(C, dim=2)
        )
        if self.sdpa:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
            att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
            y = F.softmax(att, dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab, d, h, n, T, sdpa, ckpt):
        super().__init__()
        self.ckpt = ckpt
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(T, d)
        self.blocks = nn.ModuleList([Block(d, h, T, sdpa) for _ in range(n)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1), device=idx.device))
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False) if self.ckpt else b(x)
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def main(steps=4, batch=8, T=512, d=512, h=8, n=6, vocab=32000, sdpa=0, ckpt=0):
    torch.manual_seed(0)
    model = GPT(vocab, d, h, n, T, sdpa, ckpt).to("cuda")
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(steps):
        data = torch.randint(0, vocab, (batch, T + 1)).cuda(non_blocking=True)
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            loss = model(data[:, :-1], data[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        print("step", step, "loss", round(loss.item(), 4))
    return model


if __name__ == "__main__":
    t0 = time.time()
    kw = {k: int(v) for k, v in (a.split("=") for a in sys.argv[1:])}
    main(**kw)
    print(
        "RESULT s2_gpt_amp",
        kw,
        torch.cuda.max_memory_allocated(),
        torch.cuda.max_memory_reserved(),
        round(time.time() - t0, 2),
    )
