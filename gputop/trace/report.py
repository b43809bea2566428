"""The report on a trace: a sentence on where the time goes, the signatures found, then the numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from gputop import units
from gputop.phrases import at_most, held_against, percent
from gputop.report import Page, Point, ReportTable
from gputop.trace.breakdown import LEAST_SHOWN, Breakdown
from gputop.trace.diff import diff
from gputop.trace.operators import operators
from gputop.trace.step_phases import communication_us
from gputop.trace.steps import much_longer
from gputop.trace.verdict import TraceVerdict, TraceView, VerdictNumber, memory_peak, said_of

_UNIT_TEXTS = {"us": "µs"}  # of a number in JSON, in a sentence
_NUMBER, _PART = re.compile(r"\d+(?:\.\d+)?"), re.compile(r" in \d+ % of that time")
_ROWS = 8
_STEPS = 12
_REGIONS = 16
_MOST_GAIN = 0.9  # lost share up to which a gain is named, as of live findings
_SAME = 0.03  # step times that differ by less are equal
_ALIKE = 0.5  # of the largest loss of a rank: least loss of all others for a finding on all ranks
_SUMMED = 0.05  # of the window; smaller parts are not mentioned


def page(view: TraceView) -> Page:
    """The whole report on one trace."""
    shared = {verdict.rule for verdict in common_verdicts(view.ranks)}
    found, said = view.found, tuple(one for one in said_of(view) if not one.all_ranks and one.rule not in shared)
    others = tuple(_other_gpu_verdicts(view, said))
    return Page(
        title=view.trace.name,
        about=about_text(view),
        words=(*_first_notes(view), *(_words(view, (*said, *others), shared) if view.trace.whole else ())),
        points=(*map(point, said), *map(point, others)),
        tables=tuple(table for table in _tables(view, found) if table.rows),
        notes=tuple(view.trace.notes),
    )


def _other_gpu_verdicts(view: TraceView, said: Sequence[TraceVerdict]) -> Iterator[TraceVerdict]:
    """Findings on other GPUs of the trace that do not apply to the reported one."""
    known = {(verdict.rule, verdict.headline) for verdict in said}
    for other in view.gpus if view.trace.whole else ():
        if other.device != view.found.device:
            for verdict in other.verdicts:
                if (verdict.rule, verdict.headline) not in known and not verdict.all_ranks and not verdict.healthy:
                    yield replace(verdict, headline=f"GPU {other.device}: {verdict.headline}")


def _first_notes(view: TraceView) -> Iterator[str]:
    """Repairs and omissions, and what is left out because of them."""
    trace = view.trace
    for problem in trace.problems:
        yield f"{problem[:1].upper()}{problem[1:]}."
    if trace.several:
        yield "No verdicts on several recordings together: explain each one separately."
    elif not trace.whole and not trace.foreign and trace.events and (len(trace.activity) or trace.host.count):
        yield (
            f"{trace.events:,} events were read. Kernels may be missing, so GPU utilization is unknown "
            "and no verdicts are given."
        )


def startup_notes(view: TraceView) -> Iterator[str]:
    """Program startup in the trace, and what is left out because of it."""
    seen = view.found.window
    if view.startup.alone:
        yield (
            "The trace covers program startup only: memory allocation, code loading, compilation. No verdicts are "
            "given; record later steps, as with schedule(wait=1, warmup=2, active=5)."
        )
    elif view.found.of_gpu and view.found.share(view.startup.spans) >= LEAST_SHOWN:
        part = view.found.share(view.startup.spans)
        yield f"GPU idle during program startup {percent(part)} of the time: memory allocation, code loading."
    elif seen.begun:
        first = "The first step is" if seen.begun == 1 else f"The first {seen.begun} steps are"
        yield f"{first} excluded as program startup: memory allocation, code loading, compilation."
    elif seen.profiler_us:
        yield f"The first step, {took(seen.profiler_us)}, is excluded: it contains the profiler's startup."
    elif (usual := much_longer(seen.steps)) is not None:
        first_us = seen.steps[0].end - seen.steps[0].start
        yield f"The first step takes {took(first_us)}, the others {took(usual)} (median); it is included."


def cpu_ahead_notes(view: TraceView) -> Iterator[str]:
    """Notes on CPU steps that end long before the GPU's."""
    seen = view.found.window
    if seen.after_us:
        yield (
            f"The CPU runs ahead: it launches these steps in {took(seen.span_us - seen.after_us)}, the GPU needs "
            f"{took(seen.span_us)}. Shares are of the GPU's time."
        )


