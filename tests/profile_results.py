"""Results to look at, kept as the profilers keep them: of the training in a frame, always the same."""

from __future__ import annotations

import gzip
import json
from typing import Any

from gputop.demo.results import LIBRARY_PLACES
from gputop.model import Frame, Process, Role
from gputop.profile import flame, parse, store
from gputop.profile.store import COLLAPSED, FLAME, SPEEDSCOPE, StoredProfile
from tests.llama_trace import llama

LIBRARY, OWN = "/opt/conda/lib/python3.12/site-packages/torch", "/home/alice/llama"
PLACES = LIBRARY_PLACES | {
    "<module>": (f"{OWN}/train.py", 231),
    "main": (f"{OWN}/train.py", 212),
    "train_step": (f"{OWN}/train.py", 148),
    "Llama.forward": (f"{OWN}/model.py", 88),
    "Attention.forward": (f"{OWN}/model.py", 61),
    "MLP.forward": (f"{OWN}/model.py", 97),
    "scaled_dot_product_attention": (f"{LIBRARY}/nn/functional.py", 6140),
    "wait": ("/opt/conda/lib/python3.12/threading.py", 359),
    "log": (f"{OWN}/train.py", 90),
    "read_shard": (f"{OWN}/data.py", 31),
    "tokenize": (f"{OWN}/data.py", 58),
}
STEP = "<module> main train_step"
MODEL = f"{STEP} Module._call_impl Llama.forward"
SAMPLES = {
    f"{MODEL} Attention.forward scaled_dot_product_attention": 95,
    f"{MODEL} Attention.forward linear": 20,
    f"{MODEL} MLP.forward linear": 62,
    f"{MODEL} MLP.forward": 38,
    f"{STEP} backward _engine_run_backward": 220,
    f"{STEP} AdamW.step": 92,
    "<module> main _MultiProcessingDataLoaderIter.__next__ _next_data _get_data get": 393,
    "<module> main log": 22,
}
LOADER = {"_worker_loop fetch read_shard": 610, "_worker_loop fetch tokenize": 330}


def trainer(frame: Frame) -> Process:
    """The first rank of the first job."""
    return next(one for one in frame.processes if one.role is Role.TRAINER and one.job == frame.jobs[0].key)


def speedscope(pid: int) -> str:
    """Samples of a main thread, a thread that waits, and a loader, as py-spy writes them."""
    frames = [{"name": name, "file": file, "line": line} for name, (file, line) in PLACES.items()]
    numbers = {name: number for number, name in enumerate(PLACES)}

    def thread(name: str, stacks: dict[str, int]) -> dict[str, Any]:
        samples = [[numbers[call] for call in stack.split()] for stack, count in stacks.items() for _ in range(count)]
        return {
            "type": "sampled",
            "name": name,
            "unit": "seconds",
            "samples": samples,
            "weights": [0.01] * len(samples),
        }

    threads = [
        thread(f'Process {pid} Thread {pid} "MainThread"', SAMPLES),
        thread(f'Process {pid} Thread {pid + 51} "pin_memory"', {"wait": sum(SAMPLES.values())}),
        thread(f'Process {pid + 183} Thread {pid + 183} "MainThread"', LOADER),
    ]
    return json.dumps({"shared": {"frames": frames}, "profiles": threads})


def about(frame: Frame, at_s: float, **known: Any) -> dict[str, Any]:
    """What is written beside a result."""
    process = trainer(frame)
    command = " ".join(process.command)
    return {
        "pid": process.pid, "started_ticks": process.started_ticks, "command": command, "short": command,
        "job": process.job, "rank": process.rank, "at_s": at_s, **known,
    }  # fmt: skip


def profiled(frame: Frame, at_s: float) -> StoredProfile:
    """A profile of ten seconds in which the main thread waits for its loaders."""
    text = speedscope(trainer(frame).pid)
    profile = parse(text)
    files = {SPEEDSCOPE: text.encode(), COLLAPSED: profile.collapsed().encode(), FLAME: flame(profile).encode()}
    return store.keep(about(frame, at_s, seconds=10.0, how="10 s at 100 Hz"), files)


def traced(frame: Frame, at_s: float) -> StoredProfile:
    """A trace of four steps in which the GPU waits for input."""
    data = gzip.compress(llama().text().encode(), mtime=0)
    return store.keep(about(frame, at_s, how="4 steps", traces=["trace.json.gz"]), {"trace.json.gz": data})
