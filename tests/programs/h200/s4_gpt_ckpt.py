"""The GPT of s2 with activation checkpointing, SDPA and a longer sequence."""

import sys, time, torch
from s2_gpt_amp import main

if __name__ == "__main__":
    t0 = time.time()
    kw = dict(steps=4, batch=8, T=1024, d=768, h=12, n=6, sdpa=1, ckpt=1)
    kw.update({k: int(v) for k, v in (a.split("=") for a in sys.argv[1:])})
    model = main(**kw)
    torch.save({k: v.cpu() for k, v in model.state_dict().items()}, "/tmp/s4_gpt_ckpt.pt")
    print(
        "RESULT s4_gpt_ckpt",
        kw,
        torch.cuda.max_memory_allocated(),
        torch.cuda.max_memory_reserved(),
        round(time.time() - t0, 2),
    )
