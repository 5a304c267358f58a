"""On a real device: who owns what the backward pass allocates, and what the names of storages cover.

`make test PYTEST='-m gpu -s tests/gpu/test_attribution.py'` prints the figures.
"""

import pickle
import re
import subprocess
from pathlib import Path

import pytest

from headroom.records.names import read_names

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

OWNED_SHARE = 0.95
NAMED_SHARE = 0.90
COMMON = """
    import torch, torch.nn as nn, torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint
    class Block(nn.Module):
        def __init__(self, dim, heads=8):
            super().__init__()
            self.heads = heads
            self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln2(x))))
    class GPT(nn.Module):
        def __init__(self, reentrant=None, dim=512, depth=6, vocab=8192):
            super().__init__()
            self.reentrant = reentrant
            self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, bias=False)
            self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        def forward(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
            return self.head(x)
    def loss_of(model, tokens):
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    def tokens(): return torch.randint(0, 8192, (8, 256), device="cuda")
"""
TRAIN = """
    model = GPT({reentrant}).cuda(); optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(enabled={amp})
    for step in range(4):
        with torch.autocast("cuda", torch.float16, enabled={amp}): loss = loss_of(model, tokens())
        optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
        print(repr(loss.item()))
    print("PEAK", torch.cuda.max_memory_allocated())
"""
EVALUATION = """
    def main():
        model = GPT().cuda(); optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        held = []
        for step in range(3):
            loss = loss_of(model, tokens()); optimizer.zero_grad(); loss.backward(); optimizer.step()
            model.eval()
            held.append(loss_of(model, tokens()))
            model.train()
        try: torch.empty(2**44, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError: print("oom")
    main()
"""
CASES = {
    "plain": COMMON + TRAIN.format(reentrant=None, amp=False),
    "mixed precision": COMMON + TRAIN.format(reentrant=None, amp=True),
    "checkpoints": COMMON + TRAIN.format(reentrant=False, amp=False),
    "reentrant checkpoints": COMMON + TRAIN.format(reentrant=True, amp=False),
    "evaluation with a graph": COMMON + EVALUATION,
}


def snapshot_of(done):
    return pickle.loads((done.folder / "snapshot.pickle").read_bytes())


def allocations_of(done):
    traces = snapshot_of(done)["device_traces"]
    return [entry for entry in traces[0] if entry["action"] == "alloc"]


@pytest.mark.parametrize("name", CASES)
def test_backward_allocations_have_a_forward_line(record, torch_python, name):
    done = record(CASES[name], python=torch_python, purpose="trace")
    assert done.record.outcome == "completed", done.stderr
    assert done.record.recorder_notes == ()
    backward = [e for e in allocations_of(done) if ",p=backward" in e["user_metadata"]]
    owned = [
        entry
        for entry in backward
        if any(frame["filename"].endswith("program.py") for frame in entry.get("frames", ()))
    ]
    total_bytes = sum(entry["size"] for entry in backward)
    owned_bytes = sum(entry["size"] for entry in owned)
    print(
        f"\n{name}: {len(owned)} of {len(backward)} backward allocations,"
        f" {owned_bytes / total_bytes:.2%} of {total_bytes >> 20} MiB have a forward line"
    )
    assert owned_bytes >= OWNED_SHARE * total_bytes


def test_no_allocation_without_a_stack_is_unlabelled(record, torch_python):
    done = record(CASES["plain"], python=torch_python, purpose="trace")
    bare = [e for e in allocations_of(done) if not e.get("frames")]
    print(
        f"\n{len(bare)} allocations without a stack: {sorted({e['user_metadata'] for e in bare})}"
    )
    assert all(re.match(r"hr:u=\d+,c=\d+,p=", entry["user_metadata"]) for entry in bare)
    assert not [
        frame
        for entry in allocations_of(done)
        for frame in entry.get("frames", ())
        if "recorder" in frame["filename"] or frame["name"] == "<headroom call>"
    ]


def test_names_cover_live_memory(record, torch_python):
    done = record(CASES["evaluation with a graph"], python=torch_python, purpose="trace")
    walks = read_names((done.folder / "names.jsonl").read_text())
    (oom,) = [walk for walk in walks if walk.reason == "oom"]
    named_bytes = sum(storage.size_bytes for storage in oom.storages)
    graph_bytes = sum(s.size_bytes for s in oom.storages if s.holder and s.holder.kind == "graph")
    print(
        f"\nnamed {named_bytes / oom.live_bytes:.2%} of {oom.live_bytes >> 20} MiB live,"
        f" {graph_bytes >> 20} MiB of it by graphs; {len(walks)} walks"
    )
    assert not oom.cut
    assert named_bytes >= NAMED_SHARE * oom.live_bytes
    held = {s.holder.name for s in oom.storages if s.holder and s.holder.kind == "graph"}
    assert held <= {f"held[{index}].grad_fn" for index in range(3)} | {"loss.grad_fn"}
    assert len(held) >= 3


def test_a_trace_changes_neither_peak_nor_losses(record, torch_python, project: Path):
    source = CASES["plain"].replace(
        "import torch,", "import torch; torch.manual_seed(1); import torch,"
    )
    traced = record(source, python=torch_python, purpose="trace")
    plain = subprocess.run(
        [torch_python, str(project / "program.py")], capture_output=True, text=True, check=True
    )
    assert traced.stdout == plain.stdout
    assert traced.record.peak_allocated_bytes == int(plain.stdout.split("PEAK ")[1])
