"""What a profiler would say of a simulated process, as the profilers write it: samples, stacks, a trace.

Where its time goes follows from the scenario: the GPU works as much as it does there, and the rest is what the job
waits for there.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from gputop.demo.server import Job, Scenario, Work
from gputop.model import Frame, Process, Role

Tool = Literal["profile", "stack", "trace"]
_LIBRARY, _OWN = "/opt/conda/lib/python3.12/site-packages/torch", "/home/user/train"
LIBRARY_PLACES = {  # by function of PyTorch and Python: its file and line
    "Module._call_impl": (f"{_LIBRARY}/nn/modules/module.py", 1762),
    "linear": (f"{_LIBRARY}/nn/functional.py", 125),
    "backward": (f"{_LIBRARY}/_tensor.py", 648),
    "_engine_run_backward": (f"{_LIBRARY}/autograd/graph.py", 825),
    "AdamW.step": (f"{_LIBRARY}/optim/adamw.py", 233),
    "_MultiProcessingDataLoaderIter.__next__": (f"{_LIBRARY}/utils/data/dataloader.py", 701),
    "_SingleProcessDataLoaderIter.__next__": (f"{_LIBRARY}/utils/data/dataloader.py", 709),
    "_next_data": (f"{_LIBRARY}/utils/data/dataloader.py", 1476),
    "_get_data": (f"{_LIBRARY}/utils/data/dataloader.py", 1284),
    "get": ("/opt/conda/lib/python3.12/queue.py", 180),
    "_worker_loop": (f"{_LIBRARY}/utils/data/_utils/worker.py", 349),
    "fetch": (f"{_LIBRARY}/utils/data/_utils/fetch.py", 52),
    "all_reduce": (f"{_LIBRARY}/distributed/distributed_c10d.py", 2935),
    "save": (f"{_LIBRARY}/serialization.py", 944),
    "callHandlers": ("/opt/conda/lib/python3.12/logging/__init__.py", 1762),
    "replicate": (f"{_LIBRARY}/nn/parallel/data_parallel.py", 193),
}
_PLACES = LIBRARY_PLACES | {
    "<module>": (f"{_OWN}/train.py", 231),
    "main": (f"{_OWN}/train.py", 212),
    "train_step": (f"{_OWN}/train.py", 148),
    "Model.forward": (f"{_OWN}/model.py", 88),
    "read_shard": (f"{_OWN}/data.py", 31),
    "decode": (f"{_OWN}/data.py", 58),
    "sleep_until_ready": (f"{_OWN}/train.py", 160),
}
_STEP = "<module> main train_step"
_FORWARD = f"{_STEP} Module._call_impl Model.forward linear"
_BACKWARD = f"{_STEP} backward _engine_run_backward"
_NEXT = "_MultiProcessingDataLoaderIter.__next__"
_WAITS = {  # what a main thread does while its GPU waits, by what the job waits for
    "loaders": f"<module> main {_NEXT} _next_data _get_data get",
    "itself": "<module> main _SingleProcessDataLoaderIter.__next__ _next_data fetch decode",
    "ranks": f"{_STEP} all_reduce",
    "saves": "<module> main save",
    "logs": "<module> main callHandlers",
    "copies": f"{_STEP} replicate",
    "launches": _FORWARD,
    "unknown": f"{_STEP} sleep_until_ready",
}
_OF_SCENARIO = {  # by the beginning of its name; of others its processes say it
    "collective-wait": "ranks", "network-bound": "ranks", "straggler": "ranks", "checkpoint": "saves",
    "sync-log": "logs", "seen-inside": "logs", "dataparallel": "copies", "overhead-bound": "launches",
    "loader-in-main": "itself", "head-of-line": "loaders", "small-job": "launches",
    "starved-cause-unknown": "unknown", "model-parallel": "unknown",
}  # fmt: skip
_SAMPLES = 1000
_HANGS, _WAITS_FOR_RANKS = 0.99, 0.35
_STEPS, _KERNELS = 4, 24
_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
_NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def result(scenario: Scenario, frame: Frame, process: Process, tool: Tool) -> str | None:
    """The text that the tool would print of a process of this frame; None where it could say nothing of it."""
    job = next((one for one in scenario.server.jobs if one.key == process.job), None)
    if job is None or process.role not in (Role.TRAINER, Role.LOADER) or "torch" not in job.libraries:
        return None
    if process.role is Role.LOADER:
        return None if tool == "trace" else _stacks(process, _loading(process), [], tool)
    t, card = frame.mono_s - scenario.server.uptime_s, job.card(process.pid)
    work = job.phase(t)[1] if card is None else job.on_card(t, card)
    waits = _waits_for(scenario, job, process)
    busy = 1 - _idle(scenario, work, waits)
    if tool == "trace":
        return _trace(work, waits, busy, process, job)
    loaders = [one for one in frame.processes if one.parent_pid == process.pid and one.role is Role.LOADER]
    return _stacks(process, _main(waits, busy), loaders[:2], tool)


def _idle(scenario: Scenario, work: Work, waits: str) -> float:
    """For how much of the time a step waits, 0 to 1. A GPU that waits for other ranks is busy meanwhile."""
    if waits == "ranks":
        return _HANGS if "hang" in scenario.name else max(1 - work.duty, _WAITS_FOR_RANKS)
    return min(1.0, max(0.0, 1 - work.duty))


def _waits_for(scenario: Scenario, job: Job, process: Process) -> str:
    for name, waits in _OF_SCENARIO.items():
        if scenario.name.startswith(name):
            return waits
    if job.loaders:
        return "loaders"
    return "itself" if (process.main_thread_percent or process.cpu_percent or 0.0) > 50 else "unknown"


def _main(waits: str, busy: float) -> dict[str, int]:
    """Samples of the main thread, the commonest first: while the GPU works it is ahead of it, in the backward pass."""
    idle = round(_SAMPLES * (1 - busy))
    works = _SAMPLES - idle
    parts = {
        _BACKWARD: round(works * 0.5),
        _FORWARD: round(works * 0.38),
        f"{_STEP} AdamW.step": works - round(works * 0.5) - round(works * 0.38),
    }
    parts[_WAITS[waits]] = parts.get(_WAITS[waits], 0) + idle
    return {stack: count for stack, count in sorted(parts.items(), key=lambda part: -part[1]) if count}


def _loading(process: Process) -> dict[str, int]:
    """Samples of a loader: it reads where it is blocked on storage, and decodes while it uses a CPU."""
    reads = min(0.9, (process.io_wait_percent or 0.0) / 100)
    decodes = min(1.0 - reads, (process.cpu_percent or 0.0) / 100)
    parts = {
        "_worker_loop fetch read_shard": round(_SAMPLES * reads),
        "_worker_loop fetch decode": round(_SAMPLES * decodes),
    }
    parts["_worker_loop get"] = max(0, _SAMPLES - sum(parts.values()))
    return {stack: count for stack, count in parts.items() if count}


def _stacks(process: Process, samples: dict[str, int], loaders: list[Process], tool: Tool) -> str:
    if tool == "stack":
        return _dump(process, next(iter(samples)))
    numbers = {name: number for number, name in enumerate(_PLACES)}
    shown = [(process, samples), *((one, _loading(one)) for one in loaders)]

    def thread(one: Process, stacks: dict[str, int]) -> dict[str, Any]:
        each = [[numbers[call] for call in stack.split()] for stack, count in stacks.items() for _ in range(count)]
        name = f'Process {one.pid} Thread {one.pid} "MainThread"'
        return {"type": "sampled", "name": name, "unit": "seconds", "samples": each, "weights": [0.01] * len(each)}

    frames = [{"name": name, "file": file, "line": line} for name, (file, line) in _PLACES.items()]
    return json.dumps({"shared": {"frames": frames}, "profiles": [thread(*each) for each in shown]})


def _dump(process: Process, stack: str) -> str:
    """One look, as `py-spy dump --json` prints it: the innermost call first."""
    calls = [{"name": name, "filename": _PLACES[name][0], "line": _PLACES[name][1]} for name in reversed(stack.split())]
    main = {"os_thread_id": process.pid, "thread_id": 1, "thread_name": "MainThread", "owns_gil": False}
    return json.dumps([{**main, "frames": calls}])


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

    def kernel(self, name: str, start: float, took: float, launch: float, stream: int = 7) -> None:
        """On the GPU, and the call that launches it."""
        self._id += 1
        at = {"ph": "X", "pid": 1, "tid": 1}
        call = {**at, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launch, "dur": 4}
        self.found.append({**call, "args": {"cbid": 211, "correlation": self._id}})
        event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": took}
        about = {"device": 0, "stream": stream, "correlation": self._id, "blocks per SM": 4.0}
        self.found.append({**event, "args": about})


def _trace(work: Work, waits: str, busy: float, process: Process, job: Job) -> str:
    """Some steps: the GPU waits, then works without a gap."""
    events, step = _Events(), max(20_000.0, work.period_s * 1e6)
    idle = step * (1 - busy)
    for number in range(_STEPS):
        begin = number * step
        events.span(f"ProfilerStep#{number + 1}", begin, step, "user_annotation")
        if waits in ("loaders", "itself") and idle > 200:
            kind = "_MultiProcessing" if waits == "loaders" else "_SingleProcess"
            name = f"enumerate(DataLoader)#{kind}DataLoaderIter.__next__"
            events.span(name, begin + 40, idle - 80, "user_annotation")
        if waits == "ranks" and idle > 200:
            events.kernel(_NCCL, begin + 10, idle - 20, begin + 2, stream=20)
        each = (step - idle) / _KERNELS
        for place in range(_KERNELS):
            at = begin + idle + place * each
            events.span("aten::mm", at, each / 3, "cpu_op")
            events.kernel(_GEMM, at + 5, max(1.0, each - 6), at + 1)
    head: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    head["deviceProperties"] = [{"id": 0, "name": "demo", "totalGlobalMem": 80 * 10**9}]
    if len(job.ranks) > 1:
        head["distributedInfo"] = {"rank": process.rank or 0, "world_size": len(job.ranks), "backend": "nccl"}
    return json.dumps({**head, "traceEvents": events.found})
