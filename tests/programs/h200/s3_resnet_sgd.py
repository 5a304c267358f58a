"""ResNet-like CNN, SGD momentum, BatchNorm, DataLoader with pin_memory, GradScaler fp16 with amp=1."""

import sys, time, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Basic(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.c2, self.b2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.down = (
            nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))
            if stride != 1 or cin != cout
            else nn.Identity()
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.b2(self.c2(self.relu(self.b1(self.c1(x)))))
        return self.relu(y + self.down(x))


def net(w):
    L = [
        nn.Conv2d(3, w, 7, 2, 3, bias=False),
        nn.BatchNorm2d(w),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    c = w
    for i, out in enumerate((w, 2 * w, 4 * w, 8 * w)):
        for j in range(2):
            L.append(Basic(c, out, 2 if i and not j else 1))
            c = out
    return nn.Sequential(*L, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 100))


def main(steps=4, batch=64, size=224, w=64, amp=0, workers=2):
    torch.manual_seed(0)
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ds = TensorDataset(
        torch.randn(batch * steps, 3, size, size), torch.randint(0, 100, (batch * steps,))
    )
    dl = DataLoader(ds, batch_size=batch, shuffle=True, num_workers=workers, pin_memory=True)
    model = net(w).to(dev)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=bool(amp))
    correct = 0
    for i, (x, y) in enumerate(dl):
        x, y = x.to(dev, non_blocking=True), y.to(dev, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16, enabled=bool(amp)):
            out = model(x)
            loss = F.cross_entropy(out, y)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        correct += (out.argmax(1) == y).sum().item()
        print("step", i, "loss", round(loss.item(), 4), "acc", correct)


if __name__ == "__main__":
    t0 = time.time()
    kw = {k: int(v) for k, v in (a.split("=") for a in sys.argv[1:])}
    main(**kw)
    print(
        "RESULT s3_resnet_sgd",
        kw,
        torch.cuda.max_memory_allocated(),
        torch.cuda.max_memory_reserved(),
        round(time.time() - t0, 2),
    )
