"""A process that works on a GPU as it is told: a name on standard input, JSON lines out. Needs only torch.

It ends when its standard input does. "rest" keeps the context and does nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

REPORT_S = 0.25
WARM_UP, WARM_UP_S = 3, 1.0


def say(**said):
    """One line to who asked."""
    print(json.dumps(said), flush=True)


def threads():
    """Names of this process's threads."""
    names = []
    for tid in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{tid}/comm") as file:
                names.append(file.read().strip())
        except OSError:
            continue
    return sorted(names)


def matmul(torch, dtype, size=8192, times=10, tf32=False):
    """Square matrix products."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a = torch.randn(size, size, device="cuda", dtype=dtype)
    b = torch.randn(size, size, device="cuda", dtype=dtype)
    out = torch.empty_like(a)

    def step():
        for _ in range(times):
            torch.mm(a, b, out=out)

    return step


def fp8(torch):
    """Matrix products in fp8 where the GPU has it."""
    a = torch.randn(8192, 8192, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(8192, 8192, device="cuda").to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")

    def step():
        for _ in range(20):
            torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return step


def memory(torch):
    """x.mul_ over 4 GB, or what a quarter of the free memory holds."""
    x = torch.ones(min(1 << 30, torch.cuda.mem_get_info()[0] // 16), device="cuda")

    def step():
        for _ in range(10):
            x.mul_(1.0)

    return step


def spin(torch):
    """One block of one thread that waits: one multiprocessor of all."""
    return lambda: torch.cuda._sleep(50_000_000)


def tiny(torch):
    """500 small operations a step: the host cannot launch them as fast as they run."""
    x = torch.ones(256, device="cuda")

    def step():
        for _ in range(500):
            x.add_(1.0)

    return step


def starved(period_s):
    """Half of each period work, half of it wait, as a loader that is too slow makes it."""

    def build(torch):
        work = matmul(torch, torch.bfloat16, size=4096, times=2)

        def step():
            start_s = time.perf_counter()
            while time.perf_counter() < start_s + period_s / 2:
                work()
                torch.cuda.synchronize()
            time.sleep(max(0.0, start_s + period_s - time.perf_counter()))

        return step

    return build


def copies(pinned):
    """Host to device, 512 MiB a step; says how many bytes."""

    def build(torch):
        host = torch.ones(128 << 20, pin_memory=pinned)
        device = torch.empty(128 << 20, device="cuda")

        def step():
            device.copy_(host, non_blocking=pinned)
            return host.numel() * 4

        return step

    return build


def training(torch):
    """A small training step with two DataLoader workers; on the CPU where there is no CUDA."""
    from torch.utils.data import DataLoader, TensorDataset

    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    data = TensorDataset(torch.randn(4096, 64), torch.randn(4096, 1))
    batches = DataLoader(data, batch_size=64, num_workers=2, persistent_workers=True, pin_memory=cuda)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    state = {"batches": iter(batches)}

    def step():
        batch = next(state["batches"], None)
        if batch is None:
            state["batches"] = iter(batches)
            return
        x, y = (part.to(device) for part in batch)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    return step


def graphs(torch):
    """The same model, its passes captured in CUDA graphs."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    x, y = torch.randn(64, 64, device="cuda"), torch.randn(64, 1, device="cuda")
    captured = torch.cuda.make_graphed_callables(model, (x,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(captured(x), y).backward()
        optimizer.step()

    return step


def rest(torch):
    """A context, and no work."""
    torch.ones(1, device="cuda")
    return lambda: time.sleep(0.05)


LOADS = {
    "bf16": lambda torch: matmul(torch, torch.bfloat16, times=20),
    "fp32": lambda torch: matmul(torch, torch.float32, times=3),
    "tf32": lambda torch: matmul(torch, torch.float32, tf32=True),
    "fp8": fp8,
    "memory": memory,
    "spin": spin,
    "tiny": tiny,
    "starved-0.1": starved(0.1),
    "starved-0.3": starved(0.3),
    "starved-1": starved(1.0),
    "starved-3": starved(3.0),
    "pageable": copies(False),
    "pinned": copies(True),
    "training": training,
    "graphs": graphs,
    "rest": rest,
}


class Wanted:
    """The load that was asked for last; read without Python's buffers, whose locks a forked loader would inherit."""

    def __init__(self):
        self.name = ""
        self.changed = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while said := os.read(0, 4096):
            self.name = said.decode().split()[-1]
            self.changed.set()
        os._exit(0)


def work(torch, name, wanted):
    """Build a load, warm it up, repeat it until another is wanted."""
    step = LOADS[name](torch)
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    until_s = time.monotonic() + WARM_UP_S
    for _ in range(WARM_UP):
        step()
        wait()
        if time.monotonic() > until_s:
            break
    say(event="ready", load=name, threads=threads())
    taken, moved, since_s = [], 0, time.monotonic()
    while not wanted.changed.is_set():
        start_s = time.monotonic()
        moved += step() or 0
        wait()
        now_s = time.monotonic()
        taken.append(now_s - start_s)
        if now_s > since_s + REPORT_S:
            say(event="steps", load=name, at_s=now_s, took_s=taken, bytes_per_s=moved / (now_s - since_s))
            taken, moved, since_s = [], 0, now_s


def main():
    """Say whether torch can use a GPU, then do as told."""
    wanted = Wanted()
    before = threads()
    try:
        import torch
    except ImportError as error:
        say(event="hello", why_not=f"torch is not installed for {sys.executable}: {error}")
        return
    why_not = None
    if not torch.cuda.is_available():
        built = f"is built for CUDA {torch.version.cuda}, but finds no GPU" if torch.version.cuda else "has no CUDA"
        why_not = f"torch {torch.__version__} of {sys.executable} {built}; --python names another"
    say(event="hello", why_not=why_not, torch=torch.__version__, cuda=torch.version.cuda, threads=[before, threads()])
    while wanted.changed.wait():
        wanted.changed.clear()
        name = wanted.name
        try:
            work(torch, name, wanted)
        except Exception as error:
            say(event="failed", load=name, why=f"{type(error).__name__}: {error}".splitlines()[0])
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
