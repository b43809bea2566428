"""Fallbacks: an idle GPU or CPU communication without a specific signature, with the concurrent CPU activity."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from gputop import num_workers
from gputop.phrases import percent
from gputop.severity import by_lost_share
from gputop.trace.breakdown import LEAST_SHOWN
from gputop.trace.host import OutermostSpans
from gputop.trace.intervals import Spans, union
from gputop.trace.names import ActivityKind, SpanMeaning, region
from gputop.trace.step_phases import communication_us
from gputop.trace.threads import function_name, is_own_call, launching_threads
from gputop.trace.verdict import GPU_WAITS, Limits, TraceVerdict, TraceView, VerdictNumber, percentage, signature

LOOK = "Find the code on the CPU: gputop stack PID, or record a trace with with_stack=True."
_CHUNKS = 30  # as in NVIDIA's gpu_time_util
_OF_IT = " of that time"
_ALL = 0.95  # of a time: below, a statement does not apply to all of it
_CPU_WORK = (
    (SpanMeaning.DATA, "training loop waiting for its DataLoader"),
    (SpanMeaning.OPTIMIZER, "optimizer running on the CPU"),
    (SpanMeaning.BACKWARD, "backward running on the CPU"),
    (SpanMeaning.FORWARD, "forward running on the CPU"),
)


@signature("T00", "healthy", "Is the GPU busy, with work queued ahead?", busy=0.90, host_wait=0.05, delay_us=1000)
def healthy(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """The ideal profile: kernels back to back, the CPU ahead."""
    found = view.found
    busy, host_wait = found.share(found.busy), found.share(found.idle.stream_host_us)
    delay = found.launching.delay_p50_us
    if busy >= limit["busy"] and host_wait < limit["host_wait"] and delay is not None and delay >= limit["delay_us"]:
        yield TraceVerdict(
            severity="info",
            healthy=True,
            headline=f"healthy, GPU busy {percent(busy)} of the time, work queued {delay / 1000:.3g} ms ahead",
            numbers=(
                percentage("GPU busy", busy, "the time", limit["busy"], "healthy_from"),
                VerdictNumber(
                    text="launch delay, median",
                    value=delay,
                    unit="us",
                    limit=limit["delay_us"],
                    sense="healthy_from",
                ),
            ),
            steps=("Optimize the kernels themselves: precision, fusion, shapes.",),
        )


@signature("T22", "gaps", "Does the GPU have long idle gaps?", gap_ms=500, chunk=0.5, chunks=3, busy=0.6)
def gaps(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """One long gap, or several stretches of a mostly busy trace with little work (nsys gpu_gaps, gpu_time_util)."""
    found = view.found
    gaps = [(end - start, start, end) for start, end in found.gaps if not view.startup.spans.covers(start)]
    longest = max(gaps, default=(0.0, 0.0, 0.0))
    least_us = 1000 * limit["gap_ms"]
    if longest[0] >= least_us:
        cause, took_ms = cpu_activity(view, Spans([longest[1:]])), longest[0] / 1000
        yield TraceVerdict(
            severity="warn",
            headline=f"long idle gap, {took_ms / 1000:.2f} s{cause}",
            numbers=(
                VerdictNumber(text="longest gap", value=took_ms, unit="ms", limit=limit["gap_ms"], sense="healthy_to"),
            ),
            steps=(LOOK,),
            lost_share=found.share(sum(took for took, _, _ in gaps if took >= least_us)),
            idle=bool(cause),  # otherwise naming the CPU activity says more
        )
        return
    seen = found.window
    width = seen.span_us / _CHUNKS
    parts = [(seen.start + number * width, seen.start + (number + 1) * width) for number in range(_CHUNKS)]
    slack = [
        (start, end)
        for start, end in parts
        if found.busy.within(start, end).total + view.startup.spans.within(start, end).total < limit["chunk"] * width
    ]
    if len(slack) >= limit["chunks"] and found.share(found.busy) >= limit["busy"]:
        where = found.gaps.shared(Spans(slack))
        yield TraceVerdict(
            severity="info",
            headline=f"GPU less than half busy in {len(slack)} of {_CHUNKS} parts of the trace"
            f"{cpu_activity(view, where)}",
            numbers=(VerdictNumber(text="such parts", value=len(slack), limit=limit["chunks"], sense="flagged_from"),),
            steps=(LOOK,),
            lost_share=found.share(where),
        )


def cpu_activity(view: TraceView, gaps: Spans) -> str:
    """CPU activity during most of the gaps, as the end of a headline."""
    shares = [(gaps.shared(view.host(mark)).total, text) for mark, text in _CPU_WORK]
    calls = view.trace.calls
    shares.append((gaps.shared(union(calls.wait_start, calls.wait_took)).total, "CPU waiting for the GPU"))
    shares.append((gaps.shared(union(calls.made_at, calls.made_took)).total, "GPU memory being allocated or freed"))
    longest, text = max(shares)
    return f", {text}{part_of(longest, gaps.total)}" if longest >= gaps.total / 2 > 0 else ""


def part_of(us: float, total_us: float) -> str:
    """The share of a time, as words after a statement on it; empty for all of it."""
    share = us / total_us
    return "" if share >= _ALL else f" in {percent(share)}{_OF_IT}"


_DEPENDENCY = "Check what the next kernel depends on: stream events, copies, or kernels of other streams and processes."
# names of data preparation, and of other work with the same name
_DATA = re.compile(
    r"data|batch|collate|transform|augment|decode|preproc|tokeni[sz]|image|crop|resiz|normali[sz]|fetch|sampl|load|read",
    re.IGNORECASE,
)
_NO_DATA = re.compile(
    r"checkpoint|ckpt|state_dict|save|model|forward|backward|optim|eval|valid|update|thread|transfer|transformer|"
    r"to_(?:gpu|device|cuda)|copy|generat|all_?reduce|all_?gather|broadcast|barrier",
    re.IGNORECASE,
)
# the same for phases named by a program: of a step without a GPU it would be the loss
_INPUT = re.compile(r"(?<!meta)data(?!parallel|class)|augment|collate|fetch|preproc|(?<!pay)load", re.IGNORECASE)
_NO_INPUT = re.compile(
    r"forward|backward|model|optim|eval|valid|train|step|loss|updat|state_dict|checkpoint|ckpt|save|generat|weight|parallel",
    re.IGNORECASE,
)
_COMPILED = re.compile(r"compiled|inductor|dynamo|\bcall\b|graph", re.IGNORECASE)  # computes without operators
_NEXT = re.compile(r"(?:.*/)?torch/utils/data/dataloader\.py\(\d+\): __next__")
_LOADER = ", waiting for its DataLoader"
_MOST_OF = 0.5  # of the idle time: spans that cover it show where the CPU was


@signature("T24", "idle", "Is the GPU idle for any other reason?", last=True, idle=0.20)
def idle(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """At least a fifth of the time idle without another signature to explain it."""
    found, begun = view.found, view.startup.spans
    gaps = found.gaps
    if found.share(begun) >= LEAST_SHOWN:  # this much of it is reported as startup
        gaps = gaps.shared(begun.gaps(found.window.start, found.window.end))
    share = found.share(gaps)
    if share < limit["idle"]:
        return
    steps: tuple[str, ...] = (_DEPENDENCY,)
    if 2 * found.idle.other_us > found.gaps.total:  # the CPU is ahead: none of its work is the cause
        part = part_of(found.idle.other_us, found.gaps.total)
        cause = f", next kernel launched but not started{part}"
    else:
        where, inner, us = _cpu_location(view, gaps)
        took = f" ({_per_step(view, us)})"  # its callees only if they cover all of it
        detail = f"{inner}{took}" if inner and not inner.endswith(_OF_IT) else f"{took}{inner}"
        cause = f", CPU mostly in `{where}`{detail}" if where else ""
        cause = cause or cpu_activity(view, gaps)
        steps = (num_workers.MORE,) if inner == _LOADER else (*_advice(where), LOOK)
    numbers = [percentage("GPU idle", share, "the time", limit["idle"], "healthy_to")]
    if found.launching.known:  # otherwise it is unknown what it waits for
        numbers.append(percentage(GPU_WAITS, found.share(found.idle.host_us), "the time"))
    yield TraceVerdict(
        severity=by_lost_share(share),
        headline=f"GPU idle {percent(share)} of the time{cause}",
        numbers=tuple(numbers),
        steps=steps,
        lost_share=share,
        idle=True,
    )


@signature(
    "T25", "cpu-communication", "Do ranks on CPUs spend the step in collectives?", gpu=False, last=True, share=0.20
)
def cpu_communication(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Collectives of gloo, MPI and others, in a trace without a GPU."""
    if view.found.of_gpu:
        return
    share = view.found.share(communication_us(view.phases))
    if share < limit["share"]:
        return
    yield TraceVerdict(
        severity=by_lost_share(share, "warn"),
        headline=f"communication-bound on the CPU, {percent(share)} of the time in collectives",
        numbers=(percentage("in collectives", share, "the time", limit["share"], "healthy_to"),),
        steps=(
            "Compare the traces of all ranks: the one with the shortest collectives is late, the others wait for it.",
        ),
        lost_share=share,
    )