def ranks(views: Sequence[TraceView]) -> Page:
    """The ranks of one job side by side."""
    rows = []
    for number, view in enumerate(views):
        found, steps = view.found, view.rows
        data = sum(row.data for row in steps) / len(steps) if steps else None
        rows.append(
            (
                f"rank {number if view.trace.rank is None else view.trace.rank}, {view.trace.name}",
                took(found.window.span_us / view.steps),
                share(found.share(found.busy)) if found.of_gpu and view.trace.whole else units.UNKNOWN,
                share(_collectives(view)) if view.trace.whole else units.UNKNOWN,
                share(data) if view.trace.whole else units.UNKNOWN,
            )
        )
    parts = [view.trace.name for view in views if not view.trace.whole]
    words = (f"Partly read, excluded from the comparison: {', '.join(parts)}.",) if parts else ()
    head = ("rank", "step", "GPU busy", "in collectives", "waits for data")
    of_all = [*(one for one in views[0].verdicts if one.all_ranks), *common_verdicts(views)]
    return Page(
        title=f"{len(views)} ranks",
        words=words,
        points=tuple(point(verdict) for verdict in of_all),
        tables=(ReportTable("Ranks", head, tuple(rows)),),
    )


def _collectives(view: TraceView) -> float:
    """Share of a rank's time in collectives: of its GPU, or without one of its otherwise idle CPU."""
    found = view.found
    if found.of_gpu:
        return found.share(found.comm)
    return found.share(communication_us(view.phases))


def common_verdicts(views: Sequence[TraceView]) -> tuple[TraceVerdict, ...]:
    """Findings on every rank of a job, once, for the rank with the largest loss; none that a trace shows by itself."""
    if len(views) < 2:
        return ()
    found = []
    for verdict in views[0].verdicts:
        same = [one for view in views for one in view.verdicts if one.rule == verdict.rule]
        if verdict.all_ranks or verdict.healthy or len(same) < len(views):
            continue
        if len({_NUMBER.sub("#", _PART.sub("", one.headline)) for one in same}) > 1:
            continue  # each has a separate cause
        worst = max(same, key=lambda one: one.lost_share or 0.0)
        least, most = (pick(one.lost_share or 0.0 for one in same) for pick in (min, max))
        if least < _ALIKE * most:
            continue  # it is a problem of some
        spread = f" ({percent(least)} to {percent(most)})" if most - least >= _SAME else ""
        found.append(replace(worst, headline=f"all {len(views)} ranks{spread}: {worst.headline}"))
    return tuple(found)


def _not_compared(before: TraceView, after: TraceView) -> Page:
    why = "The traces are not compared: missing parts would look like changes."
    words = (*_first_notes(before), *_first_notes(after), why)
    return Page(title=f"{before.trace.name} → {after.trace.name}", words=words)


def compared(before: TraceView, after: TraceView) -> Page:
    """The differences between two traces, per step; empty if either was read in part."""
    if not (before.trace.whole and after.trace.whole):
        return _not_compared(before, after)
    found = diff(before, after)
    step, words = found.step, []
    if step.ratio is not None and abs(step.ratio - 1) >= _SAME:
        faster = step.ratio < 1
        factor = 1 / step.ratio if faster else step.ratio
        change = f"{took(step.before)} before, {took(step.after)} after"
        words.append(f"Steps are {factor:.2f}× {'faster' if faster else 'slower'}: {change}.")
    else:
        words.append(f"Step time is unchanged: {took(step.after)}.")
    words += [f"Resolved: {', '.join(found.removed_rules)}."] * bool(found.removed_rules)
    words += [f"New: {', '.join(found.added_rules)}."] * bool(found.added_rules)
    words += [f"Unchanged: {', '.join(found.kept_rules)}."] * bool(found.kept_rules)
    if found.kernels:
        most = found.kernels[0]
        change = f"{took(most.before)} before, {took(most.after)} after"
        words.append(f"The kernel with the largest change is {short(most.name)}: {change}.")
    tables = [
        ReportTable(
            title,
            ("name", "before", "after"),
            tuple((short(e.name), _value(e.before, e.unit), _value(e.after, e.unit)) for e in rows),
        )
        for title, rows in (
            ("Numbers", found.numbers),
            ("Step phases on the CPU", found.phases),
            ("Kernels, per step", found.kernels[:_ROWS]),
            ("CPU operators, per step", found.operators[:_ROWS]),
        )
    ]
    return Page(
        title=f"{before.trace.name} → {after.trace.name}",
        about=f"{about_text(before)} → {about_text(after)}",
        words=tuple(words),
        tables=tuple(table for table in tables if table.rows),
        notes=(*before.trace.problems, *after.trace.problems, *before.trace.notes, *after.trace.notes),
    )


