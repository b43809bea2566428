"""Recorded results: what a source that is no machine has of its processes, as the tools would have ended."""

from __future__ import annotations

import tempfile
import time

from gputop.actions.spy import ProfileResult, Shown, StackResult
from gputop.actions.tracing import Traced
from gputop.model import Process
from gputop.profile import dump, parse, told
from gputop.profile.kept import Kept
from gputop.profile.ranks import compare
from gputop.source import Rehearsed
from gputop.trace import signatures  # noqa: F401  before a trace is judged: they declare themselves
from gputop.trace.read import read
from gputop.trace.verdict import View
from gputop.ui.profiling.tools import ToolId

Recorded = StackResult | ProfileResult | Traced
RECORDED = "recorded"
NOTE = "recorded: it comes with the demo and was not measured now"
_SECONDS = 10.0


def result(source: Rehearsed, tool: ToolId, processes: tuple[Process, ...]) -> Recorded | None:
    """The recorded result of a tool for some processes, the first of which was asked for; None where there is none."""
    texts = [(one, text) for one in processes if (text := source.rehearsed(one.identity, tool)) is not None]
    if not texts:
        return None
    if tool == "stack":
        return _stacks(texts)
    return _trace(texts) if tool == "trace" else _profile(*texts[0])


def _stacks(texts: list[tuple[Process, str]]) -> StackResult:
    shown = tuple(Shown(process=one, threads=dump.parse(text, one.pid)) for one, text in texts)
    labels = [f"rank {one.rank}" if one.rank is not None else str(one.pid) for one, _ in texts]
    ranks = compare(labels, [one.threads for one in shown]) if len(shown) > 1 else None
    return StackResult(text=NOTE, good=True, lines=(NOTE,), processes=shown, ranks=ranks, recorded=True)


def _profile(process: Process, text: str) -> ProfileResult:
    profile = parse(text)
    profile.pid = process.pid
    profile.notes.append(NOTE)
    about = {
        "pid": process.pid, "started_ticks": process.started_ticks, "job": process.job, "rank": process.rank,
        "at_s": time.time(), "seconds": _SECONDS, "how": RECORDED,
    }  # fmt: skip
    page = told.page(profile, f"{process.pid} {RECORDED}")
    kept = Kept("", RECORDED, about)
    return ProfileResult(text=NOTE, good=True, kept=kept, profile=profile, page=page, recorded=True)


def _trace(texts: list[tuple[Process, str]]) -> Traced:
    views = []
    for _, text in texts:
        with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="gputop-demo-") as file:
            file.write(text)
            file.flush()
            views.append(View(read(file.name)))
    for view in views:
        view.ranks = views
    processes = tuple(one for one, _ in texts)
    return Traced(text=NOTE, good=True, lines=(NOTE,), views=tuple(views), processes=processes, recorded=True)
