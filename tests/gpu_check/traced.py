"""Item 9: whether a running job can be traced and goes on, with CUDA graphs too: on old builds that has ended jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from tests.gpu_check.check import Check, last
from tests.gpu_check.loads import Load
from tests.gpu_check.records import Fact, Record, Skip, Verdict, measurement, middle

STEPS = 3
AGAIN_S = 2.0  # of steps after the trace, that show that it goes on


@measurement("9", "Can a job that runs be traced with torch.profiler, one with CUDA graphs too, and does it go on?")
def traced(check: Check) -> Iterator[Record]:
    """A training, then the same with its passes in CUDA graphs, then so that CUPTI leaves it; each traced twice."""
    with check.process() as load:
        if "torch" not in load.hello:
            raise Skip(str(load.why_not))
        yield from _traced(check, load, "training")
    if check.no_cuda:
        raise Skip(check.no_cuda)
    with check.load() as load:
        yield from _traced(check, load, "graphs")
    # torch leaves CUPTI in the process, which makes each launch dearer; newer ones take it out, from CUDA 12.6 on
    with check.load(TEARDOWN_CUPTI="1") as load:
        yield from _traced(check, load, "graphs", "graphs that CUPTI leaves")


def _traced(check: Check, load: Load, name: str, title: str = "") -> Iterator[Record]:
    load.run(name)
    title = title or name
    for time_of in ("first", "second"):
        before = _step_s(load)
        start_s = time.monotonic()
        command = (sys.executable, "-m", "gputop", "trace", str(load.pid), "--steps", str(STEPS), "--alone", "--yes")
        done = check.program(*command, seconds=120)
        spent_s = time.monotonic() - start_s
        check.folder.text(f"trace-{title}.txt", done.stdout + done.stderr)
        said = "" if done.returncode == 0 else f": {last(done.stderr)}"
        yield Verdict(done.returncode == 0, f"{title}, {time_of} trace: took {spent_s:.1f} s{said}")
        after = _step_s(load)
        yield Verdict(after is not None, f"{title}: goes on after its {time_of} trace")
        if before and after:
            took = f"{before * 1e3:.2f} ms before its {time_of} trace, {after * 1e3:.2f} ms after"
            yield Fact(f"{title}: steps of {took}")


def _step_s(load: Load) -> float | None:
    """How long its steps take now; None where it makes none."""
    load.steps()
    time.sleep(AGAIN_S)
    took = [took_s for said in load.steps() for took_s in said["took_s"]]
    return middle(took) if took else None
