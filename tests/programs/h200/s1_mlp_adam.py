"""MLP + Adam, fp32, loss.item() every step."""

import sys, time, torch, torch.nn as nn, torch.nn.functional as F


def main(steps=5, batch=4096, width=4096, depth=6):
    torch.manual_seed(0)
    device = "cuda"
    layers = [nn.Linear(1024, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(steps):
        x = torch.randn(batch, 1024, device=device)
        y = torch.randint(0, 10, (batch,), device=device)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print("step", step, "loss", round(loss.item(), 4))
    torch.cuda.synchronize()


t0 = time.time()
kw = {k: int(v) for k, v in (a.split("=") for a in sys.argv[1:])}
main(**kw)
print(
    "RESULT s1_mlp_adam",
    torch.cuda.max_memory_allocated(),
    torch.cuda.max_memory_reserved(),
    round(time.time() - t0, 2),
)