@signature(
    "T27",
    "cpu-region",
    "On a CPU: is the step in the program's own code?",
    gpu=False,
    last=True,
    share=0.20,
)
def cpu_region(view: TraceView, limit: Limits) -> Iterator[TraceVerdict]:
    """Regions of the program in a CPU-only trace: time outside operators and other regions.

    If the name indicates data preparation, operators inside count as well.
    """
    host = view.trace.host
    if view.found.of_gpu or view.trace.elsewhere:
        return
    own: dict[str, float] = {}
    for number in host.regions:
        text = region(host.names.texts[number])
        own[text] = own.get(text, 0.0) + host.self_us[number]
    phases = {phase.name: phase.host_us or 0.0 for phase in view.phases if phase.name in own}
    shares = (
        (view.found.share(us if _input(name) else min(us, own[name])), name)
        for name, us in phases.items()
        if not _COMPILED.search(name)
    )
    share, name = max(shares, default=(0.0, ""))
    if share < limit["share"]:
        return
    of = "data preparation" if _input(name) else "no torch operator running"
    us = share * view.found.window.span_us
    yield TraceVerdict(
        severity=by_lost_share(share, "warn"),
        headline=f"{of} {percent(share)} of the time, CPU in `{name}` ({_per_step(view, us)})",
        numbers=(percentage(f"in `{name}`", share, "the time", limit["share"], "flagged_from"),),
        steps=(*_advice(name), LOOK),
        lost_share=share,
    )


