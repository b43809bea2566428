"""Ranks that nothing but their parent tells: no environment of torchrun, no GPU, hardly any CPU. Two, by gloo.

ranks.py HOW STORE WORKERS [--rank N]: HOW is spawn (torch's mp.spawn), or a start method of multiprocessing, or one:
it is itself the rank that RANK says, or its arguments, and another process is started for the other. Each rank prints
`ready RANK PID` once it has made a step, with its pid as it sees it; rank 1 is slow, so that rank 0 waits for it.
"""

import multiprocessing
import os
import sys
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Data(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(4)


def work(rank: int, store: str, workers: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, batch in enumerate(DataLoader(Data(), batch_size=2, num_workers=workers)):
        optimizer.zero_grad()
        loss = model(batch).sum()
        if step and rank == 1 and "HANGS" in os.environ:
            time.sleep(600)  # the other waits for it in its backward pass
        loss.backward()
        optimizer.step()
        if rank == 1:
            time.sleep(0.05)
        distributed.barrier()
        if step == 0:
            os.write(1, f"ready {rank}\n".encode())  # at once: several write to the same pipe


if __name__ == "__main__":
    how, store, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if how == "spawn":
        torch.multiprocessing.spawn(work, args=(store, workers), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
    elif how == "one":
        work(int(os.environ.get("RANK") or sys.argv[-1]), store, workers)
    else:
        context = multiprocessing.get_context(how)
        ranks = [context.Process(target=work, args=(rank, store, workers)) for rank in range(2)]  # type: ignore[attr-defined]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
