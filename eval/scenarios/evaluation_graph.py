"""Train a small MLP-Mixer on synthetic images and validate after every epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EPOCHS, TRAIN_BATCHES, BATCH = 3, 8, 64
VAL_BATCHES, VAL_BATCH = 2, 256
PATCHES, CHANNELS, CLASSES = 64, 192, 100


class MixerBlock(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(PATCHES, hidden), nn.GELU(), nn.Linear(hidden, PATCHES))
        self.channels = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, dim=512, depth=12):
        super().__init__()
        self.embed = nn.Linear(CHANNELS, dim)
        self.blocks = nn.Sequential(*[MixerBlock(dim, 256) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, CLASSES)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x))).mean(dim=1))


def make_batch(size, seed, device):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(size, PATCHES, CHANNELS, generator=g)
    y = torch.randint(0, CLASSES, (size,), generator=g)
    return x.to(device), y.to(device)


def validate(model, device):
    model.eval()
    total, correct, seen = 0.0, 0, 0
    for i in range(VAL_BATCHES):
        x, y = make_batch(VAL_BATCH, 10_000 + i, device)
        logits = model(x)
        total += F.cross_entropy(logits, y).item()
        correct += (logits.argmax(dim=1) == y).sum().item()
        seen += len(y)
    model.train()
    return total / VAL_BATCHES, correct / seen


def main():
    torch.manual_seed(0)
    device = torch.device("cuda")
    model = Mixer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(EPOCHS):
        for step in range(TRAIN_BATCHES):
            x, y = make_batch(BATCH, epoch * TRAIN_BATCHES + step, device)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        val_loss, accuracy = validate(model, device)
        print(f"epoch {epoch}: train loss {loss.item():.4f}, val loss {val_loss:.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
