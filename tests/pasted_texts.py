"""Builders of what people paste: profiler tables, nvidia-smi, logs, memory snapshots."""
# ruff: noqa: E501

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

CPU_COLUMNS = ("Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg")
GPU_COLUMNS = ("Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg")


def took(us: float) -> str:
    """As torch's profiler writes a time."""
    if abs(us) >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if abs(us) >= 1e3 else f"{us:.3f}us"


class Operators:
    """A table as `key_averages().table()` prints it; with `device_us` it has columns of CUDA."""

    def __init__(self, cpu_us: float, device_us: float | None = None) -> None:
        self.cpu_us, self.device_us = cpu_us, device_us
        self.rows: list[tuple[str, ...]] = []

    def row(self, name: str, own: float, total: float | None = None, calls: int = 1, *, gpu: float = 0.0) -> Operators:
        """One row; times in microseconds, `gpu` is its own time on the device."""
        total = own if total is None else total
        cells = [
            f"{100 * own / self.cpu_us:.2f}%",
            took(own),
            f"{100 * total / self.cpu_us:.2f}%",
            took(total),
            took(total / calls),
        ]
        if self.device_us is not None:
            cells += [took(gpu), f"{100 * gpu / self.device_us:.2f}%", took(gpu), took(gpu / calls)]
        self.rows.append((name if len(name) <= 55 else f"{name[:52]}...", *cells, str(calls)))
        return self

    def text(self) -> str:
        """The whole table."""
        head = ("Name", *CPU_COLUMNS, *(GPU_COLUMNS if self.device_us is not None else ()), "# of Calls")
        rule = "  ".join(["-" * 55, *["-" * 12] * (len(head) - 1)]) + "  "
        rows = ["  ".join([f"{row[0]:>55}", *(f"{cell:>12}" for cell in row[1:])]) + "  " for row in (head, *self.rows)]
        total = [f"Self CPU time total: {took(self.cpu_us)}"]
        total += [f"Self CUDA time total: {took(self.device_us)}"] if self.device_us is not None else []
        return "\n".join([rule, rows[0], rule, *rows[1:], rule, *total]) + "\n"


def s1() -> str:
    """The source document's table of a loop that loads its own data, on a CPU."""
    table = Operators(223_257)
    table.row("model_training", 17_337, 223_257).row("aten::empty", 40.229, calls=7)
    table.row("aten::item", 80.398, 126.027, 46).row("aten::_local_scalar_dense", 45.629, calls=46)
    table.row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 32_919, 42_571, 11)
    return table.row("aten::resolve_conj", 33.568, calls=122).text()


SMI = """
==============NVSMI LOG==============

Timestamp                                 : Tue Jan  2 03:04:05 2024
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 1
GPU 00000000:41:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : {persistence}
    MIG Mode
        Current                           : Disabled
    Minor Number                          : 3
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : {generation}
                Device Current            : {generation}
                Device Max                : 5
                Host Max                  : 5
            Link Width
                Max                       : 16x
                Current                   : {width}x
    Clocks Event Reasons
        Idle                              : Not Active
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : {power_cap}
        HW Slowdown                       : {thermal}
            HW Thermal Slowdown           : {thermal}
            HW Power Brake Slowdown       : Not Active
        SW Thermal Slowdown               : Not Active
    FB Memory Usage
        Total                             : 81559 MiB
        Reserved                          : 551 MiB
        Used                              : {used} MiB
        Free                              : 1000 MiB
    Utilization
        Gpu                               : {busy} %
        Memory                            : 40 %
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            DRAM Correctable              : 0
            DRAM Uncorrectable            : {volatile}
        Aggregate
            SRAM Correctable              : 0
            DRAM Uncorrectable            : {aggregate}
    Retired Pages
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 0
        Pending                           : {pending}
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : {celsius} C
        GPU T.Limit Temp                  : N/A
        GPU Slowdown Temp                 : 90 C
        GPU Max Operating Temp            : 87 C
    GPU Power Readings
        Power Draw                        : {watts} W
        Current Power Limit               : {limit} W
        Default Power Limit               : 700.00 W
    Module Power Readings
        Power Draw                        : 9999.00 W
        Current Power Limit               : N/A
    Clocks
        Graphics                          : 1980 MHz
        SM                                : 1980 MHz
        Memory                            : 2619 MHz
    Max Clocks
        Graphics                          : 1980 MHz
        SM                                : 1980 MHz
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4242
            Type                          : C
            Name                          : /usr/bin/python
            Used GPU Memory               : 60000 MiB
"""


