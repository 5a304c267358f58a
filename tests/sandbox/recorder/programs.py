"""Programs that several tests record, and what they print."""

import re

TRAIN = """
    import torch, torch.nn as nn
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(6):
        loss = model(torch.randn(3 + step, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))
"""


def printed_floats(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]


TRAIN_HEAD = """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
