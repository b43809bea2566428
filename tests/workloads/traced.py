"""A small training on the CPU that does, in the middle of a trace of it, what a line on its standard input says.

Started as `traced.py [steps of so many ms] [workers]`; it prints `ready`, then one line for all that it was told. What
begins with `warm` it does as soon as a profiler is prepared, before one is started.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import sys
import threading
import time

import torch
from torch import distributed, nn
from torch.autograd import profiler
from torch.utils.data import DataLoader, TensorDataset

STEP_S = float(sys.argv[1]) / 1000 if len(sys.argv) > 1 else 0.01
WORKERS = int(sys.argv[2]) if len(sys.argv) > 2 else 0
RANK = int(os.environ.get("RANK", 0))
DEAR_S = 0.5
LATE_S = 0.05  # the last rank of several, in each step


class Prepared:
    """Profilers that were prepared: each may make the next step dear, as CUPTI does with the first launch."""

    def __init__(self) -> None:
        self.count, self.dear_s = 0, 0.0
        self._prepare, profiler._prepare_profiler = profiler._prepare_profiler, self

    def __call__(self, *arguments: object, **more: object) -> None:
        self.count += 1
        self._prepare(*arguments, **more)


class Training:
    """A model, its optimizer, its data."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        data = TensorDataset(torch.randn(512, 32), torch.randint(0, 8, (512,)))
        self.loader = DataLoader(data, batch_size=8, num_workers=WORKERS, pin_memory=False)
        self.batches = iter(self.loader)

    def step(self) -> None:
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        time.sleep(STEP_S + PREPARED.dear_s * PREPARED.count)
        PREPARED.count = 0
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        if distributed.is_initialized():
            time.sleep(LATE_S * RANK)
            for parameter in self.model.parameters():
                distributed.all_reduce(parameter.grad)
        self.optimizer.step()


def fork(training: Training) -> str:
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        Training().step()
        own = [name for name in os.listdir(os.environ["GPUTOP_RUNTIME_DIR"]) if f"-{os.getpid()}-" in name]
        sys.exit(3 if profiler._is_profiler_enabled else 5 + len(own))
    return f"child {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"


def profile(training: Training) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        training.step()
    return f"own events {any(event.key == 'aten::addmm' for event in recorded.key_averages())}"


def hold(training: Training) -> str:
    """A profiler of its own that is there for a while."""
    with profiler.profile():
        print("profiling", flush=True)
        sys.stdin.readline()
    return "held"


def refuse(training: Training) -> str:
    """A driver that does not let a profiler start."""
    start, profiler._enable_profiler = profiler._enable_profiler, refused
    print("refusing", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        training.step()
    sys.stdin.readline()
    profiler._enable_profiler = start
    return "allowed"


def swell(training: Training) -> str:
    """A trace of more than a gigabyte: a hole in the file, which takes no space."""
    kind = torch._C._autograd._ProfilerResult
    save = kind.save

    def saved(result: object, path: str) -> None:
        kind.save = save
        save(result, path)
        with open(path, "r+b") as file:
            file.seek((1 << 30) + 1)
            file.write(b"}")

    kind.save = saved
    print("swelling", flush=True)
    while kind.save is not save:
        training.step()
    return "slim"


def dear(training: Training) -> str:
    PREPARED.dear_s = 0.0 if PREPARED.dear_s else DEAR_S
    return f"dear {PREPARED.dear_s}"


def refused(*_: object) -> None:
    raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


def linger(training: Training) -> str:
    """A step that is far longer than those before it."""
    began_s = time.monotonic()
    while profiler._is_profiler_enabled and time.monotonic() - began_s < 20:
        time.sleep(0.01)
    return f"on its own {profiler._is_profiler_enabled}"


def idle(training: Training) -> str:
    """No further step."""
    print("idle", flush=True)
    sys.stdin.readline()
    return "goes on"


def thread(training: Training, *, warm: bool = False) -> str:
    """Another thread trains, and ends in the middle of a trace."""

    def train() -> None:
        mine = Training()
        print("training", flush=True)
        while not (PREPARED.count if warm else profiler._is_profiler_enabled):
            mine.step()

    other = threading.Thread(target=train)
    other.start()
    other.join()
    return "thread ended"


def leave(training: Training) -> str:
    print("leaving", flush=True)
    sys.exit(7)


def fail(training: Training) -> str:
    raise ValueError("the training failed")


TOLD = {call.__name__: call for call in (fork, profile, hold, refuse, swell, dear, linger, idle, thread, leave, fail)}
TOLD["early thread"] = functools.partial(thread, warm=True)
AT_ONCE = ("hold", "refuse", "swell", "dear", "thread", "early thread")
PREPARED = Prepared()


def main() -> None:
    signal.alarm(120)  # nobody waits for it that long
    deaf = int(os.environ.get("WORLD_SIZE", 1)) > 1
    if deaf:
        distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    training = Training()
    training.step()
    print("ready", flush=True)
    told = ""
    while True:
        if not deaf and not told and select.select([sys.stdin], [], [], 0)[0]:
            told = sys.stdin.readline().strip()
            if not told:
                break
        warm, what = told.startswith("warm "), told.removeprefix("warm ")
        if told and (told in AT_ONCE or (PREPARED.count if warm else profiler._is_profiler_enabled)):
            print(TOLD[what](training), flush=True)
            told = ""
        training.step()


main()
