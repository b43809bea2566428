"""The call paths of a trace as something to choose from: a flame graph a thread, in microseconds."""

from __future__ import annotations

import re
import sys
from collections import defaultdict

from gputop.profile.stacks import Function, Node
from gputop.profile.training_parts import Kind
from gputop.trace.report import took
from gputop.trace.threads import is_own_call, traced_threads, trees
from gputop.trace.verdict import View
from gputop.ui.result.sampled import MOST, Sampled

_WAITS = re.compile(
    r"^enumerate\(DataLoader\)#|^(?:nccl|gloo):|Synchronize$"
    r"|(?:^|/)(?:threading|queue|selectors|queues|connection)\.py\(\d+\): (?:wait|get|select|recv|poll|acquire)"
    r"|method '(?:acquire|poll)' of |built-in function sleep|time\.sleep"
)


def of_trace(view: View) -> list[Sampled]:
    """A choice for each thread with something in it, the one that trains first."""
    host = view.trace.host
    roots = trees(host)
    made = []
    for row in traced_threads(host)[:MOST]:
        name = f"{row.name} thread" if row.name in ("main", "autograd") else row.name
        for root, what in ((row.python, ", Python"), (row.root, ", operators" if row.python is not None else "")):
            if root is not None and roots[root].children:
                made.append(_sampled(f"{name}{what}", roots[root]))
    return made


def _sampled(title: str, root: Node) -> Sampled:
    kinds: dict[str, Kind] = {}

    def known(name: str) -> Kind:
        if name not in kinds:
            own = is_own_call(name, sys.stdlib_module_names)
            kinds[name] = "waits" if _WAITS.search(name) else "own" if own else "library"
        return kinds[name]

    return Sampled(
        title=title, root=root, top=functions(root), kind=known, told=took, unit="MS", files={}, lines={},
        number=lambda us: f"{us / 1e3:.3g}",
    )  # fmt: skip


def functions(root: Node) -> list[Function]:
    """Every name in a tree with its own time and its total; one that calls itself counts once a path."""
    own, anywhere = defaultdict[str, float](float), defaultdict[str, float](float)
    waiting: list[tuple[Node, frozenset[str]]] = [(below, frozenset()) for below in root.children.values()]
    while waiting:
        node, above = waiting.pop()
        own[node.name] += node.count - sum(below.count for below in node.children.values())
        if node.name not in above:
            anywhere[node.name] += node.count
            above |= {node.name}
        waiting += [(below, above) for below in node.children.values()]
    found = (Function(name, max(0.0, own[name]), total) for name, total in anywhere.items())
    return sorted(found, key=lambda each: (-each.self_count, -each.total_count, each.name))
