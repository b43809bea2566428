"""What a profiler would say of a simulated process, as the profilers write it: samples and stacks; traces beside it.

Where its time goes follows from the scenario: the GPU works as much as it does there, and the rest is what the job
waits for there.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from gputop.demo.server import Job, Scenario, Work
from gputop.demo.traces import ENDLESS, STEPS, Waits, trace
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
_OF_SCENARIO: dict[str, Waits] = {  # by the beginning of its name; of others its processes say it
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

    `amount`: seconds of a profile, steps of a trace, or how many looks before the last one stacks are; 0: as usual.
    It is empty where there is nothing to print: no step ends.
    """
    job = next((one for one in scenario.server.jobs if one.key == process.job), None)
    if job is None or process.role not in (Role.TRAINER, Role.LOADER) or "torch" not in job.libraries:
        return None
    samples = round((amount or SECONDS) * _RATE) if tool == "profile" else _RATE
    if process.role is Role.LOADER:
        return None if tool == "trace" else _stacks(process, _loading(process, samples), [], tool, amount)
    t, card = frame.mono_s - scenario.server.uptime_s, job.card(process.pid)
    work = job.phase(t)[1] if card is None else job.on_card(t, card)
    waits = _waits_for(scenario, job, process, work)
    idle = _idle(scenario, job, work, waits)
    if tool == "trace":
        endless = waits in ENDLESS or _stands(scenario)
        return "" if endless else trace(scenario.name, work, waits, 1 - idle, process, job, round(amount) or STEPS)
    busy = 1 - _SHARES.get(scenario.name, idle)
    loaders = [one for one in frame.processes if one.parent_pid == process.pid and one.role is Role.LOADER]
    return _stacks(process, _main(waits, busy, samples), loaders[:2], tool, amount)


def _idle(scenario: Scenario, job: Job, work: Work, waits: Waits) -> float:
    """For how much of the time a step waits, 0 to 1. A GPU that waits for other ranks is busy meanwhile."""
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


def _waits_for(scenario: Scenario, job: Job, process: Process, work: Work) -> Waits:
    if _stands(scenario):
        alone = any(work is own for _, own in job.card_work)
        return ("stuck" if "hang" in scenario.name else "evaluates") if alone else "ranks"
    if job.launcher == "notebook":
        return "rests"
    for name, waits in _OF_SCENARIO.items():
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
    """What py-spy writes; a look before the last one finds a process elsewhere, where it is ever elsewhere."""
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
    """One look, as `py-spy dump --json` prints it: the innermost call first."""
    calls = [{"name": name, "filename": _PLACES[name][0], "line": _PLACES[name][1]} for name in reversed(stack.split())]
    main = {"os_thread_id": process.pid, "thread_id": 1, "thread_name": "MainThread", "owns_gil": False}
    return json.dumps([{**main, "frames": calls}])
