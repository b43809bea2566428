"""The threads of a trace: the training thread, the activity of each, its call paths as a tree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.profile.code import is_own
from gputop.profile.stacks import StackNode
from gputop.safe.text import clean
from gputop.trace.gpu import LOW_ID, whole
from gputop.trace.host import HostTimes
from gputop.trace.names import SpanMeaning
from gputop.trace.pairs import ASYNC

_STDLIB_FILE = re.compile(r"[\w<>-]+\.py")
_PYTHON = re.compile(r"(.+)\((\d+)\): (.+)", re.DOTALL)
_BUILT_IN = re.compile(r"<built-in (?:function|method) (\S+?)(?: of .*)?>", re.DOTALL)
_LAUNCHES = 0.1  # of all kernels: a thread that launches fewer, as one that copies batches, delays nothing
STEP = "step"  # all steps share one call path


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class TracedThread:
    """One thread with activity."""

    number: int  # in `Host.outer`
    name: str  # main, autograd, or the kernel's name for it
    tid: str
    covered_us: float  # in any span
    functions: int  # of the backward pass
    root: int  # of its call paths
    python: int | None  # the same for its Python functions, if recorded


def traced_threads(host: HostTimes) -> tuple[TracedThread, ...]:
    """The training thread first, then those of the backward pass, then by activity."""
    threads = [thread for thread in host.threads if thread.covered_us > 0 and not thread.python]
    python = {(thread.pid, thread.tid): thread.root for thread in host.threads if thread.python}
    main = max(threads, key=lambda one: (one.marks, one.tid == one.pid, one.covered_us, str(one.tid)), default=None)
    rows = []
    for one in sorted(threads, key=lambda one: (one is not main, not one.functions, -one.covered_us, str(one.tid))):
        tid = clean(str(one.tid), 20)
        given = re.sub(r"^thread \d+ ?", "", host.thread_names.get((one.pid, one.tid), "")).strip("() ")
        name = "main" if one is main else "autograd" if one.functions else given or f"thread {tid}"
        rows.append(
            TracedThread(
                number=one.number,
                name=name,
                tid=tid,
                covered_us=one.covered_us,
                functions=one.functions,
                root=one.root,
                python=python.get((one.pid, one.tid)),
            )
        )
    return tuple(rows)


def launching_threads(host: HostTimes, launches: Iterable[int]) -> set[int]:
    """Numbers of the launching threads, including the training one; Python functions are a second thread each.

    `launches`: thread id of each kernel's launch call.
    """
    count = Counter(launches)
    ids = {tid for tid, many in count.items() if many >= _LAUNCHES * count.total()}
    first = traced_threads(host)[:1]
    main = {(str(one.pid), _tid(one.tid)) for one in host.threads if first and one.number == first[0].number}
    return {
        one.number
        for one in host.threads
        if (str(one.pid), _tid(one.tid)) in main or (whole(_tid(one.tid)) or 0) & LOW_ID in ids
    }


def _tid(tid: Any) -> str:
    """The thread id, also for overlapping operators."""
    return str(tid).removesuffix(ASYNC)


def trees(host: HostTimes) -> dict[int, StackNode]:
    """The call paths of every thread by root, in microseconds; without those that take no time."""
    nesting, names = host.nesting, host.names
    totals = nesting.totals()
    nodes: dict[int, StackNode] = {}
    for path, total in enumerate(totals):
        above = nodes.get(nesting.parent[path])
        if nesting.parent[path] < 0:
            node = StackNode("all")
        elif above is None or not total:
            continue
        else:
            name = nesting.name[path]
            text = STEP if names.meanings[name] == SpanMeaning.STEP else names.texts[name]
            node = above.children.setdefault(text, StackNode(text))
        node.count += total
        nodes[path] = node
    return {thread.root: nodes[thread.root] for thread in host.threads}


def is_own_call(name: str, stdlib: frozenset[str]) -> bool:
    """Whether a Python function of a trace is the user's own: `train.py(30): step`. torch shortens imported paths.

    `stdlib`: names of Python's standard modules.
    """
    match = _PYTHON.fullmatch(name)
    if match is None:
        return False
    file = match[1]
    if file.startswith("/"):
        return is_own(file)
    return _STDLIB_FILE.fullmatch(file) is not None and file[0] != "<" and file[:-3] not in stdlib


def function_name(name: str) -> str:
    """A Python function of a trace as module.function: `image_transforms.py(12): normalize`; other names unchanged.

    For a built-in function its name alone: `<built-in function sleep>`.
    """
    if built_in := _BUILT_IN.fullmatch(name):
        return built_in[1]
    match = _PYTHON.fullmatch(name)
    return f"{match[1].rpartition('/')[2].removesuffix('.py')}.{match[3]}" if match else name
