"""Where every thread of a process is at one moment, as `py-spy dump --json` prints it: read, named, put in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from gputop.declare import record
from gputop.profile.code import LONGEST, Call
from gputop.profile.stacks import Profile
from gputop.safe.files import Refused
from gputop.safe.text import clean

MOST_THREADS = 4096
MOST_DEPTH = 500
MAIN = "MainThread"


@record(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread: where it is, the innermost call first."""

    tid: int | None
    name: str
    main: bool = False
    active: bool = False  # on a CPU, as far as py-spy can tell
    gil: bool = False  # it holds the lock of the interpreter
    calls: tuple[Call, ...] = ()
    cut: int = 0  # calls further out that are not kept

    @property
    def doing(self) -> str:
        """`runs, holds the GIL`, or `waits`."""
        if self.gil:
            return "runs, holds the GIL"
        return "runs" if self.active else "waits"

    @property
    def own(self) -> Call | None:
        """The innermost call of the user's own code; None where only libraries are on the stack."""
        return next((call for call in self.calls if call.own), None)


def parse(text: str, pid: int, name_of: Callable[[int], str]) -> tuple[ThreadStack, ...]:
    """The threads of a process, the main one first; `name_of` asks the kernel where Python gave none.

    Refused says in one line why it is none of py-spy's.
    """
    try:
        threads = [_thread(entry, pid, name_of) for entry in json.loads(text)[:MOST_THREADS]]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise Refused("py-spy printed something else than stacks") from None
    return tuple(sorted(threads, key=lambda thread: (not thread.main, thread.tid or 0)))


def _thread(entry: Any, pid: int, name_of: Callable[[int], str]) -> ThreadStack:
    tid = entry["os_thread_id"]
    tid = tid if type(tid) is int else None
    frames = entry["frames"]
    name = clean(str(entry["thread_name"] or (name_of(tid) if tid else "")), LONGEST)
    return ThreadStack(
        tid=tid,
        name=name,
        main=tid == pid or name == MAIN,
        active=entry["active"] is True,
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
    """What one look at the main thread is worth: a profile of a single sample; of none where it was not seen."""
    return Profile((tuple(call.text for call in reversed(thread.calls)), 1.0) for thread in threads[:1] if thread.main)