def compare_ranks(pairs: Sequence[tuple[TraceView, TraceView]]) -> Page:
    """The ranks of a job before and after, side by side."""
    rows, steps = [], list[tuple[float, float]]()
    for before, after in pairs:
        times = [median(row.took_us for row in view.rows) if view.rows else None for view in (before, after)]
        busy = [
            view.found.share(view.found.busy) if view.found.of_gpu and view.trace.whole else None
            for view in (before, after)
        ]
        if times[0] and times[1] and before.trace.whole and after.trace.whole:
            steps.append((times[0], times[1]))
        known = after.trace.rank if before.trace.rank is None else before.trace.rank
        rank = before.trace.name if known is None else f"rank {known}"
        rows.append((rank, took(times[0]), took(times[1]), share(busy[0]), share(busy[1])))
    words: tuple[str, ...] = ()
    if steps:
        old, new = (median(each[place] for each in steps) for place in (0, 1))
        words = (f"Step time: {took(old)} before, {took(new)} after (median of {len(steps)} ranks).",)
    head = ("rank", "step before", "after", "GPU busy before", "after")
    return Page(title=f"{len(pairs)} ranks compared", words=words, tables=(ReportTable("Ranks", head, tuple(rows)),))


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return units.UNKNOWN
    if unit == "bytes":
        return f"{units.size(value)}B"
    return {"us": took, "share": share}.get(unit, units.count)(value)


def about_text(view: TraceView) -> str:
    """What was traced: GPU, rank, steps, duration."""
    if not view.trace.whole:
        return "partly read" if view.trace.host.count or len(view.trace.activity) else ""
    trace, seen = view.trace, view.found.window
    device = next((entry.name for entry in trace.devices if entry.index == view.found.device), "")
    none = "accelerator not read" if trace.elsewhere else "no GPU traced"
    parts = [device or ("GPU" if view.found.of_gpu else none)]
    if view.gpus:
        parts.append(f"{len(view.gpus)} GPUs, details of GPU {view.found.device}")
    if trace.rank is not None:
        parts.append(f"rank {trace.rank}" + (f" of {trace.ranks}" if trace.ranks else ""))
    steps = len(seen.steps)
    parts.append(f"{steps} step{'s' * (steps != 1)} by {seen.named}" if steps else "no steps marked")
    parts.append(took(seen.span_us))
    return ", ".join(parts)


def took(us: float | None) -> str:
    """A time: 820 µs, 12.4 ms, 3.1 s."""
    if us is None:
        return units.UNKNOWN
    for limit, divisor, unit in ((999.5, 1, "µs"), (999.5e3, 1e3, "ms")):
        if us < limit:
            return f"{us / divisor:.3g} {unit}"
    return f"{us / 1e6:.3g} s" if us < 1e9 else f"{us / 1e6:.0f} s"


def share(value: float | None) -> str:
    """A share in percent."""
    return units.UNKNOWN if value is None else percent(value, 1)


def point(verdict: TraceVerdict) -> Point:
    """A finding as an item of the report."""
    facts = [fact(number) for number in verdict.numbers]
    if verdict.lost_share and verdict.lost_share >= 0.01:
        facts.append(f"{percent(verdict.lost_share)} of the time lost{_gain(verdict.lost_share)}")
    return Point(
        severity="fine" if verdict.healthy else verdict.severity,
        text=verdict.headline,
        facts=tuple(facts),
        steps=verdict.steps,
        source=verdict.rule,
    )


