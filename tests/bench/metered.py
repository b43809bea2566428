"""What the step meter costs: the time that it adds to a step, beside an untouched twin, of a step of 5 ms.

Steps of both are as short as they can be, so that what is added shows: 1 % of 5 ms is a fifth of such a step.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.bench import attach
from tests.real_processes import hold, row

SCRIPT = attach.SCRIPT.replace(
    "inputs, step, last_ns = torch.rand(32, 64), 0, time.monotonic_ns()\nwhile True:\n",
    "inputs, step, last_ns = torch.rand(32, 64), 0, time.monotonic_ns()\n"
    "loader = torch.utils.data.DataLoader(torch.rand(1 << 20, 1), batch_size=None, sampler=range(1 << 20))\n"
    "def batches():\n    while True: yield from loader\n"
    "for _ in batches():\n",
)
STEP_S, MOST = 0.005, 0.01
_SECONDS, _ROUNDS = 0.1, 60


@contextmanager
def asked(job: attach.Job) -> Iterator[None]:
    """A gputop asks for its steps every second; here ten times as often, as the windows are short."""
    held, over = hold(row(job.pid)), threading.Event()
    (target,) = held.held(attach.Scope.PROCESS)
    assert isinstance(target, attach.Target)
    with attach.alone(job):
        agent = attach.connect(target)

    def ask() -> None:
        while not over.wait(0.1):
            agent.ask("steps", since=1 << 50)
            next(agent.wait(5.0))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        with attach.alone(job):  # it answers what was asked
            asking.join()
        agent.close()
        held.close()


def added_s(twin: attach.Job, target: attach.Job) -> float:
    """How much longer its steps are, by the median of pairs; who is first alternates."""
    found = []
    for number in range(_ROUNDS):
        rate = {}
        for job in (twin, target) if number % 2 else (target, twin):
            with attach.alone(job):
                rate[job] = job.rate(_SECONDS)
        if all(rate.values()):  # others may have had all CPUs
            found.append(1 / rate[target] - 1 / rate[twin])
    return median(found)


def told(sets: int) -> bool:
    """Print what it adds; whether that is at most 1 % of a step of 5 ms."""
    found: dict[str, list[float]] = {"nothing": [], "the step meter": [], "the same, read 10 times a second": []}
    for _ in range(sets):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            with (
                attach.training(folder, "twin", 0, script=SCRIPT) as twin,
                attach.training(folder, "other", 0, script=SCRIPT) as other,
                attach.training(folder, "metered", 0, agent=True, script=SCRIPT) as metered,
            ):
                found["nothing"].append(added_s(twin, other))
                found["the step meter"].append(added_s(twin, metered))
                with asked(metered):
                    found["the same, read 10 times a second"].append(added_s(twin, metered))
    kept = True
    print("added to a step with a batch of a DataLoader")
    for text, values in found.items():
        middle_s, spread_s = median(values), (max(values) - min(values)) / 2
        missed = middle_s - spread_s > MOST * STEP_S
        kept = kept and not missed
        share = f"{100 * middle_s / STEP_S:5.2f} % of a step of 5 ms"
        print(f"  {text:33} {1e6 * middle_s:6.1f} ± {1e6 * spread_s:.1f} us: {share}{'  MISSED' if missed else ''}")
    return kept
