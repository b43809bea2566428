"""What the kernel says of the threads of a process: its number here and in its namespace, its state, its name.

py-spy knows the kernel's number of a thread by Python 3.11 and later only. Without it, it calls each thread active.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gputop.declare import record
from gputop.profile.dump import ThreadStack
from gputop.profile.ranks import Ran
from gputop.safe.text import decode

# where glibc keeps the number of a thread, from its pthread_t on: x86-64 and aarch64
_TID_AT = (720, 208)
_INT = 4


@record(frozen=True, slots=True)
class Task:
    """One thread as /proc shows it."""

    tid: int  # as we see it
    state: str  # R runs or is ready to, S sleeps, D waits in the kernel, T is stopped
    name: str


def tasks(pid: int, proc: str = "/proc") -> dict[int, Task]:
    """The threads of a process by their number in its own PID namespace, which is the one it knows itself by."""
    found: dict[int, Task] = {}
    try:
        tids = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return found
    for tid in tids:
        folder = f"{proc}/{pid}/task/{tid}"
        try:
            with open(f"{folder}/status", "rb") as file:
                fields = dict(line.split(b":", 1) for line in file.read(4096).split(b"\n") if b":" in line)
            inner = int(fields.get(b"NSpid", tid.encode()).split()[-1])
            state = decode(fields[b"State"].split()[0])
        except (OSError, ValueError, KeyError, IndexError):
            continue  # it has ended
        found[inner] = Task(int(tid), state, decode(fields.get(b"Name", b"").strip()))
    return found


def measured(
    threads: Sequence[ThreadStack], pid: int, before: Mapping[int, Task], after: Mapping[int, Task], proc: str = "/proc"
) -> tuple[ThreadStack, ...]:
    """The stacks with what the kernel says of each thread, the main one first. What it does not tell is unknown.

    A thread waits if it waited before its stack was read and after.
    """
    found = []
    for thread in threads:
        inner = thread.tid if thread.tid is not None else _numbered(thread, pid, after, proc)
        if inner is None and thread.main:
            inner = next((number for number, task in after.items() if task.tid == pid), None)
        task = after.get(inner) if inner is not None else None
        if inner is None or task is None:
            found.append(replace(thread, active=None, state=None))
            continue
        earlier = before.get(inner, task)
        state = "R" if "R" in (earlier.state, task.state) else task.state
        found.append(
            replace(
                thread,
                tid=task.tid,
                name=thread.name or task.name,
                main=task.tid == pid,
                state=state,
                active=state == "R",
            )
        )
    return tuple(sorted(found, key=lambda thread: (not thread.main, thread.tid or 0)))


def _numbered(thread: ThreadStack, pid: int, known: Mapping[int, Task], proc: str) -> int | None:
    """The number of a thread of which Python knows the pthread_t only; None where that leads to no thread of it."""
    if thread.handle is None:
        return None
    try:
        fd = os.open(f"{proc}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for place in _TID_AT:
            number = int.from_bytes(os.pread(fd, _INT, thread.handle + place), "little")
            if number in known:
                return number
    except (OSError, OverflowError):
        pass
    finally:
        os.close(fd)
    return None


def ran(pid: int, proc: str = "/proc") -> Ran | None:
    """How often the main thread of a process has gone to sleep so far, and the CPU time it has used.

    Only voluntary switches count: one that spins is preempted as often as the scheduler likes.
    """
    folder = f"{proc}/{pid}/task/{pid}"
    try:
        with open(f"{folder}/status", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file.read(8192).split(b"\n") if b":" in line)
        wakes = int(fields[b"voluntary_ctxt_switches"])
    except (OSError, ValueError, KeyError):
        return None
    try:
        with open(f"{folder}/schedstat", "rb") as file:
            return Ran(wakes, int(file.read(128).split()[0]) / 1e9)
    except (OSError, ValueError, IndexError):
        return Ran(wakes, None)


def since(pid: int, before: Ran | None) -> Ran | None:
    """What was added to that since then."""
    now = ran(pid)
    if before is None or now is None:
        return None
    cpu_s = None if now.cpu_s is None or before.cpu_s is None else now.cpu_s - before.cpu_s
    return Ran(now.wakes - before.wakes, cpu_s)


def added(spans: Sequence[Ran | None]) -> Ran | None:
    """That of several spans together; None where one of them is unknown."""
    known = [span for span in spans if span is not None]
    cpu = [span.cpu_s for span in known if span.cpu_s is not None]
    if not known or len(known) < len(spans):
        return None
    return Ran(sum(span.wakes for span in known), sum(cpu) if len(cpu) == len(known) else None)
