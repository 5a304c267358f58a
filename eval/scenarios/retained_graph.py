"""Fit a residual MLP to a synthetic regression task and keep the loss curve for a plot."""
import torch
import torch.nn as nn

STEPS, BATCH, FEATURES, WIDTH, DEPTH = 30, 4096, 256, 1024, 8


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(FEATURES, WIDTH)
        self.body = nn.Sequential(*[Residual(WIDTH) for _ in range(DEPTH)])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(self.body(self.stem(x))).squeeze(-1)


def sample(step, teacher, device):
    g = torch.Generator(device=device).manual_seed(step)
    x = torch.randn(BATCH, FEATURES, generator=g, device=device)
    return x, torch.sin(x @ teacher)


def train(model, optimizer, device):
    curve = []
    best = None
    teacher = torch.randn(FEATURES, device=device) / FEATURES**0.5
    for step in range(STEPS):
        x, y = sample(step, teacher, device)
        error = (model(x) - y).square()
        loss = error.mean()
        optimizer.zero_grad()
        # "Trying to backward through the graph a second time" went away with this:
        loss.backward(retain_graph=True)
        optimizer.step()
        curve.append(loss)
        best = loss.item() if best is None else min(best, loss.item())
        if step % 5 == 0:
            print(f"step {step:3d}  loss {loss.item():.5f}  best {best:.5f}")
    return curve


def main():
    torch.manual_seed(1)
    device = "cuda"
    model = Regressor().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    curve = train(model, optimizer, device)
    tail = torch.stack(curve[-10:]).mean().item()
    print(f"{len(curve)} points, mean of the last ten {tail:.5f}")


if __name__ == "__main__":
    main()
