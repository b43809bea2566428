"""Recorded results: what a source that is no machine has of its processes, as the tools would have ended."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace

from gputop.actions import torch_trace
from gputop.actions.pyspy import ProfileResult, Sampling, Shown, StackResult
from gputop.actions.torch_trace import Traced
from gputop.model import Process
from gputop.profile import dump, parse, report
from gputop.profile.dump import ThreadStack
from gputop.profile.ranks import compare
from gputop.profile.store import StoredProfile
from gputop.profile.training_parts import kind
from gputop.source import Rehearsed
from gputop.trace import signatures  # noqa: F401  before a trace is judged: they declare themselves
from gputop.trace.read import read
from gputop.trace.verdict import TraceView
from gputop.ui.profiling.tools import Order, ToolId

Recorded = StackResult | ProfileResult | Traced
RECORDED = "recorded"
NOTE = "recorded: comes with the demo, not measured now"
_SECONDS, _WAIT_S = 10.0, 30.0
_SPINS_PERCENT = 60  # of a CPU, from which a thread that waits spins
_LOOKS = 2  # at the stacks of ranks, as where they are measured


def result(
    source: Rehearsed, tool: ToolId, processes: tuple[Process, ...], order: Order | None = None
) -> Recorded | None:
    """The recorded result of a tool for some processes, the first of which was asked for; None where there is none.

    `order` is what was chosen: a result has as many steps, or as many seconds.
    """
    amount = (
        order.seconds
        if isinstance(order, Sampling)
        else order.steps
        if isinstance(order, torch_trace.TraceOrder)
        else 0
    )
    texts = [(one, text) for one in processes if (text := source.rehearsed(one.identity, tool, amount)) is not None]
    if not texts:
        return None
    if tool == "stack":
        return _stacks(source, texts)
    if tool == "profile":
        children = not isinstance(order, Sampling) or order.children
        return _profile(*texts[0], float(amount) or _SECONDS, children)
    if not any(text for _, text in texts):
        wait_s = order.wait_s if isinstance(order, torch_trace.TraceOrder) else _WAIT_S
        text = (
            f"no optimizer step within {wait_s:g} s (recorded): is it stuck, or evaluating? Its stacks show where it is"
        )
        return Traced(text=text, good=False, recorded=True)
    return _trace(texts)


def _stacks(source: Rehearsed, texts: list[tuple[Process, str]]) -> StackResult:
    looks = [[_seen(one, text) for one, text in texts]]
    for earlier in range(1, _LOOKS if len(texts) > 1 else 1):
        looks.insert(0, [_seen(one, source.rehearsed(one.identity, "stack", earlier) or "[]") for one, _ in texts])
    shown = tuple(Shown(process=one, threads=threads) for (one, _), threads in zip(texts, looks[-1], strict=True))
    labels = [f"rank {one.rank}" if one.rank is not None else str(one.pid) for one, _ in texts]
    ranks = compare(labels, *looks) if len(shown) > 1 else None
    return StackResult(text=NOTE, good=True, processes=shown, ranks=ranks, recorded=True)


def _seen(process: Process, text: str) -> tuple[ThreadStack, ...]:
    """The threads, and whether each runs: not in a call that blocks, nor blocked in the kernel."""
    blocked = process.state == "D"

    def measured(thread: ThreadStack) -> ThreadStack:
        waits = bool(thread.calls) and kind(thread.calls[0].text, {}) == "waits"
        spins = waits and (process.main_thread_percent or 0.0) > _SPINS_PERCENT
        active = not blocked and (spins or not waits)
        return replace(thread, active=active, state="R" if active else "D" if blocked else "S")

    return tuple(measured(thread) for thread in dump.parse(text, process.pid))


def _profile(process: Process, text: str, seconds: float, children: bool) -> ProfileResult:
    profile = parse(text)
    profile.pid = process.pid
    if not children:
        profile = profile.only(lambda thread: thread.pid in (None, process.pid))
    profile.notes.append(NOTE)
    about = {
        "pid": process.pid, "started_ticks": process.started_ticks, "job": process.job, "rank": process.rank,
        "at_s": time.time(), "seconds": seconds, "how": RECORDED,
    }  # fmt: skip
    page = report.page(profile, f"{process.pid} {RECORDED}")
    kept = StoredProfile("", RECORDED, about)
    return ProfileResult(text=NOTE, good=True, kept=kept, profile=profile, page=page, recorded=True)


def _trace(texts: list[tuple[Process, str]]) -> Traced:
    views = []
    for _, text in texts:
        with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="gputop-demo-") as file:
            file.write(text)
            file.flush()
            views.append(TraceView(read(file.name)))
    for view in views:
        view.ranks = views
    processes = tuple(one for one, _ in texts)
    return Traced(text=NOTE, good=True, views=tuple(views), processes=processes, recorded=True)