def _input(name: str) -> bool:
    return bool(_INPUT.search(name) and not _NO_INPUT.search(name))


def _advice(where: str) -> Iterator[str]:
    """Advice on the program's own code; for a loader worker, only on data preparation."""
    if where and "::" not in where:
        data = _DATA.search(where) and not _NO_DATA.search(where)
        yield f"Speed up `{where}`, or move it to DataLoader workers." if data else f"Speed up `{where}`."


def _per_step(view: TraceView, us: float) -> str:
    """`74 ms per step`; the total for a window without several steps."""
    steps = len(view.found.window.steps)
    return f"{_ms(us / steps)} ms per step" if steps > 1 else f"{_ms(us)} ms"


def _ms(us: float) -> str:
    return f"{us / 1000:.3g}" if us < 1e6 else f"{us / 1000:.0f}"


def _cpu_location(view: TraceView, gaps: Spans) -> tuple[str, str, float]:
    """The most specific name that covers most of the gaps, its callee there, and the microseconds.

    The program's own function or region leads; `, calling `time.sleep`` is the single callee that took that time. Empty
    if there is none.
    """
    host, threads = view.trace.host, _launching(view)
    texts, stdlib = host.names.texts, frozenset(sys.stdlib_module_names)
    python = _spans(host.python_spans, threads)
    own = {name for name in python if is_own_call(texts[name], stdlib)}
    known = {name: python[name] for name in own}
    for name, spans in host.regions.items():
        if ran := sorted((at, at + took) for at, took, thread in spans if thread in threads):
            known[name] = Spans(ran)
    if not known:
        detail = _spans(host.outer, threads)
        known = {name: spans for name, spans in detail.items() if host.names.meanings[name] != SpanMeaning.STEP}
    if (most := _covers_most(gaps, known)) is None:
        return "", "", 0.0
    total, name, inside = most
    return (
        function_name(region(texts[name])),
        _callee(view, gaps, python, own, total, inside) if name in own else "",
        inside,
    )


def _launching(view: TraceView) -> set[int]:
    """The threads the GPU waits for: those that launch its kernels."""
    found, calls, names = view.found, view.trace.calls, view.trace.activity
    kernels = (
        index
        for index in found.inside
        if names.names.meanings[names.name[index]] in (ActivityKind.COMPUTE, ActivityKind.COMM)
    )
    known = (found.launch_of[index] for index in kernels)
    return launching_threads(view.trace.host, (calls.thread[call] for call in known if call >= 0))


def _callee(view: TraceView, gaps: Spans, python: dict[int, Spans], own: set[int], total: float, us: float) -> str:
    """The callee of a program function while the GPU is idle: the DataLoader, else the innermost library call."""
    texts = view.trace.host.names.texts
    spans = {name: of for name, of in python.items() if name not in own}
    if _covers_most(gaps, {name: of for name, of in spans.items() if _NEXT.fullmatch(texts[name])}):
        return _LOADER
    leaf = _covers_most(gaps, spans)
    if not leaf or leaf[0] >= total:
        return ""
    return f", calling `{function_name(texts[leaf[1]])}`{part_of(leaf[2], us)}"


def _covers_most(gaps: Spans, known: dict[int, Spans]) -> tuple[float, int, float] | None:
    """Of the names that cover most of the gaps the one with least total time: total, name, time within the gaps."""
    covered = ((spans.total, name, gaps.shared(spans).total) for name, spans in known.items())
    return min((one for one in covered if one[2] >= _MOST_OF * gaps.total > 0), default=None)


def _spans(kept: OutermostSpans, threads: set[int]) -> dict[int, Spans]:
    """The union of spans by name, of these threads."""
    found: dict[int, list[tuple[float, float]]] = {}
    for start, took, name, thread in zip(kept.start, kept.took, kept.name, kept.thread, strict=True):
        if thread in threads:
            found.setdefault(name, []).append((start, start + took))
    return {name: Spans(sorted(spans)) for name, spans in found.items()}
