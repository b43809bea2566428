"""Traces as tabs: when what ran, steps, operators, kernels, memory, call paths, threads; ranks side by side."""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gputop import labels
from gputop.actions.torch_trace import Traced
from gputop.phrases import percent
from gputop.profile import store
from gputop.profile.stacks import Function, StackNode
from gputop.profile.store import StoredProfile
from gputop.profile.training_parts import Kind
from gputop.report import Page
from gputop.safe.files import Refused
from gputop.trace import report, signatures
from gputop.trace.lanes import lanes
from gputop.trace.read import read
from gputop.trace.report import took
from gputop.trace.threads import is_own_call, traced_threads, trees
from gputop.trace.verdict import SIGNATURES, TraceVerdict, TraceView, said_of
from gputop.ui.result.about import About, files_of
from gputop.ui.result.content import Content, kept_about, one_of
from gputop.ui.result.files import Files
from gputop.ui.result.flame import MOST, FlameChoice, Flames, Sampled
from gputop.ui.result.kernels import KernelsTab, Operators
from gputop.ui.result.memory import Curve
from gputop.ui.result.report import ReportTab
from gputop.ui.result.steps import Steps
from gputop.ui.result.threads import ThreadsTab
from gputop.ui.result.timeline import TimelineTab
from gputop.ui.result.verdicts import Saying, Says
from gputop.ui.widgets.tabs import Tab

_WAITS = re.compile(
    r"^enumerate\(DataLoader\)#|^(?:nccl|gloo):|Synchronize$"
    r"|(?:^|/)(?:threading|queue|selectors|queues|connection)\.py\(\d+\): (?:wait|get|select|recv|poll|acquire)"
    r"|method '(?:acquire|poll)' of |built-in function sleep|time\.sleep"
)


def of_trace(view: TraceView) -> list[Sampled]:
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


def _sampled(title: str, root: StackNode) -> Sampled:
    kinds: dict[str, Kind] = {}

    def known(name: str) -> Kind:
        if name not in kinds:
            own = is_own_call(name, sys.stdlib_module_names)
            kinds[name] = "waits" if _WAITS.search(name) else "own" if own else "library"
        return kinds[name]

    return Sampled(
        title=title, root=root, top=functions(root), kind=known, amount=took, unit="MS", files={}, lines={},
        number=lambda us: f"{us / 1e3:.3g}",
    )  # fmt: skip


def functions(root: StackNode) -> list[Function]:
    """Every name in a tree with its own time and its total; one that calls itself counts once a path."""
    own, anywhere = defaultdict[str, float](float), defaultdict[str, float](float)
    waiting: list[tuple[StackNode, frozenset[str]]] = [(below, frozenset()) for below in root.children.values()]
    while waiting:
        node, above = waiting.pop()
        own[node.name] += node.count - sum(below.count for below in node.children.values())
        if node.name not in above:
            anywhere[node.name] += node.count
            above |= {node.name}
        waiting += [(below, above) for below in node.children.values()]
    found = (Function(name, max(0.0, own[name]), total) for name, total in anywhere.items())
    return sorted(found, key=lambda each: (-each.self_count, -each.total_count, each.name))


_LEAST = 0.02  # of a step; smaller parts are not worth a word
assert signatures  # they are declared where they are imported


def of_traced(result: Traced, rank: int) -> Content:
    """What was just traced. Refused where nothing was."""
    if not result.views:
        raise Refused(": ".join((result.text, *result.lines[:1])))
    folder = str(Path(result.files[0]).parent) if result.files else ""
    found = _kept(folder)
    about = kept_about(found, "") if found else About(what="", pid=None, at_s=time.time(), files=files_of(result.files))
    if result.processes:
        process = result.processes[min(rank, len(result.processes) - 1)]
        about = replace(
            about, pid=process.pid, job=process.job, rank=process.rank,
            processes=tuple(one.identity for one in result.processes),
        )  # fmt: skip
    return _content(result.views, rank, about, list(result.lines))


def of_files(result: StoredProfile, rank: int) -> Content:
    """Traces that are kept, read again. Refused where none can be."""
    names = [name for name in result.meta.get("traces", ()) if isinstance(name, str)]
    return _content(views(result, names), rank, kept_about(result, ""), [])