def _gain(lost_share: float) -> str:
    return f", {at_most(lost_share)} if fixed" if lost_share <= _MOST_GAIN else ""


def fact(number: VerdictNumber) -> str:
    """A number and what it is held against: GPU idle 68 % of the time (healthy ≤ 30 %)."""
    unit = f" {_UNIT_TEXTS.get(number.unit, number.unit)}".rstrip()
    limit = "" if number.limit is None else f" ({held_against(f'{_plain(number.limit)}{unit}', number.sense)})"
    return f"{number.text} {_plain(number.value)}{unit}{f' of {number.of}' if number.of else ''}{limit}"


def _plain(value: float) -> str:
    """Three digits without an exponent: 0.25, 12.3, 50000."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def _words(view: TraceView, said: tuple[TraceVerdict, ...], shared: set[str]) -> Iterator[str]:
    found = view.found
    if view.trace.elsewhere:
        return
    host = view.trace.host
    if not (found.of_gpu or len(host.outer) or len(host.python_spans)):
        yield "Only step marks were recorded in this window: no verdicts are given."
        return
    if not found.of_gpu:
        yield "No GPU was traced: all times are CPU times. Record with ProfilerActivity.CUDA to include the GPU."
    else:
        causes = (
            ("idle, next kernel not launched", found.idle.host_us),
            ("idle, cause unknown: its launches are not in the trace", found.idle.unknown_us),
            ("idle, next kernel launched but not started", found.idle.other_us),
            ("idle between two kernels", found.idle.kernel_us),
        )
        yield f"GPU busy {percent(found.share(found.busy))} of the time."
        for text, us in sorted(causes, key=lambda cause: -cause[1]):
            if found.share(us) >= _SUMMED:
                yield f"{percent(found.share(us))} of the time {text}."
    also = [verdict for verdict in view.verdicts if verdict.rule in shared and verdict.severity != "info"]
    for verdict in also:
        yield f"In all {len(view.ranks)} ranks, this one included: {verdict.headline}."
    yield from startup_notes(view)
    yield from cpu_ahead_notes(view)
    if view.trace.missing or view.startup.alone:
        return
    idles = view.found.of_gpu and view.found.share(view.startup.spans) >= LEAST_SHOWN
    if not idles and not also and not any(verdict.severity != "info" or verdict.healthy for verdict in said):
        yield f"No known bottleneck found{' in this rank alone' if len(view.ranks) > 1 else ''}."


def _tables(view: TraceView, found: Breakdown) -> Iterator[ReportTable]:
    if not view.trace.whole:
        yield from _operators(view)
        return
    if found.of_gpu:
        yield _each_gpu(view)
        yield ReportTable("GPU time", ("part", "of the time", "time"), tuple(_parts(found)))
        yield ReportTable("Kernel launches", ("number", "value"), tuple(_launching(view)))
    yield _phases(view)
    yield _regions(view)
    yield _steps(view)
    longest, total = found.kernels[:_ROWS], sum(entry.took_us for entry in found.kernels) or 1.0
    yield ReportTable(
        "Kernels and copies",
        ("name", "share", "time", "count"),
        tuple((short(e.name), share(e.took_us / total), took(e.took_us), str(e.count)) for e in longest),
    )
    yield ReportTable(
        "Operators by GPU time",
        ("operator and shapes", "time"),
        tuple((f"{each.name} {each.dims}".rstrip(), took(each.gpu_us)) for each in view.shaped[:_ROWS]),
    )
    yield from _operators(view)
    yield ReportTable("GPU memory", ("number", "value"), tuple(_memory(view)))


def _operators(view: TraceView) -> Iterator[ReportTable]:
    for title, python in (("Operators by self CPU time", False), ("Python functions by self time", True)):
        rows = operators(view.trace, _ROWS, python=python)
        cells = tuple((e.name, took(e.self_us), took(e.total_us), str(e.count)) for e in rows)
        yield ReportTable(title, ("name", "self", "total", "count"), cells)


def _phases(view: TraceView) -> ReportTable:
    part = view.found.share
    rows = (
        (
            each.name,
            took(each.host_us),
            share(part(each.host_us)) if each.host_us is not None else "",
            _gpu(each.gpu_us),
        )
        for each in view.phases
    )
    return _of_gpu(ReportTable("Phases", ("phase", "CPU", "of the time", "GPU"), tuple(rows)), view, 3)


def _each_gpu(view: TraceView) -> ReportTable:
    """The GPUs of one process side by side."""
    rows = []
    for one in view.gpus:
        found = one.found
        parts = (found.busy, found.compute, found.comm)
        waits = share(found.share(found.idle.host_us))
        rows.append((f"GPU {one.device}", *(share(found.share(part)) for part in parts), share(found.exposed), waits))
    head = ("GPU", "busy", "computing", "communicating", "exposed", "idle, not launched")
    return ReportTable("Each GPU", head, tuple(rows))


def _gpu(us: float) -> str:
    return took(us) if us else ""


def _regions(view: TraceView) -> ReportTable:
    """The program's own regions as phases: the longest ones, by first start."""
    part, every = view.found.share, view.regions
    longest = sorted(every, key=lambda one: (-one.host_us, one.name))[:_REGIONS]
    rows = (
        (each.name, took(each.host_us), share(part(each.host_us)), str(each.count), _gpu(each.gpu_us))
        for each in every
        if each in longest
    )
    head = ("region", "CPU", "of the time", "count", "GPU")
    title = f"Regions (record_function{f', longest {_REGIONS} of {len(every)}' if len(every) > _REGIONS else ''})"
    return _of_gpu(ReportTable(title, head, tuple(rows)), view, 4)


