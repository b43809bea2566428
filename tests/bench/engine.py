"""What the history and the rules cost, without anything else of the monitor."""

from __future__ import annotations

import gc
import time
from dataclasses import replace

from gputop import thresholds
from gputop.demo import SCENARIOS, Demo
from gputop.diagnose.engine import Engine
from gputop.history import History

_BEFORE_S, _MEASURED_S = 400, 200  # the trouble shows, and the windows of the rules are full
_LOADERS = 11  # of each of 16 ranks: 192 processes of jobs


def cpu_ms() -> float:
    """CPU time for each second, in milliseconds."""
    limits = thresholds.shipped()
    known = SCENARIOS["16gpu"]
    jobs = tuple(
        replace(job, loaders=_LOADERS, loader_pid=200_000 + 1000 * n) for n, job in enumerate(known.server.jobs)
    )
    demo = Demo(replace(known, server=replace(known.server, jobs=jobs)), pace=False, at_s=0.0)
    history, engine = History(), Engine(lambda: limits)
    gc.set_threshold(10_000)  # as the monitor has it
    spent_s = 0.0
    for second in range(_BEFORE_S + _MEASURED_S):
        frame = demo.frame(float(second))
        began_s = time.process_time()
        history.add(frame)
        engine.remember(frame, history)
        engine.judge(frame, history)
        spent_s += time.process_time() - began_s if second >= _BEFORE_S else 0.0
    return 1000 * spent_s / _MEASURED_S
