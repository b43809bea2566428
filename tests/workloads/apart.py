"""Processes that each train by themselves, without a process group: their parent only starts and joins them.

apart.py HOW WORKERS: HOW is torch (its mp.spawn) or a start method of multiprocessing. Each prints `ready PID` once it
has made a step. With `pool` they are those of a pool, whose results are waited for. With `feeds` the parent trains
instead, on what two processes send it, which run torch as well.
"""

import multiprocessing
import os
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class Data(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(64)


def work(rank: int, workers: int) -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, batch in enumerate(DataLoader(Data(), batch_size=2, num_workers=workers)):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.01)
        if step == 0:
            os.write(1, f"ready {os.getpid()}\n".encode())


def simulate(results: Any) -> None:
    torch.set_num_threads(1)
    while True:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            torch.randn(64, 64) @ torch.randn(64, 64)
        results.put(0)


def learn() -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    for _ in range(2):
        context.Process(target=simulate, args=(results,), daemon=True).start()
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1 << 20):
        optimizer.zero_grad()
        model(torch.randn(2, 64)).sum().backward()
        optimizer.step()
        if step == 0:
            os.write(1, f"ready {os.getpid()}\n".encode())
        results.get()


if __name__ == "__main__":
    how = sys.argv[1]
    if how == "feeds":
        learn()
    elif how == "pool":
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            pool.starmap(work, [(0, 0), (1, 0)])
    elif how == "torch":
        torch.multiprocessing.spawn(work, args=(int(sys.argv[2]),), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
    else:
        context = multiprocessing.get_context(how)
        started = [context.Process(target=work, args=(rank, int(sys.argv[2]))) for rank in range(2)]  # type: ignore[attr-defined]
        for each in started:
            each.start()
        for each in started:
            each.join()
