"""Run training steps in the user's own Python and report the memory each of them leaves behind.

Standard library and torch only, Python 3.8 and later. It is started by path, as child_request.py says, and needs no
gputop. With CUDA, PyTorch records the line of each allocation; a snapshot of that goes into the file `snapshot`.
"""

from __future__ import annotations

import gc
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # it may be absent (PYTHONSAFEPATH); see child_request
from child_model import training
from child_request import SAY_S, make, run

EVENTS = 100_000  # allocator events recorded
HISTORY = "_record_memory_history"


def answer(pipe, torch, request):
    """Create the training and run the steps; each is reported at once, so that a failure keeps earlier ones."""
    noted = torch.cuda.is_available() and note(torch)
    work = training(torch, make(request), request)
    memory = sibling("agent", "memory.py")
    made = {"torch": str(torch.__version__), "device": str(work.device), "own_step": work.step_of_user is not None}
    pipe.say("ready", **made)
    steps, censuses, batches = request["steps"], set(request["censuses"]), work.batches()
    rows = []
    for step in range(1, steps + 1):
        if work.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(work.device)
        work.run(work.placed(next(batches)))
        work.synchronize()
        row = {"step": step, "host": host(), "devices": memory.devices(torch)}
        if step in censuses:
            gc.collect()
            row.update(memory.census(torch))
        rows.append(row)
        if time.perf_counter() - pipe.said_s >= SAY_S or step == steps:
            pipe.say("progress", done=step, rows=rows)
            rows = []
    if noted:
        torch.cuda.memory._dump_snapshot(request["snapshot"])
    pipe.say("done", noted=noted)


def note(torch):
    """Make PyTorch record its allocations with source lines; return whether it can."""
    begin = getattr(torch.cuda.memory, HISTORY, None)
    if begin is None:
        return False
    try:
        begin(max_entries=EVENTS, stacks="python")
    except TypeError:  # before 2.1
        return False
    return True


def host():
    """Bytes of this process in memory: total, maximum, shared, and anonymous; None if not reported."""
    names = {"VmRSS": "rss", "VmHWM": "peak", "RssShmem": "shared", "RssAnon": "anonymous"}
    found = dict.fromkeys(names.values())
    try:
        with open("/proc/self/status") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in names and value.split()[1:] == ["kB"]:
                    found[names[name]] = int(value.split()[0]) * 1024
    except (OSError, ValueError):
        pass
    return found


def sibling(*path):
    """A module of gputop without imports of its own, loaded by file."""
    from importlib.util import module_from_spec, spec_from_file_location

    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, *path)
    spec = spec_from_file_location("gputop_memory_numbers", file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    run(answer)
