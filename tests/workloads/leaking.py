"""A small training on the CPU: `leaking.py KIND`, until its input ends. It prints `ready` after some steps.

`steady` keeps nothing; `leaks` keeps of each step a loss with its graph and the 2 MiB in it; `scalars` keeps the loss
after its backward pass, whose graph is empty then; `cuda` is `steady` with a torch.cuda that seems to be in use, and
that tells of 1 MiB more with each step; `fragmented` is the same with other numbers. At its end it prints whether CUDA
was begun to be used.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import torch
from torch import nn

KIND = sys.argv[1]
KEPT = 2 << 20  # bytes of what a loss was computed from: 1 MiB that came in, 1 MiB in between
GIB = 1 << 30


def stats(allocated: int, reserved: int, split: int) -> dict[str, Any]:
    def of(now: int) -> dict[str, Any]:
        return {"all": {"current": now, "peak": now, "allocated": now, "freed": 0}}

    found = {"allocated_bytes": of(allocated), "reserved_bytes": of(reserved), "inactive_split_bytes": of(split)}
    return {**found, "segment": of(12), "num_alloc_retries": 3, "num_ooms": 0}


def main() -> None:
    torch.set_num_threads(1)
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    over, kept, steps = threading.Event(), [], 0
    threading.Thread(target=listen, args=(over,), daemon=True).start()
    if KIND in ("cuda", "fragmented"):
        torch.cuda.is_initialized = lambda: True
        torch.cuda.get_allocator_backend = lambda: "native"
        torch.cuda.device_count = lambda: 1
        torch.cuda.memory_stats_as_nested_dict = lambda _: (
            stats(GIB + steps * (1 << 20), 2 * GIB, 0) if KIND == "cuda" else stats(GIB, 4 * GIB, 2 * GIB)
        )
    while not over.is_set():
        inputs = torch.randn(KEPT // 8)
        loss = (inputs * weight).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        if KIND == "leaks":
            kept.append((inputs * weight).pow(2).mean())
        elif KIND == "scalars":
            kept.append(loss)
        if steps == 6:
            print("ready", flush=True)
        time.sleep(0.005)
    print(torch.cuda._initialized, flush=True)


def listen(over: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    over.set()


if __name__ == "__main__":
    main()
