"""A process that reads a fake driver with gputop's reader or lane and says what it saw; and the side that asks it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.fakenvml import Fake

ROOT = Path(__file__).parent.parent
PATIENCE_S = 20.0


@dataclass(frozen=True)
class Seen:
    """What the child knew at one moment, as plain dictionaries."""

    gpus: list[dict[str, Any]]
    shares: dict[int, list[dict[str, Any]]]
    notes: dict[str, dict[str, Any]]
    rest: dict[str, Any]

    def gpu(self, index: int | str) -> dict[str, Any]:
        return next(gpu for gpu in self.gpus if gpu["index"] == str(index))

    def reasons(self, index: int | str) -> dict[str, str]:
        """Why a metric of a GPU has no value."""
        return {one["metric"]: one["reason"] for one in self.gpu(index)["missing"]}

    @property
    def indexes(self) -> list[str]:
        return [gpu["index"] for gpu in self.gpus]

    @property
    def conditions(self) -> dict[str, str]:
        return {gpu["index"]: gpu["condition"] for gpu in self.gpus}


class Child:
    """`sweep` drives the reader on a made-up clock; `start` and `latest` the lane on the real one."""

    def __init__(self, fake: Fake, *, env: dict[str, str] | None = None, **lane: Any) -> None:
        self.fake = fake
        environment = fake.env(**{"PYTHONPATH": str(ROOT), **(env or {})})
        self._child = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.nvml_child", json.dumps({"extended": True, **lane})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def sweep(self, times: int = 1, seconds: float = 1.0) -> Seen:
        """So many sweeps, so far apart on the child's clock."""
        return self._ask("sweep", times, seconds, False)

    def rest_and_sweep(self, seconds: float = 0.25) -> Seen:
        """A sweep after so much real time, in which the driver's counters move."""
        return self._ask("sweep", 1, seconds, True)

    def start(self) -> Seen:
        return self._ask("start")

    def latest(self) -> Seen:
        return self._ask("latest")

    def call(self, name: str, *args: Any) -> Seen:
        """Calls a method of the lane, or `advance`, which moves its clock on."""
        return self._ask(name, *args)

    def until(self, good: Callable[[Seen], Any], seconds: float = PATIENCE_S) -> Seen:
        """Looks at the lane until what it says is good."""
        deadline = time.monotonic() + seconds
        while not good(seen := self.latest()):
            assert time.monotonic() < deadline, f"not seen in {seconds} s; last: {seen}"
            time.sleep(0.03)
        return seen

    def stop(self) -> float:
        """Ends the child the way the program ends; how long that took."""
        began = time.monotonic()
        self._child.stdin.close()
        self._child.wait(PATIENCE_S)
        self._child.stdout.close()
        return time.monotonic() - began

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        self._child.stdin.close()
        self._child.stdout.close()

    def _ask(self, *question: Any) -> Seen:
        self._child.stdin.write(json.dumps(question) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, "the child ended"
        said = json.loads(line)
        assert "failed" not in said, said["failed"]
        shares = {int(pid): held for pid, held in said.pop("shares").items()}
        notes = {note["key"]: note for note in said.pop("notes")}
        return Seen(said.pop("gpus"), shares, notes, said)


class Clock:
    """The monotonic clock, and what was added to it."""

    def __init__(self) -> None:
        self.added_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.added_s


def main() -> None:
    from gputop.collect.nvml.gate import DriverGate
    from gputop.collect.nvml.lane import GpuLane, LaneThread

    clock = Clock()
    lane = GpuLane(clock=clock, **json.loads(sys.argv[1]))
    gate = DriverGate(lane._reader.costs, clock)
    threading.excepthook = lambda args: print(json.dumps({"failed": repr(args.exc_value)}), flush=True)

    def sweep(times: int, seconds: float, real: bool) -> None:
        for _ in range(times):
            before_s = min(seconds, lane._reader.before_sweep_s(frozenset()))
            if real:
                time.sleep(seconds - before_s)
            else:
                clock.added_s += seconds
            lane._reader.begin(gate, frozenset())
            if real:
                time.sleep(before_s)
            lane._reader.sweep(gate, frozenset())

    def advance(seconds: float) -> None:
        while calls(lane._workers[-1]):  # or that call would have taken so long
            time.sleep(0.001)
        clock.added_s += seconds

    def calls(worker: LaneThread) -> bool:
        return worker.gate.at is not None and not worker.stuck(clock())

    acts = {"sweep": sweep, "advance": advance, "latest": lambda: None}
    for line in sys.stdin:
        what, *given = json.loads(line)
        try:
            acts.get(what, getattr(lane, what, None))(*given)
            said = asdict(lane.latest())
        except Exception as error:
            said = {"failed": repr(error)}
        threads = [thread.name for thread in threading.enumerate()]
        modules = [name for name in ("textual", "rich", "psutil") if name in sys.modules]
        print(json.dumps(said | {"threads": threads, "modules": modules}, default=sorted), flush=True)


if __name__ == "__main__":
    main()
