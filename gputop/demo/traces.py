"""What torch.profiler would write of a simulated rank: some steps, in each the wait and the kernels of its scenario."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from gputop.demo.server import Job, Work
from gputop.model import Process

Waits = Literal[
    "loaders", "itself", "ranks", "saves", "logs", "copies", "launches", "unknown", "transfers", "threads", "turns",
    "starts", "stuck", "evaluates", "indexes", "prepares", "loads", "rests",
]  # fmt: skip
STEPS = 3  # as the dialog has it at first
ENDLESS: frozenset[Waits] = frozenset({"stuck", "evaluates", "indexes", "prepares", "loads", "rests"})  # no step ends
_KERNELS = 24  # of a step, as a rule
_LEAST_STEP_US = 20_000.0
_SHORT_US = 15.0  # a kernel of a job that is held up by launching them
_BLOCKS = 4.0  # for each multiprocessor
_PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
_FP32 = "ampere_sgemm_128x64_tn"
_ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
_NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Kernels(NamedTuple):
    """What a scenario runs on its GPU."""

    names: tuple[str, ...] = (_GEMM,)  # one after the other
    blocks: float = _BLOCKS


_OF_SCENARIO = {  # where the kernels are what is wrong
    "tensor-cores-idle": Kernels((_FP32,)),
    "mem-bw-bound": Kernels((_ADD, _ADD, _ADD, _GEMM)),
    "busy-not-effective": Kernels(blocks=0.01),
}


class _Events:
    """The events of a trace; times are microseconds."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self._id = 0

    def span(self, name: str, start: float, took: float, cat: str) -> None:
        """On the CPU."""
        self._id += 1
        event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": took}
        self.found.append({**event, "args": {"External id": self._id}})

    def kernel(
        self, name: str, start: float, took: float, launch: float, *,
        stream: int = 7, device: int = 0, blocks: float = _BLOCKS, moved_bytes: int = 0,
    ) -> None:  # fmt: skip
        """On the GPU, and the call that launches it."""
        self._id += 1
        copies = name.startswith("Memcpy")
        called = "cudaMemcpyAsync" if copies else "cudaLaunchKernel"
        call = {"ph": "X", "pid": 1, "tid": 1, "cat": "cuda_runtime", "name": called, "ts": launch, "dur": 4}
        self.found.append({**call, "args": {"cbid": 211, "correlation": self._id}})
        event = {"ph": "X", "name": name, "pid": device, "tid": stream, "ts": start, "dur": took}
        about: dict[str, Any] = {"device": device, "stream": stream, "correlation": self._id}
        about |= {"bytes": moved_bytes} if copies else {"blocks per SM": blocks}
        self.found.append({**event, "cat": "gpu_memcpy" if copies else "kernel", "args": about})


def trace(name: str, work: Work, waits: Waits, busy: float, process: Process, job: Job, steps: int = STEPS) -> str:
    """So many steps of the scenario of this name: in each the GPU waits, then works."""
    devices = _devices(waits, job, process)
    events, kernels = _Events(), _OF_SCENARIO.get(name, Kernels())
    step = _LEAST_STEP_US if waits == "launches" else max(_LEAST_STEP_US, work.period_s * 1e6)
    idle = step * (1 - busy)
    for number in range(steps):
        begin = number * step
        events.span(f"ProfilerStep#{number + 1}", begin, step, "user_annotation")
        if waits == "launches":
            _one_by_one(events, begin, step, busy, kernels)
            continue
        if idle > 200:
            _wait(events, waits, begin, idle, work)
        _compute(events, begin + idle, step - idle, kernels, devices)
    head: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    about = {"name": "demo", "totalGlobalMem": 80 * 10**9, "computeMajor": 9, "computeMinor": 0}
    head["deviceProperties"] = [{"id": device, **about} for device in range(devices)]
    if len(job.ranks) > 1:
        head["distributedInfo"] = {"rank": process.rank or 0, "world_size": len(job.ranks), "backend": "nccl"}
    return json.dumps({**head, "traceEvents": events.found})


def _devices(waits: Waits, job: Job, process: Process) -> int:
    """How many GPUs one process drives: all of its own where it copies the model to each."""
    place = process.pid - job.pid
    return len(job.ranks[place]) if waits == "copies" and 0 <= place < len(job.ranks) else 1


def _wait(events: _Events, waits: Waits, begin: float, idle: float, work: Work) -> None:
    """What a step does before its GPU works."""
    if waits in ("loaders", "itself", "starts"):
        kind = "_SingleProcess" if waits == "itself" else "_MultiProcessing"
        name = f"enumerate(DataLoader)#{kind}DataLoaderIter.__next__"
        events.span(name, begin + 40, idle - 80, "user_annotation")
    elif waits == "ranks":
        events.kernel(_NCCL, begin + 10, idle - 20, begin + 2, stream=20)
    elif waits == "transfers":
        events.span("aten::to", begin + 5, idle - 10, "cpu_op")
        moved = round(work.pcie_rx * work.period_s * work.duty)  # the rate is of the time that the GPU is on
        events.kernel(_PAGEABLE, begin + 20, idle - 40, begin + 10, moved_bytes=moved)
    elif waits == "copies":
        events.span("DataParallel.forward", begin + 20, idle - 40, "user_annotation")


def _compute(events: _Events, begin: float, took: float, kernels: Kernels, devices: int) -> None:
    """Kernels without a gap; on the first GPU the calls come early enough."""
    each = took / _KERNELS
    for place in range(_KERNELS):
        at, name = begin + place * each, kernels.names[place % len(kernels.names)]
        events.span("aten::add" if name == _ADD else "aten::mm", at, each / 3, "cpu_op")
        for device in range(devices):
            events.kernel(name, at + 5, max(1.0, each - 6), at + 1, device=device, blocks=kernels.blocks)


def _one_by_one(events: _Events, begin: float, step: float, busy: float, kernels: Kernels) -> None:
    """Many short kernels, each launched when the one before is over."""
    count = max(1, round(step * busy / _SHORT_US))
    each = step / count
    for place in range(count):
        at = begin + place * each
        events.span("aten::add", at, each - _SHORT_US - 1, "cpu_op")
        events.kernel(kernels.names[0], at + each - _SHORT_US, _SHORT_US - 1, at + each - _SHORT_US - 6)
