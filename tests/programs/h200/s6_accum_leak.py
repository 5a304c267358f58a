"""Gradient accumulation with the classic leak `total_loss += loss` (keeps every graph); fixed=1 uses .item()."""

import sys, time, torch, torch.nn as nn, torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.inp = nn.Linear(512, d)
        self.mid = nn.ModuleList(
            [
                nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Dropout(0.1))
                for _ in range(4)
            ]
        )
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        x = self.inp(x)
        for m in self.mid:
            x = x + m(x)
        return self.out(x).squeeze(-1)


def main(steps=3, accum=4, batch=4096, d=2048, fixed=0):
    torch.manual_seed(0)
    model = Net(d).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    total_loss = 0.0
    for step in range(steps):
        for micro in range(accum):
            x, y = torch.randn(batch, 512, device="cuda"), torch.randn(batch, device="cuda")
            pred = model(x)
            # a regulariser on the activations that is only logged: its graph is never freed by backward
            reg = (pred**2).mean()
            loss = F.mse_loss(pred.detach() * 0 + model(x), y) / accum
            loss.backward()
            total_loss += (loss + 0.01 * reg).item() if fixed else loss.detach() + 0.01 * reg
        opt.step()
        opt.zero_grad()
        print(
            "step",
            step,
            "total",
            round(float(total_loss), 4),
            "allocated MiB",
            torch.cuda.memory_allocated() >> 20,
        )


t0 = time.time()
kw = {k: int(v) for k, v in (a.split("=") for a in sys.argv[1:])}
main(**kw)
print(
    "RESULT s6_accum_leak",
    kw,
    torch.cuda.max_memory_allocated(),
    torch.cuda.max_memory_reserved(),
    round(time.time() - t0, 2),
)