BOX = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    2 |
| N/A   86C    P0             390W /  400W |   81000MiB /  81920MiB |     12%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GeForce RTX 4090        Off |   00000000:08:00.0 Off |                  Off |
|  0%   33C    P8             20W /  450W |       4MiB /  24564MiB |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A      4242      C   /usr/bin/python                             80000MiB |
+-----------------------------------------------------------------------------------------+
"""


def smi(**changes: str) -> str:
    """`nvidia-smi -q` of one healthy GPU at work, or of one with these values."""
    values = {
        "persistence": "Enabled", "generation": "5", "width": "16", "power_cap": "Not Active", "thermal": "Not Active",
        "used": "60010", "busy": "97", "volatile": "0", "aggregate": "0", "pending": "No", "celsius": "65",
        "watts": "640.00", "limit": "700.00",
    }  # fmt: skip
    return SMI.format(**(values | changes))


def csv(busy: Sequence[float], *, used: Sequence[float] = (), every_s: int = 5, nounits: bool = False) -> str:
    """What `nvidia-smi --query-gpu=... --format=csv -l 5` prints of one GPU."""
    unit, mib, watt = ("", "", "") if nounits else (" %", " MiB", " W")
    rows = [
        "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB], temperature.gpu, power.draw [W]"
    ]
    for at, value in enumerate(busy):
        seconds = at * every_s
        clock = f"2024/01/02 {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.123"
        held = used[at] if used else 30000
        rows.append(f"{clock}, 0, {value:.0f}{unit}, {held:.0f}{mib}, 81920{mib}, 60, 300.12{watt}")
    return "\n".join(rows) + "\n"


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which {free} GiB is free. Including non-PyTorch memory, this process has {own} GiB memory in use. Of the allocated "
    "memory {allocated} GiB is allocated by PyTorch, and {cached} GiB is reserved by PyTorch but unallocated. If reserved "
    "but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
OLD_OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 23.70 GiB total capacity; 21.00 GiB already "
    "allocated; 5.69 MiB free; 22.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
    "setting max_split_size_mb to avoid fragmentation."
)


def oom(free: float = 1.0, own: float = 78.0, allocated: float = 76.0, cached: float = 0.5) -> str:
    """A log that ends with CUDA out of memory, in the program's own train.py."""
    message = OOM.format(free=free, own=own, allocated=allocated, cached=cached)
    return (
        "step 41 loss 2.31\nstep 42 loss 2.29\nTraceback (most recent call last):\n"
        '  File "/home/me/train.py", line 88, in <module>\n    main()\n'
        '  File "/home/me/train.py", line 61, in step\n    loss.backward()\n'
        '  File "/venv/lib/python3.11/site-packages/torch/_tensor.py", line 525, in backward\n    torch.autograd.backward(\n'
        f"{message}\n"
    )


def timeout(rank: int, sequence: int = 42, operation: str = "ALLREDUCE") -> str:
    """What the watchdog of one rank writes."""
    return (
        f"[rank{rank}]:[E1125 10:00:00.{rank}23 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={sequence}, OpType={operation}, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) "
        "ran for 600029 milliseconds before timing out.\n"
    )


def block(size: int, state: str = "active_allocated", place: str = "/home/me/train.py") -> dict[str, Any]:
    """One block of a segment, allocated by a line of a file."""
    frames = [
        {"filename": "??", "name": "torch::empty", "line": 0},
        {"filename": "/venv/lib/python3.11/site-packages/torch/nn/functional.py", "name": "linear", "line": 9},
        {"filename": place, "name": "forward", "line": 17},
    ]
    return {"address": 1, "size": size, "requested_size": size, "state": state, "frames": frames}


def snapshot(blocks: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]] = ()) -> bytes:
    """A memory snapshot of one GPU with one segment."""
    total = sum(one["size"] for one in blocks)
    segment = {
        "device": 0,
        "address": 1,
        "total_size": total,
        "stream": 0,
        "segment_type": "large",
        "blocks": list(blocks),
    }
    return pickle.dumps({"segments": [segment], "device_traces": [list(events)], "allocator_settings": {"x": 1.5}})