def _steps(view: TraceView) -> ReportTable:
    rows = (
        (f"#{row.number}", took(row.took_us), share(row.data), share(row.busy), str(row.kernels))
        for row in view.rows[:_STEPS]
    )
    title = f"Steps{f' (first {_STEPS})' if len(view.rows) > _STEPS else ''}"
    return _of_gpu(ReportTable(title, ("step", "time", "waits for data", "GPU busy", "kernels"), tuple(rows)), view, 3)


def _of_gpu(table: ReportTable, view: TraceView, columns: int) -> ReportTable:
    """Without GPU columns (from this index on) if no GPU was traced."""
    if view.found.of_gpu:
        return table
    return ReportTable(table.title, table.head[:columns], tuple(row[:columns] for row in table.rows))


def short(name: str) -> str:
    """A kernel name without common prefixes, so that the distinctive part fits."""
    for everywhere in ("void ", "at::native::", "(anonymous namespace)::", "at::cuda::"):
        name = name.replace(everywhere, "")
    return name


def _parts(found: Breakdown) -> Iterator[tuple[str, str, str]]:
    parts = (
        ("busy", found.busy.total),
        ("computing", found.compute.total),
        ("communicating", found.comm.total),
        ("communicating without compute (exposed)", found.comm.total - found.comm.shared(found.compute).total),
        ("host-to-device copies", found.to_device.total),
        ("idle, next kernel not launched", found.idle.host_us),
        ("idle, next kernel launched but not started", found.idle.other_us),
        ("idle, launch not in the trace", found.idle.unknown_us),
        ("idle, between two kernels", found.idle.kernel_us),
    )
    for text, us in parts:
        if us:
            yield text, share(found.share(us)), took(us)


def _launching(view: TraceView) -> Iterator[tuple[str, str]]:
    found, delays = view.found, view.found.launching
    yield "kernels", f"{found.kernel_count}"
    if found.per_step:
        yield "kernels per step", f"{found.per_step:.0f}"
    yield "kernel duration, median", took(found.median_us)
    yield "launch delay, median", took(delays.delay_p50_us)
    yield "launch delay, 90th percentile", took(delays.delay_p90_us)
    if delays.depth_p50 is not None:
        yield "queued kernels, median and maximum", f"{delays.depth_p50}, {delays.depth_max}"
    yield "SM efficiency (estimated)", share(found.filled)
    yield "occupancy (estimated)", share(found.occupancy)


def _memory(view: TraceView) -> Iterator[tuple[str, str]]:
    memory = view.trace.memory
    if len(memory):
        allocated, reserved = memory_peak(view)
        at_end = memory.allocated_at(view.found.window.end) if view.found.window.steps else memory.allocated[-1]
        yield "peak allocated", f"{units.size(allocated)}B"
        yield "peak reserved", f"{units.size(reserved)}B"
        yield "allocated at the end", units.UNKNOWN if at_end is None else f"{units.size(at_end)}B"
