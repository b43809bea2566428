"""Two ranks by gloo that train on the CPU: `late.py EVERY STORE`. Each step takes 40 ms; rank 1 waits another 80 ms for
each batch whose number EVERY divides, none where EVERY is 0. Prints `ready` after some steps."""

import os
import sys
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEP_S, LATE_S = 0.04, 0.25  # late by more than a tenth of a step, also where a busy machine makes steps long


class Data(Dataset[torch.Tensor]):
    def __init__(self, every: int) -> None:
        self.every = every

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.every and index % self.every == 0:
            time.sleep(LATE_S)
        return torch.ones(4)


def work(rank: int, every: int, store: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for step, batch in enumerate(DataLoader(Data(every if rank == 1 else 0), batch_size=1)):
        time.sleep(STEP_S)
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 5 and rank == 0:
            os.write(1, b"ready\n")


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, args=(int(sys.argv[1]), sys.argv[2]), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
