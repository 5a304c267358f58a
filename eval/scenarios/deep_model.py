"""Train a deep sequence model: forty gated blocks over long inputs, batch already small."""
import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, BATCH, LENGTH, INPUT, DIM, DEPTH, CLASSES = 6, 8, 2048, 64, 512, 40, 10


class GatedBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.inner, self.gate = nn.Linear(dim, 2 * dim), nn.Linear(dim, 2 * dim)
        self.mix = nn.Linear(2 * dim, dim)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        h = self.norm(x)
        h = F.silu(self.gate(h)) * self.inner(h)
        return x + self.drop(self.mix(h))


class DeepNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(INPUT, DIM)
        self.layers = nn.ModuleList([GatedBlock(DIM) for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


class Synthetic(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        label = index % CLASSES
        return torch.randn(LENGTH, INPUT, generator=g) + 0.1 * label, label


def main():
    torch.manual_seed(0)
    model = DeepNet().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(Synthetic(), batch_size=BATCH)
    for step, (x, y) in enumerate(loader):
        x, y = x.to("cuda"), y.to("cuda")
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
