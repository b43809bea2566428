"""What looking into a training process costs it: its steps beside those of an untouched twin, the median of pairs.

Only one of the processes runs at a time, the others are stopped: so a pair has the machine to itself, one after the
other, and what disturbs the machine for longer hits both. What remains of a busy machine is left out by the kernel's
count of the time that a thread was ready and had no CPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from gputop.actions import Scope
from gputop.actions.pyspy import Sampling, runner
from gputop.actions.pyspy.record import arguments, rate
from gputop.actions.pyspy.runner import find
from gputop.actions.target import TargetProcess
from gputop.agent_client import connect
from gputop.cli import run
from gputop.trace import signatures  # noqa: F401
from gputop.trace.read import read
from gputop.trace.verdict import TraceView
from tests.process_watch import running
from tests.real_processes import hold, row

SCRIPT = """
import mmap, struct, sys, threading, time
import torch
from torch import nn
torch.set_num_threads(1)
for _ in range(int(sys.argv[2])): threading.Thread(target=threading.Event().wait, daemon=True).start()
file = open(sys.argv[1], "r+b")
counter = mmap.mmap(file.fileno(), 16)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, step, last_ns = torch.rand(32, 64), 0, time.monotonic_ns()
while True:
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    now_ns = time.monotonic_ns()
    counter[:] = struct.pack("qq", step, max(now_ns - last_ns, struct.unpack("q", counter[8:])[0]))
    last_ns = now_ns
    if step == 300: print("ready", flush=True)
"""
_SETTLE_S = 0.3  # a sampler needs so long to begin
BACK = 0.95  # of the steps of before: a job is as fast again when nobody looks into it any more


class Job(NamedTuple):
    """A training process that counts its steps."""

    pid: int
    counter: Path

    @property
    def steps(self) -> int:
        """So many until now."""
        return int.from_bytes(self.counter.read_bytes()[:8], "little")

    def worst_s(self, seconds: float) -> float:
        """The longest time from one step to the next, for so long from now on."""
        with self.counter.open("r+b") as file:
            file.seek(8)
            file.write(bytes(8))
        time.sleep(seconds)
        return int.from_bytes(self.counter.read_bytes()[8:], "little") / 1e9

    def cpu_s(self, thread: int) -> float:
        """CPU time of one of its threads so far."""
        user, system = Path(f"/proc/{self.pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @property
    def waited_s(self) -> float:
        """How long its main thread has been ready to run while others had the CPUs."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[1]) / 1e9

    def rate(self, seconds: float) -> float:
        """Steps a second, for so long from now on; time in which others had its CPU does not count, pauses do."""
        began_s, before, waited_s = time.monotonic(), self.steps, self.waited_s
        time.sleep(seconds)
        return (self.steps - before) / (time.monotonic() - began_s - (self.waited_s - waited_s))


