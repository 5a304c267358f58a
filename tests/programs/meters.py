"""AverageMeter, a metric with __call__ and __iadd__, a logger with tensors."""
import os, logging
import torch
import torch.nn as nn

SMALL = bool(os.environ.get("SMALL"))
D, B = (16, 8) if SMALL else (2048, 4096)
logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("train")


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.val = 0; self.avg = 0; self.sum = 0; self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.name} {float(self.val):.5f} ({float(self.avg):.5f})"


class Running:
    def __init__(self):
        self.values = []

    def __iadd__(self, value):
        self.values.append(value)
        return self

    def __call__(self):
        return torch.stack(self.values).mean()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Dropout(0.2), nn.Linear(D, D)).to("cuda")
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    meter, norm, rec = AverageMeter("loss"), Running(), AverageMeter("rec")
    for step in range(8):
        x = torch.randn(B, D, device="cuda")
        out = model(x)
        rec_loss = nn.functional.mse_loss(out, x)
        reg = sum(p.pow(2).sum() for p in model.parameters()) * 1e-6
        loss = rec_loss + reg
        opt.zero_grad(); loss.backward(); opt.step()
        meter.update(loss, len(x))
        rec.update(rec_loss, len(x))
        norm += out.norm()
        if step % 2 == 0:
            log.info("step %d %s %s %.5f", step, meter, rec, norm())
    print(meter, rec, f"{norm().item():.5f}")


if __name__ == "__main__":
    main()
