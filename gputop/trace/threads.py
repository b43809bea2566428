"""The threads of a trace: which of them trains, what each does, its call paths as a tree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from gputop.frozen_dataclass import frozen_dataclass
from gputop.profile.code import is_own
from gputop.profile.stacks import Node
from gputop.safe.text import clean
from gputop.trace.gpu import LOW_ID, whole
from gputop.trace.host import Host
from gputop.trace.names import Mark
from gputop.trace.pairs import ASYNC

_STDLIB_FILE = re.compile(r"[\w<>-]+\.py")
_PYTHON = re.compile(r"(.+)\((\d+)\): (.+)", re.DOTALL)
_BUILT_IN = re.compile(r"<built-in (?:function|method) (\S+?)(?: of .*)?>", re.DOTALL)
_LAUNCHES = 0.1  # of all kernels: what launches fewer, as a thread that copies batches, holds nothing up
STEP = "step"  # all steps are one call path


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class TracedThread:
    """One thread with something in it."""

    number: int  # in `Host.outer`
    name: str  # main, autograd, or as the kernel names it
    tid: str
    covered_us: float  # in any span
    functions: int  # of the backward pass
    root: int  # of its call paths
    python: int | None  # the same of its Python functions, where they were recorded


def traced_threads(host: Host) -> tuple[TracedThread, ...]:
    """The one that trains first, then those of the backward pass, then the busiest."""
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


def launching(host: Host, launches: Iterable[int]) -> set[int]:
    """The numbers of the threads that launch, the one that trains among them; each has another for Python functions.

    `launches` are the ids of threads as calls into the driver have them, one for each kernel.
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
    """The id of a thread, of what overlaps on it, too."""
    return str(tid).removesuffix(ASYNC)


def trees(host: Host) -> dict[int, Node]:
    """The call paths of every thread by its root, counted in microseconds; what takes none is left out."""
    nesting, names = host.nesting, host.names
    totals = nesting.totals()
    nodes: dict[int, Node] = {}
    for path, total in enumerate(totals):
        above = nodes.get(nesting.parent[path])
        if nesting.parent[path] < 0:
            node = Node("all")
        elif above is None or not total:
            continue
        else:
            name = nesting.name[path]
            text = STEP if names.meanings[name] == Mark.STEP else names.texts[name]
            node = above.children.setdefault(text, Node(text))
        node.count += total
        nodes[path] = node
    return {thread.root: nodes[thread.root] for thread in host.threads}


def is_own_call(name: str, stdlib: frozenset[str]) -> bool:
    """Whether a Python function of a trace is the user's own: `train.py(30): step`. torch cuts what it imports from.

    `stdlib` are the names of Python's own modules.
    """
    match = _PYTHON.fullmatch(name)
    if match is None:
        return False
    file = match[1]
    if file.startswith("/"):
        return is_own(file)
    return _STDLIB_FILE.fullmatch(file) is not None and file[0] != "<" and file[:-3] not in stdlib


def called(name: str) -> str:
    """A Python function of a trace as module.function: `image_transforms.py(12): normalize`; another name as it is.

    Of a function that is built in the name alone: `<built-in function sleep>`.
    """
    if built_in := _BUILT_IN.fullmatch(name):
        return built_in[1]
    match = _PYTHON.fullmatch(name)
    return f"{match[1].rpartition('/')[2].removesuffix('.py')}.{match[3]}" if match else name
