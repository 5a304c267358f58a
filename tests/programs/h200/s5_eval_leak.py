"""Evaluation without no_grad that keeps every output (with its graph) in a list; nn.TransformerEncoder/MultiheadAttention, padding mask."""

import sys, time, torch, torch.nn as nn


def main(n=8, batch=32, T=256, d=512, layers=4, classes=1000, fixed=0):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(d, 8, 4 * d, batch_first=True)
    model = nn.ModuleDict(
        dict(
            emb=nn.Embedding(10000, d),
            enc=nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
            head=nn.Linear(d, classes),
        )
    ).cuda()
    model.eval()
    outs, labels = [], []
    with torch.set_grad_enabled(not fixed):
        for i in range(n):
            tokens = torch.randint(1, 10000, (batch, T), device="cuda")
            lens = torch.randint(T // 2, T + 1, (batch,), device="cuda")
            pad = torch.arange(T, device="cuda")[None] >= lens[:, None]
            y = model["head"](model["enc"](model["emb"](tokens), src_key_padding_mask=pad).mean(1))
            outs.append(y)
            labels.append(torch.randint(0, classes, (batch,), device="cuda"))
            print("batch", i, "allocated MiB", torch.cuda.memory_allocated() >> 20)
    outs, labels = torch.cat(outs), torch.cat(labels)
    print(
        "accuracy",
        (outs.argmax(-1) == labels).float().mean().item(),
        "valid",
        int((~torch.isnan(outs)).any(-1).nonzero().numel()),
    )


t0 = time.time()
kw = {k: int(v) for k, v in (a.split("=") for a in sys.argv[1:])}
main(**kw)
print(
    "RESULT s5_eval_leak",
    kw,
    torch.cuda.max_memory_allocated(),
    torch.cuda.max_memory_reserved(),
    round(time.time() - t0, 2),
)
