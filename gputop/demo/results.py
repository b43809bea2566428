"""What profilers would write of a simulated process: samples and stacks, and traces of torch.profiler."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from gputop.demo.server import DemoJob, Scenario, Work
from gputop.model import Frame, Process, Role

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


class KernelMix(NamedTuple):
    """What a scenario runs on its GPU."""

    names: tuple[str, ...] = (_GEMM,)  # one after the other
    blocks: float = _BLOCKS


_KERNELS_OF_SCENARIO = {  # where the kernels are what is wrong
    "tensor-cores-idle": KernelMix((_FP32,)),
    "mem-bw-bound": KernelMix((_ADD, _ADD, _ADD, _GEMM)),
    "busy-not-effective": KernelMix(blocks=0.01),
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


def trace(name: str, work: Work, waits: Waits, busy: float, process: Process, job: DemoJob, steps: int = STEPS) -> str:
    """A number of steps of the scenario of this name: in each the GPU waits, then works."""
    devices = _devices(waits, job, process)
    events, kernels = _Events(), _KERNELS_OF_SCENARIO.get(name, KernelMix())
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


def _devices(waits: Waits, job: DemoJob, process: Process) -> int:
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


def _compute(events: _Events, begin: float, took: float, kernels: KernelMix, devices: int) -> None:
    """Kernels without a gap; on the first GPU the calls come early enough."""
    each = took / _KERNELS
    for place in range(_KERNELS):
        at, name = begin + place * each, kernels.names[place % len(kernels.names)]
        events.span("aten::add" if name == _ADD else "aten::mm", at, each / 3, "cpu_op")
        for device in range(devices):
            events.kernel(name, at + 5, max(1.0, each - 6), at + 1, device=device, blocks=kernels.blocks)


def _one_by_one(events: _Events, begin: float, step: float, busy: float, kernels: KernelMix) -> None:
    """Many short kernels, each launched when the one before is over."""
    count = max(1, round(step * busy / _SHORT_US))
    each = step / count
    for place in range(count):
        at = begin + place * each
        events.span("aten::add", at, each - _SHORT_US - 1, "cpu_op")
        events.kernel(kernels.names[0], at + each - _SHORT_US, _SHORT_US - 1, at + each - _SHORT_US - 6)


Tool = Literal["profile", "stack", "torch"]
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
    "Queue.get": ("/opt/conda/lib/python3.12/multiprocessing/queues.py", 103),
    "DataLoader.__iter__": (f"{_LIBRARY}/utils/data/dataloader.py", 484),
    "Process.start": ("/opt/conda/lib/python3.12/multiprocessing/process.py", 121),
    "load": (f"{_LIBRARY}/serialization.py", 1462),
    "select": ("/opt/conda/lib/python3.12/selectors.py", 468),
    "run_forever": ("/opt/conda/lib/python3.12/asyncio/base_events.py", 645),
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
    "to_device": (f"{_OWN}/data.py", 44),
    "normalize": (f"{_OWN}/data.py", 71),
    "build_index": (f"{_OWN}/data.py", 17),
    "tokenize": (f"{_OWN}/data.py", 24),
    "load_weights": (f"{_OWN}/train.py", 190),
    "write_samples": (f"{_OWN}/train.py", 171),
    "evaluate": (f"{_OWN}/train.py", 183),
}
_STEP = "<module> main train_step"
_FORWARD = f"{_STEP} Module._call_impl Model.forward linear"
_BACKWARD = f"{_STEP} backward _engine_run_backward"
_NEXT = "_MultiProcessingDataLoaderIter.__next__"
_WAITS: dict[Waits, str] = {  # what a main thread does while its GPU waits, by what the job waits for
    "loaders": f"<module> main {_NEXT} _next_data _get_data get",
    "starts": "<module> main DataLoader.__iter__ Process.start",
    "itself": "<module> main _SingleProcessDataLoaderIter.__next__ _next_data fetch decode",
    "ranks": f"{_STEP} all_reduce",
    "saves": "<module> main save",
    "logs": "<module> main callHandlers",
    "copies": f"{_STEP} replicate",
    "launches": _FORWARD,
    "unknown": f"{_STEP} sleep_until_ready",
    "transfers": f"{_STEP} to_device",
    "threads": f"{_STEP} normalize",
    "turns": _BACKWARD,
    "stuck": f"{_STEP} write_samples",
    "evaluates": "<module> main evaluate Module._call_impl Model.forward linear",
    "indexes": "<module> main build_index",
    "prepares": "<module> main tokenize",
    "loads": "<module> main load_weights load",
    "rests": "<module> run_forever select",
}
_WAITS_OF_SCENARIO: dict[str, Waits] = {  # by the beginning of its name; of others its processes say it
    "network-bound": "ranks", "straggler": "ranks", "checkpoint": "saves", "sync-log": "logs", "seen-inside": "logs",
    "dataparallel": "copies", "overhead-bound": "launches", "small-job": "launches", "loader-in-main": "itself",
    "head-of-line": "loaders", "starved-cause-unknown": "unknown", "model-parallel": "unknown",
    "h2d": "transfers", "threads-": "threads", "gpu-shared": "turns", "worker-respawn": "starts",
    "gpu-idle-cpu-busy": "indexes", "no-cuda-context": "prepares", "slow-start": "loads",
}  # fmt: skip
SECONDS, _RATE = 10.0, 100  # of a profile, and its samples a second
_WAITS_FOR_RANKS = 0.35  # of the time that a GPU is busy, where it waits for a network
_IS_LATE = 0.03  # of it, where the others wait for this rank: it only sends
_SHARES = {"worker-respawn": 0.32, "checkpoint-stall": 0.5, "seen-inside": 0.44}  # of a profile with such a pause in it


def result(scenario: Scenario, frame: Frame, process: Process, tool: Tool, amount: float = 0) -> str | None:
    """The text that the tool would print of a process of this frame; None where it cannot look into it.

    `amount`: seconds of a profile, steps of a trace, or how many samples before the last one stacks are; 0: as usual.
    It is empty where there is nothing to print: no step ends.
    """
    job = next((one for one in scenario.server.jobs if one.key == process.job), None)
    if job is None or process.role not in (Role.TRAINER, Role.LOADER) or "torch" not in job.libraries:
        return None
    samples = round((amount or SECONDS) * _RATE) if tool == "profile" else _RATE
    if process.role is Role.LOADER:
        return None if tool == "torch" else _stacks(process, _loading(process, samples), [], tool, amount)
    t, card = frame.mono_s - scenario.server.uptime_s, job.card(process.pid)
    work = job.phase(t)[1] if card is None else job.on_card(t, card)
    waits = _waits_for(scenario, job, process, work)
    idle = _idle(scenario, job, work, waits)
    if tool == "torch":
        endless = waits in ENDLESS or _stands(scenario)
        return "" if endless else trace(scenario.name, work, waits, 1 - idle, process, job, round(amount) or STEPS)
    busy = 1 - _SHARES.get(scenario.name, idle)
    loaders = [one for one in frame.processes if one.parent_pid == process.pid and one.role is Role.LOADER]
    return _stacks(process, _main(waits, busy, samples), loaders[:2], tool, amount)


def _idle(scenario: Scenario, job: DemoJob, work: Work, waits: Waits) -> float:
    """For how much of the time a step waits, 0 to 1. A GPU that waits for other ranks is busy."""
    if waits in ENDLESS or _stands(scenario):
        return 1.0
    late = any(work is own for _, own in job.card_work)
    if waits == "turns":
        return 0.0  # what it runs takes longer
    if waits == "ranks":
        return _IS_LATE if late else max(1 - work.duty, _WAITS_FOR_RANKS)
    return min(1.0, max(0.0, 1 - work.duty))


def _stands(scenario: Scenario) -> bool:
    """Whether a rank keeps all others in a collective."""
    return scenario.name.startswith("collective-wait")


def _waits_for(scenario: Scenario, job: DemoJob, process: Process, work: Work) -> Waits:
    if _stands(scenario):
        alone = any(work is own for _, own in job.card_work)
        return ("stuck" if "hang" in scenario.name else "evaluates") if alone else "ranks"
    if job.launcher == "notebook":
        return "rests"
    for name, waits in _WAITS_OF_SCENARIO.items():
        if scenario.name.startswith(name):
            return waits
    if job.loaders:
        return "loaders"
    return "itself" if (process.main_thread_percent or process.cpu_percent or 0.0) > 50 else "unknown"


def _main(waits: Waits, busy: float, samples: int) -> dict[str, int]:
    """Samples of the main thread, the commonest first: while the GPU works it is ahead of it, in the backward pass."""
    idle = round(samples * (1 - busy))
    works = samples - idle
    parts = {
        _BACKWARD: round(works * 0.5),
        _FORWARD: round(works * 0.38),
        f"{_STEP} AdamW.step": works - round(works * 0.5) - round(works * 0.38),
    }
    parts[_WAITS[waits]] = parts.get(_WAITS[waits], 0) + idle
    return {stack: count for stack, count in sorted(parts.items(), key=lambda part: -part[1]) if count}


def _loading(process: Process, samples: int) -> dict[str, int]:
    """Samples of a loader: it reads where it is blocked on storage, and decodes while it uses a CPU."""
    reads = min(0.9, (process.io_wait_percent or 0.0) / 100)
    decodes = min(1.0 - reads, (process.cpu_percent or 0.0) / 100)
    parts = {
        "_worker_loop fetch read_shard": round(samples * reads),
        "_worker_loop fetch decode": round(samples * decodes),
    }
    parts["_worker_loop Queue.get"] = max(0, samples - sum(parts.values()))
    return {stack: count for stack, count in parts.items() if count}


def _stacks(process: Process, samples: dict[str, int], loaders: list[Process], tool: Tool, amount: float) -> str:
    """What py-spy writes; a sample before the last one finds a process elsewhere, where it is ever elsewhere."""
    if tool == "stack":
        commonest = sorted(samples, key=lambda stack: -samples[stack])
        return _dump(process, commonest[min(round(amount), len(commonest) - 1)])
    numbers = {name: number for number, name in enumerate(_PLACES)}
    count = sum(samples.values())
    shown = [(process, samples), *((one, _loading(one, count)) for one in loaders)]

    def thread(one: Process, stacks: dict[str, int]) -> dict[str, Any]:
        each = [[numbers[call] for call in stack.split()] for stack, count in stacks.items() for _ in range(count)]
        name = f'Process {one.pid} Thread {one.pid} "MainThread"'
        return {"type": "sampled", "name": name, "unit": "seconds", "samples": each, "weights": [0.01] * len(each)}

    frames = [{"name": name, "file": file, "line": line} for name, (file, line) in _PLACES.items()]
    return json.dumps({"shared": {"frames": frames}, "profiles": [thread(*each) for each in shown]})


def _dump(process: Process, stack: str) -> str:
    """One sample, as `py-spy dump --json` prints it: the innermost call first."""
    calls = [{"name": name, "filename": _PLACES[name][0], "line": _PLACES[name][1]} for name in reversed(stack.split())]
    main = {"os_thread_id": process.pid, "thread_id": 1, "thread_name": "MainThread", "owns_gil": False}
    return json.dumps([{**main, "frames": calls}])