@contextmanager
def training(
    folder: Path, name: str, threads: int, *, agent: bool = False, meter: bool = True, script: str = SCRIPT
) -> Iterator[Job]:
    """A job with so many threads that wait; stopped."""
    counter = folder / name
    counter.write_bytes(bytes(16))
    own = {"GPUTOP_RUNTIME_DIR": str(folder / "run"), "XDG_STATE_HOME": str(folder / "state")}
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | own
    environ |= run.agent_settings(environ, meter=meter) if agent else {}
    command = (sys.executable, "-c", script, str(counter), str(threads))
    with running(*command, stderr=subprocess.DEVNULL, env=environ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        os.kill(started.pid, signal.SIGSTOP)
        yield Job(started.pid, counter)


@contextmanager
def alone(job: Job) -> Iterator[None]:
    """It runs, and then is stopped again."""
    os.kill(job.pid, signal.SIGCONT)
    try:
        yield
    finally:
        os.kill(job.pid, signal.SIGSTOP)


@contextmanager
def nothing(job: Job) -> Iterator[None]:
    """Nothing is done to it."""
    yield


@contextmanager
def ours(job: Job) -> Iterator[None]:
    """py-spy as we start it."""
    threads = len(os.listdir(f"/proc/{job.pid}/task"))
    sampling = Sampling(seconds=60)
    program = find()
    assert isinstance(program, str)
    spy = runner.start(program, job.pid, arguments(sampling, rate(sampling, threads)), seconds=60, to_file=True)
    assert isinstance(spy, runner.Child)
    time.sleep(_SETTLE_S)
    try:
        yield
    finally:
        spy.stop()
        spy.close()


@contextmanager
def theirs(job: Job) -> Iterator[None]:
    """py-spy as it is started without options."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(find()), "record", "-o", f"{folder}/flame.svg", "-p", str(job.pid)]
        spy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(_SETTLE_S)
        yield
        spy.send_signal(signal.SIGINT)
        spy.wait(30)


Doing = Callable[[Job], AbstractContextManager[None]]


def ratios(twin: Job, target: Job, doing: Doing, seconds: float, rounds: int) -> list[float]:
    """Steps of the target while something is done to it, over those of its twin, by pair; who is first alternates."""
    found = []
    for number in range(rounds):
        steps_s = {}
        for job in (twin, target) if number % 2 else (target, twin):
            with alone(job), doing(job) if job is target else nothing(job):
                steps_s[job] = job.rate(seconds)
        if steps_s[twin]:  # others may have had all CPUs
            found.append(steps_s[target] / steps_s[twin])
    return found


def traced(job: Job) -> float:
    """Seconds from the request for three steps to the verdict on them."""
    held = hold(row(job.pid))
    (target,) = held.held(Scope.PROCESS)
    assert isinstance(target, TargetProcess)
    began_s = time.monotonic()
    agent = connect(target)
    agent.ask("capture", steps=3)
    done = next(told for told in agent.wait(30) if told.get("state") == "done" or "error" in told)
    assert len(TraceView(read(done["out"])).rows) == 3, done
    took_s = time.monotonic() - began_s
    agent.close()
    held.close()
    return took_s


class Row(NamedTuple):
    """One line of the table: what is done, to which job, in how long windows, and the least that is promised."""

    text: str
    doing: Doing
    to_agent: bool = False
    seconds: float = 0.1  # the speed of a machine changes in less than a second: short windows, many of them
    rounds: int = 60
    least: float = 0.0


ROWS = (
    Row("nothing", nothing),
    Row("py-spy, our defaults", ours, seconds=0.5, rounds=5, least=0.90),
    Row("py-spy, its own defaults", theirs, seconds=0.5, rounds=5),
    Row("nothing any more", nothing, least=BACK),
    Row("the agent, idle", nothing, to_agent=True, least=0.99),
)


def compared(twin: Job, target: Job, with_agent: Job) -> Iterator[tuple[str, list[float]]]:
    """By row, the ratios of one set of jobs."""
    usual = 0.0
    for line in ROWS:
        found = ratios(twin, with_agent if line.to_agent else target, line.doing, line.seconds, line.rounds)
        usual = usual or median(found)  # no two processes are quite as fast; of the agent's there is no other measure
        yield line.text, found if line.to_agent else [value / usual for value in found]


def told(found: dict[str, list[list[float]]]) -> bool:
    """Print what each thing costs; whether the promises are kept. `found`: by row, the ratios of each set of jobs."""
    kept = True
    for line in ROWS:
        medians = [median(of_set) for of_set in found[line.text]]
        middle, spread = median(medians), (max(medians) - min(medians)) / 2
        missed = middle + spread < line.least
        kept = kept and not missed
        print(f"  {line.text:28} {middle:6.3f} ± {spread:.3f} of the steps{'  MISSED' if missed else ''}", flush=True)
    return kept


def traces(job: Job, rounds: int) -> Iterator[tuple[str, float]]:
    """What a trace of three steps takes, what it costs in the second that it is taken in, and in the next."""
    for _ in range(rounds):
        with alone(job):
            usual = job.rate(0.5)
            began_s, before, waited_s = time.monotonic(), job.steps, job.waited_s
            yield "key to verdict, s", traced(job)
            time.sleep(max(0.0, began_s + 1 - time.monotonic()))
            passed_s = time.monotonic() - began_s - (job.waited_s - waited_s)
            slower, after = (job.steps - before) / passed_s, job.rate(0.5)
            yield "a trace of 3 steps", slower / median((usual, after))
            yield "the second after it", after / usual


FLOODS = {
    "nothing": b"",
    "newlines": b"\n" * 65_000,
    "pings": b'{"op": "ping"}\n' * 16,
    "stacks": b'{"op": "stacks"}\n' * 16,
    "facts": b'{"op": "facts"}\n' * 16,
    "large messages": b"[" + b"0," * 32_000 + b"0]\n",
}
WORST_S = 0.05  # from one step to the next, whatever a client sends


def agent_of(job: Job, folder: Path) -> tuple[str, int]:
    """The socket of the agent in a job, and the number of its thread."""
    (path,) = (folder / "run").glob(f"agent-{job.pid}-*.sock")
    held = hold(row(job.pid))
    (target,) = held.held(Scope.PROCESS)
    assert isinstance(target, TargetProcess)
    with alone(job):
        agent = connect(target)
        stacks = agent.answer("stacks")["stacks"]
        agent.close()
    held.close()
    return str(path), next(each["tid"] for each in stacks if each["thread"] == "gputop-agent")


def flooded(job: Job, path: str, thread: int, sent: bytes, seconds: float) -> tuple[float, float]:
    """The longest time between two steps, and the share of a CPU of the agent, while four clients send this."""
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.settimeout(0.2)
                client.connect(path)
                while not ended.is_set():
                    client.sendall(sent)
                    client.recv(1 << 20)

    senders = [threading.Thread(target=send, daemon=True) for _ in range(4 if sent else 0)]
    for each in senders:
        each.start()
    before_s = job.cpu_s(thread)
    worst_s, share = job.worst_s(seconds), (job.cpu_s(thread) - before_s) / seconds
    ended.set()
    for each in senders:
        each.join()
    return worst_s, share


def main() -> int:
    """Print everything as a table; the exit code is 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=5, help="of jobs: no two processes are quite as fast")
    sets = parser.parse_args().sets
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by the way out: no job may keep running
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}; {sets} sets of jobs")
    from tests.bench import metered  # which uses what stands here

    kept = metered.told(sets)
    for threads in (8, 120):
        found: dict[str, list[list[float]]] = defaultdict(list)
        traced_s: dict[str, list[float]] = defaultdict(list)
        floods: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for _ in range(sets):
            with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
                folder = Path(place)
                twin, target = (stack.enter_context(training(folder, name, threads)) for name in ("twin", "target"))
                with_agent = stack.enter_context(training(folder, "agent", threads, agent=True))
                # the meter costs what it costs a step, however short that is: it is measured by itself
                idle = stack.enter_context(training(folder, "idle", threads, agent=True, meter=False))
                for text, values in compared(twin, target, idle):
                    found[text].append(values)
                for text, value in traces(with_agent, 4):
                    traced_s[text].append(value)
                path, thread = agent_of(with_agent, folder)
                for text, sent in FLOODS.items():
                    with alone(with_agent):
                        floods[text].append(flooded(with_agent, path, thread, sent, 3.0))
        print(f"{threads} extra threads")
        kept = told(found) and kept
        for text in ("a trace of 3 steps", "the second after it", "key to verdict, s"):
            print(f"  {text:28} {median(traced_s[text]):6.3f}", flush=True)
        for text, values in floods.items():
            worst_s, share = median(worst_s for worst_s, _ in values), median(share for _, share in values)
            missed = worst_s > WORST_S
            kept = kept and not missed
            print(
                f"  flood: {text:21} {worst_s * 1000:6.1f} ms at worst from step to step,"
                f" agent {share * 100:.1f} % of a CPU{'  MISSED' if missed else ''}",
                flush=True,
            )
        kept = kept and median(traced_s["the second after it"]) >= BACK and median(traced_s["key to verdict, s"]) <= 3.0
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
