"""Stacks of all threads of a process at one moment, as printed by `py-spy dump --json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.profile.code import LONGEST, Call
from gputop.profile.stacks import Profile
from gputop.safe.files import Refused
from gputop.safe.text import clean

MOST_THREADS = 4096
MOST_DEPTH = 500
MAIN = "MainThread"
_STATES = {"D": "waits in the kernel", "T": "stopped", "t": "stopped by a debugger"}


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread and its calls, the innermost first."""

    tid: int | None
    name: str
    main: bool = False
    active: bool | None = None  # running or runnable; None if not measured
    gil: bool = False  # it holds the GIL
    state: str | None = None  # as in /proc: R S D T
    handle: int | None = None  # its pthread_t
    calls: tuple[Call, ...] = ()
    cut: int = 0  # outer calls not kept

    @property
    def doing(self) -> str:
        """`runs, holds the GIL`, `waits`, or `state unknown`."""
        if self.active is None:
            return "state unknown, holds the GIL" if self.gil else "state unknown"
        what = _STATES.get(self.state or "", "waits") if not self.active else "runs"
        return f"{what}, holds the GIL" if self.gil else what

    @property
    def own(self) -> Call | None:
        """The innermost call of the user's own code; None if only libraries are on the stack."""
        return next((call for call in self.calls if call.own), None)


def parse(text: str, pid: int) -> tuple[ThreadStack, ...]:
    """The threads of a process, the main one first. Refused says in one line why it is not py-spy output.

    Thread states are not taken from py-spy, which calls a thread active if it knows nothing about it.
    """
    try:
        threads = [_thread(entry, pid) for entry in json.loads(text)[:MOST_THREADS]]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise Refused("the output of py-spy is not a list of stacks") from None
    return tuple(sorted(threads, key=lambda thread: (not thread.main, thread.tid or 0)))


def _thread(entry: Any, pid: int) -> ThreadStack:
    tid, handle = entry["os_thread_id"], entry.get("thread_id")
    tid = tid if type(tid) is int else None
    frames = entry["frames"]
    name = clean(str(entry["thread_name"] or ""), LONGEST)
    return ThreadStack(
        tid=tid,
        name=name,
        main=tid == pid or name == MAIN,
        handle=handle if type(handle) is int and handle > 0 else None,
        gil=entry["owns_gil"] is True,
        calls=tuple(_call(each) for each in frames[:MOST_DEPTH]),
        cut=max(0, len(frames) - MOST_DEPTH),
    )


def _call(entry: Any) -> Call:
    line = entry["line"]
    return Call(
        name=clean(str(entry["name"]), LONGEST),
        file=clean(str(entry["filename"] or ""), 4 * LONGEST),
        line=line if type(line) is int and line > 0 else None,
    )


def look(threads: Sequence[ThreadStack]) -> Profile:
    """The main thread's stack as a profile of one sample; empty if it was not seen."""
    return Profile((tuple(call.text for call in reversed(thread.calls)), 1.0) for thread in threads[:1] if thread.main)


_NAMED = 6  # threads listed per location
_ROWS = 40  # calls printed per stack


def grouped(threads: Sequence[ThreadStack]) -> list[list[ThreadStack]]:
    """Threads grouped by location; the main one and the GIL holder are separate."""
    groups: dict[object, list[ThreadStack]] = {}
    for thread in threads:
        alone = thread.main or thread.gil or None
        groups.setdefault((alone and thread.tid, thread.calls, thread.doing), []).append(thread)
    return list(groups.values())


def lines(threads: Sequence[ThreadStack], *, most: int = _ROWS) -> Iterator[str]:
    """A heading for each group of threads, then the calls, the innermost first; `>` marks the user's own."""
    for group in grouped(threads):
        first = group[0]
        yield f"  {_named(group)}: {first.doing if first.calls else 'no Python frames'}"
        for call in first.calls[:most]:
            yield f"    {'>' if call.own else ' '} {call.text}"
        left = len(first.calls) - most + first.cut if len(first.calls) > most else first.cut
        if left:
            yield f"      … {left} more outer calls"


def _named(group: Sequence[ThreadStack]) -> str:
    if len(group) == 1:
        thread = group[0]
        name = thread.name or "unnamed"
        return f"{name} {thread.tid}" if thread.tid else name
    names = [thread.name or "unnamed" for thread in group[:_NAMED]]
    rest = f" and {len(group) - _NAMED} more" if len(group) > _NAMED else ""
    return f"{len(group)} threads in the same place ({', '.join(names)}{rest})"
