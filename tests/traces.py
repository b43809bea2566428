"""Writes traces as Kineto does, with a known truth: what a step does on the CPU, what on the GPU, when."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

GEMM = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4"
FP32 = "ampere_sgemm_128x64_tn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
PINNED = "Memcpy HtoD (Pinned -> Device)"
MAIN, BACKWARD, PID = 100, 101, 100


class Made:
    """A trace in the making; times are microseconds."""

    def __init__(self, **head: Any) -> None:
        self.head: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": 0, "name": "Made GPU", "totalGlobalMem": 80 * 10**9, "computeMajor": 8, "computeMinor": 0}
            ],
            "baseTimeNanoseconds": 1_700_000_000_000_000_000,
            **head,
        }
        self.events: list[dict[str, Any]] = []
        self._id = 0

    def host(self, name: str, start: float, dur: float, cat: str = "cpu_op", tid: int = MAIN, **args: Any) -> int:
        """A span on the CPU; the id by which kernels name it."""
        self._id += 1
        event = {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": tid, "ts": start, "dur": dur}
        self.events.append({**event, "args": {"External id": self._id, **args}})
        return self._id

    def note(self, name: str, start: float, dur: float) -> int:
        """An annotation."""
        return self.host(name, start, dur, "user_annotation")

    def step(self, number: int, start: float, dur: float) -> None:
        self.note(f"ProfilerStep#{number}", start, dur)

    def call(self, name: str, start: float, dur: float, correlation: int = 0) -> None:
        """A call into the CUDA runtime."""
        event = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": PID, "tid": MAIN, "ts": start, "dur": dur}
        self.events.append({**event, "args": {"cbid": 211, "correlation": correlation}})

    def kernel(
        self, name: str, start: float, dur: float, *, launch: float | None = None, stream: int = 7, **args: Any
    ) -> None:
        """What runs on the GPU, and the call that launched it so long ago or, without, 3 us before."""
        self._id += 1
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "gpu_memset" if name.startswith("Memset") else "kernel"
        at = start - 3 if launch is None else launch
        self.call("cudaMemcpyAsync" if cat == "gpu_memcpy" else "cudaLaunchKernel", at, 2, self._id)
        event = {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": start, "dur": dur}
        known = {"device": 0, "stream": stream, "correlation": self._id, "blocks per SM": 4.0}
        self.events.append({**event, "args": {**known, **args}})

    def memory(self, at: float, allocated: int, reserved: int, device_type: int = 1) -> None:
        args = {"Device Type": device_type, "Device Id": 0, "Addr": 1, "Bytes": 1}
        event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PID, "tid": MAIN, "ts": at}
        self.events.append({**event, "args": {**args, "Total Allocated": allocated, "Total Reserved": reserved}})

    def text(self, *, old: bool = False) -> str:
        """The file as Kineto writes it; an old one has absolute times, bare words and the end of the window."""
        events = [dict(event) for event in self.events]
        if old:
            for event in events:
                event["ts"] = int(event["ts"]) + 1_669_783_687_000_000
                event["args"] = {**event["args"], "Call stack": "@@"}
            end = {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 9_000_000_000_000_000}
            events.append(end)
        body = json.dumps(events, indent=2).replace('"@@"', "N/A")
        head = json.dumps({key: value for key, value in self.head.items() if not old or key != "baseTimeNanoseconds"})
        return f'{head[:-1]},\n  "traceEvents": {body},\n  "traceName": "made.json"\n}}\n'

    def write(self, path: Path, **how: bool) -> str:
        """A file, packed if its name ends in .gz; its path as text."""
        data = self.text(**how).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return str(path)


def busy(steps: int = 4, *, kernel: str = GEMM, step_us: float = 100_000, kernels: int = 20, **head: Any) -> Made:
    """A healthy run: kernels packed one after the other, each launched 20 ms before it begins."""
    made = Made(**head)
    each = step_us / kernels
    for number in range(steps):
        start = number * step_us
        made.step(number + 1, start, step_us)
        for place in range(kernels):
            at = start + place * each
            made.kernel(kernel, at, each - 1, launch=max(0.0, at - 20_000) if at else 0.0)
    return made


def starved(
    steps: int = 2, *, kernels: int = 250, each_us: float = 8, every_us: float = 100, step_us: float | None = None
) -> Made:
    """Small kernels that the CPU launches one by one: each begins 2 us after its launch, then nothing for long."""
    made = Made()
    long = step_us or kernels * every_us
    for number in range(steps):
        made.step(number + 1, number * long, long)
        for place in range(kernels):
            at = number * long + place * every_us + 5
            made.kernel(GEMM if place % 2 else ADD, at, each_us, launch=at - 4)
    return made


REST = (("forward", 1, "aten::mm"), ("backward", 1, "autograd::engine::evaluate_function: MmBackward0"),
        ("optimizer", 1, "Optimizer.step#SGD.step"))  # fmt: skip


def recipe(*parts: tuple[str, float, str]) -> Made:
    """Steps of 100 ms on a CPU, made of regions and what runs in each of them."""
    made = Made()
    for number in range(4):
        made.step(number, number * 100 * 1000, 100 * 1000)
        at = number * 100 * 1000
        for name, took, inside in parts:
            made.note(name, at, took * 1000)
            if inside:
                made.host(inside, at + 5, took * 1000 - 10)
            at += took * 1000
    return made


def of_tensorflow(steps: int, data_us: float) -> str:
    """A trace as TensorFlow writes it: no categories, planes and streams by name, ids as text."""
    names = {
        (1, 13): "Stream #13(Compute)",
        (1, 14): "Stream #14(MemcpyH2D)",
        (1, 9): "Steps",
        (1, 8): "TensorFlow Ops",
    }
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        for pid, name in ((1, "/device:GPU:2"), (501, "/host:CPU"))
    ]
    events += [
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for (pid, tid), name in names.items()
    ]

    def add(pid: int, tid: int, ts: float, dur: float, name: str, **args: str) -> None:
        events.append({"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "args": args})

    for step in range(steps):
        at = step * 10_000.0
        add(501, 7, at, data_us, "IteratorGetNext")
        add(1, 9, at, 10_000, f"train {step + 5}", group_id=str(step))
        for place, (tid, name) in enumerate(((14, "MemcpyH2D"), (13, FP32))):
            begin, number = at + data_us + place * 1000, str(2 * step + place + 1)
            add(501, 8, begin, 5, name, correlation_id=number)
            add(1, tid, begin + 100, 900, name, correlation_id=number, memcpy_details="size:4096 dest:0 async:1")
            add(1, 8, begin + 100, 900, "MatMul")  # the same once more
    return json.dumps({"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*events, {}]})
