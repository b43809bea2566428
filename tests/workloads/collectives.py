"""Two gloo ranks of which one never enters a collective, with what PyTorch has to report that.

collectives.py HOW, by torchrun. HOW: server starts torch's debug server, unix a worker server on the socket that the
environment names. dump and mismatch write the dumps of their recorders where the environment says; in the latter the
ranks call different collectives. Each rank prints `ready RANK PID` before rank 1 loads data forever; with ADVANCES in
the environment both go on.
"""

import json
import os
import sys
import time
from datetime import timedelta

import torch
from torch import distributed
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json, _WorkerServer


def serve(how: str) -> object:
    """The servers of this rank."""
    if how == "server":
        from torch.distributed.debug import start_debug_server

        start_debug_server(port=0)
    elif how == "unix":
        return _WorkerServer(f"{os.environ['TORCH_WORKER_SERVER_SOCKET']}")
    return None


def load_shard() -> None:
    time.sleep(600)


def step(tensor: torch.Tensor) -> None:
    distributed.all_reduce(tensor)


def completed(number: int) -> bool:
    """Whether the recorder has this collective of all ranks as complete.

    By its own entry: two threads complete collectives, and the one that is late may leave an older number as the last.
    """
    entries = json.loads(_dump_fr_trace_json())["entries"]
    return any(one["collective_seq_id"] == number and one["retired"]
               for one in entries if one["process_group"][0] == "0")  # fmt: skip


def write(rank: int, last: int) -> None:
    """Write the dump of this rank's recorder, once that knows that the others have completed."""
    while not completed(last):
        time.sleep(0.001)
    with open(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}", "wb") as file:
        file.write(_dump_fr_trace(True, True, False))


def main(how: str) -> None:
    distributed.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, tensor = distributed.get_rank(), torch.ones(4)
    held = serve(how)
    for _ in range(3):
        step(tensor)
    pair = distributed.new_group([0, 1], group_desc="tp")
    distributed.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2), group=pair)
    distributed.barrier()
    if how == "mismatch":
        call = distributed.broadcast if rank else distributed.all_reduce
        distributed.barrier()
        left = call(tensor, 0, async_op=True) if rank else call(tensor, async_op=True)
        write(rank, 5)
        os.write(1, f"ready {rank} {os.getpid()}\n".encode())
        time.sleep(600)
        del left
    if how == "dump":
        left = distributed.all_reduce(tensor, async_op=True) if rank == 0 else None
        write(rank, 4)
    os.write(1, f"ready {rank} {os.getpid()}\n".encode())
    while "ADVANCES" in os.environ:
        step(tensor)
        time.sleep(0.01)
    if rank == 1:
        load_shard()
    step(tensor)
    del held


if __name__ == "__main__":
    main(sys.argv[1])
