"""Item 8: what the kernel and torch show of a training process to its own user."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from gputop.safe.text import clean, decode
from tests.gpu_check.check import Check
from tests.gpu_check.loads import Load
from tests.gpu_check.records import Fact, Record, Skip, Verdict, measurement


@measurement(
    "8", "Are schedstat, pressure and delay accounting there, how are torch's threads named, can py-spy attach?"
)
def host(check: Check) -> Iterator[Record]:
    """The kernel's files, then a real training process of ours."""
    yield from _kernel()
    with check.process() as load:
        if "torch" not in load.hello:
            raise Skip(str(load.why_not))
        yield from _threads(check, load)
        yield from _spy(load.pid)


def _read(path: str) -> str | None:
    try:
        return decode(Path(path).read_bytes().strip())
    except OSError:
        return None


def _kernel() -> Iterator[Record]:
    waited = (_read("/proc/self/schedstat") or "").split()
    yield Verdict(len(waited) == 3, f"/proc/self/schedstat has {len(waited)} numbers; assumed run, wait, slices")
    for name in ("cpu", "memory", "io"):
        line = (_read(f"/proc/pressure/{name}") or "").partition(" avg60")[0]
        yield Verdict("avg10=" in line, f"/proc/pressure/{name}: {line or 'absent'}; without it some rules abstain")
    accounting = _read("/proc/sys/kernel/task_delayacct")
    yield Fact(f"kernel.task_delayacct {accounting or 'absent'}: storage wait of processes is known only with 1")
    yield Fact(f"kernel.yama.ptrace_scope {_read('/proc/sys/kernel/yama/ptrace_scope') or 'absent'}")
    yield Fact(f"driver: {_read('/proc/driver/nvidia/version') or '/proc/driver/nvidia is not shown'}"[:110])
    yield Fact(f"pid namespace {'private' if _read('/proc/2/comm') != 'kthreadd' else 'of the host'}")


def _threads(check: Check, load: Load) -> Iterator[Record]:
    before, after = load.hello["threads"]
    yield Fact(f"threads: {len(before)} before torch, {len(after)} after it was imported")
    if not load.why_not:
        rest = load.run("rest")["threads"]
        new = Counter(rest) - Counter(after)
        yield Fact(f"a CUDA context adds {new.total()} threads: {_counted(new)}", {"threads": dict(new)})
        yield Verdict(any(name.startswith("cuda") for name in new), "a thread named cuda… came with the context")
    load.run("training")
    time.sleep(min(1.0, check.seconds))
    own = Counter(_names(load.pid))
    workers = [child.pid for child in psutil.Process(load.pid).children(recursive=True)]
    named = Counter(name for pid in workers for name in _names(pid)[:1])
    yield Fact(f"training process: {_counted(own)}", {"threads": dict(own)})
    yield Fact(f"its {len(workers)} children: {_counted(named)}", {"threads": dict(named)})
    yield Verdict(named["pt_data_worker"] == 2, f"{named['pt_data_worker']} of 2 workers are named pt_data_worker")
    if not load.why_not:
        yield Verdict(
            own["pt_data_pin"] > 0, f"{own['pt_data_pin']} threads named pt_data_pin; assumed 1 with pinned memory"
        )
        yield Verdict(
            own["pt_autograd_0"] > 0, f"{own['pt_autograd_0']} threads named pt_autograd_0; assumed 1 a device"
        )


def _names(pid: int) -> list[str]:
    """Names of a process's threads, the main one first."""
    try:
        tids = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        return []
    return [name for tid in tids if (name := _read(f"/proc/{pid}/task/{tid}/comm")) is not None]


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in names.most_common(12)) or "none"


def _spy(pid: int) -> Iterator[Record]:
    spy = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if spy is None:
        yield Verdict(None, "py-spy is not installed")
        return
    start_s = time.monotonic()
    done = psutil.Popen([spy, "dump", "--pid", str(pid), "--json"], stdout=-1, stderr=-1)
    out, err = done.communicate(timeout=60)
    spent_s = time.monotonic() - start_s
    stacks = _stacks(out) if done.returncode == 0 else []
    why = "" if stacks else f": {clean(decode(err), 200)}"
    yield Verdict(bool(stacks), f"py-spy dump as this user took {spent_s:.2f} s, {len(stacks)} threads{why}")


def _stacks(out: bytes) -> list[Any]:
    try:
        found = json.loads(out)
    except ValueError:
        return []
    return found if isinstance(found, list) else []
