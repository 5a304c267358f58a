"""The seed that every run of a campaign shares. The program's own seeding comes later and wins."""

import random
from types import ModuleType


def seed_random(seed: int) -> None:
    """Seed the standard library's generator."""
    random.seed(seed)


def seed_numpy(numpy: ModuleType, seed: int) -> None:
    """Seed numpy's global generator, which takes 32 bits."""
    numpy.random.seed(seed % 2**32)


def seed_torch(torch: ModuleType, seed: int) -> None:
    """Seed torch's generators; the CUDA ones are seeded when the program initialises CUDA, not before."""
    torch.manual_seed(seed)