def views(result: StoredProfile, names: Sequence[str]) -> list[TraceView]:
    """The traces in a folder that can be read; Refused with the last reason where none can."""
    found, why = list[TraceView](), f"{result.path}: no trace in it"
    for name in names:
        if name.startswith(".") or "/" in name:
            continue
        try:
            found.append(TraceView(read(f"{result.path}/{name}")))
        except Refused as refused:
            why = str(refused)
    if not found:
        raise Refused(why)
    for view in found:
        view.ranks = found
    return found


def _kept(folder: str) -> StoredProfile | None:
    try:
        return next((each for each in store.history() if each.path == folder), None)
    except Refused:
        return None


def _content(found: Sequence[TraceView], rank: int, about: About, notes: list[str]) -> Content:
    view = found[min(rank, len(found) - 1)]
    page = report.page(view)
    steps = len(view.found.window.steps)
    titles = [label(each, place) for place, each in enumerate(found)]
    about = replace(
        about, what=f"torch trace, {labels.amount(steps, 'step')}", notes=(*notes, *view.trace.notes),
        rank=view.trace.rank if about.rank is None else about.rank,
    )  # fmt: skip
    tabs = tabs_of(view)
    if len(found) > 1:
        tabs.append(ReportTab(report.ranks(found), "Ranks", "ranks"))
    tabs += [Files(about.files, about.older, about.kept), ReportTab(page)]

    def compare(before: StoredProfile) -> Page:
        names = [name for name in before.meta.get("traces", ()) if isinstance(name, str)]
        earlier = views(before, names)
        same = one_of(earlier, view.trace.rank, lambda each: each.trace.rank)
        same.ranks = (same,)
        return report.compared(same, view)

    return Content(
        about=about, says=says_of(view, found), tabs=tabs, page=page, compare=compare, ranks=titles, rank=rank
    )


def label(view: TraceView, place: int) -> str:
    """What a trace of several is called."""
    return f"rank {place if view.trace.rank is None else view.trace.rank}"


def tabs_of(view: TraceView) -> list[Tab]:
    """The views of one trace."""
    timeline = TimelineTab(lanes(view))
    steps = timeline.lanes.steps

    def show(place: int) -> None:
        _, start, end = steps[place]
        timeline.show(start, end)

    made: list[Tab] = [timeline, Steps(view, show), Operators(view), KernelsTab(view), Curve(view)]
    choices = of_trace(view)
    if choices:
        choice = FlameChoice(choices)
        made += [Flames(choice), ThreadsTab(choice)]
    return made


def says_of(view: TraceView, found: Sequence[TraceView]) -> Says:
    """Its verdicts, those about all ranks first: they are about the job."""
    verdicts = sorted(said_of(view), key=lambda verdict: (verdict.severity == "info", not verdict.all_ranks))
    if len(found) > 1 and not any(verdict.all_ranks for verdict in verdicts):
        verdicts = [*(verdict for verdict in found[0].verdicts if verdict.all_ranks), *verdicts]
    names = {verdict.rule.partition(" ")[2] for verdict in verdicts if verdict.severity != "info"}
    if view.loads_itself and "input-bound" in names:
        names.add("loads-in-main")
    return Says(
        sayings=tuple(_saying(verdict) for verdict in verdicts),
        words=(*_made_of(view), *report.page(view).words),
        names=frozenset(names),
        known=frozenset(signature.name for signature in SIGNATURES.values())
        if len(view.trace.activity)
        else frozenset(names),
        action="torch",
    )


def _made_of(view: TraceView) -> Iterator[str]:
    """What a step is made of on the CPU."""
    window = view.found.window
    if window.steps and window.span_us:
        phases = [each for each in view.phases if each.host_us and each.host_us >= _LEAST * window.span_us]
        parts = [f"{each.name} {percent((each.host_us or 0) / window.span_us)}" for each in phases]
        yield f"Step {report.took(window.span_us / view.steps)}: {', '.join(parts)}."


def _saying(verdict: TraceVerdict) -> Saying:
    return Saying(
        severity="fine" if verdict.healthy else verdict.severity,
        text=verdict.headline,
        name=verdict.rule.partition(" ")[2],
        facts=" · ".join(report.fact(number) for number in verdict.numbers),
        steps=verdict.steps,
        lost_share=verdict.lost_share,
    )
