"""What a process does now: a word for it, and its GPUs, CPU and storage on fixed axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from textual.strip import Strip

from gputop import finding_text, step_report, units
from gputop.labels import amount
from gputop.model import Identity
from gputop.optional_sums import added, mean
from gputop.ui.advice.states import about, word
from gputop.ui.details.process_view import ProcessView
from gputop.ui.gpus.state import State
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import AxisMark, Chart, Line, Run, beside, most, room

BUSY = 50  # percent of one core: more is to be said of it than that its main thread sleeps
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "blocked",
    "T": "stopped",
    "t": "held by a debugger",
    "Z": "zombie",
    "I": "idle",
}


def doing(view: ProcessView) -> State:
    """Ended, stopped, what the rules say, computing, sleeping: the first that holds."""
    process = view.process
    if view.gone:
        return State(view.gone, "", "bright")
    if process.unseen:
        return State({"foreign": "in another namespace", "hidden": "hidden"}.get(process.unseen, "exited"), "", "dim")
    if process.state in ("T", "t"):
        return State(STATES[process.state], "", "warn", "warn")
    if process.state == "Z":
        return State("zombie: exited, not reaped by its parent", "", "warn", "warn")
    return _judged(view) or _working(view)


def _judged(view: ProcessView) -> State | None:
    """The headline of the worst finding on it, its job or its GPUs, where something should be done about it."""
    found = about(view.process, view.findings)
    return None if found is None else replace(word(found), word=finding_text.headline(found))


def _working(view: ProcessView) -> State:
    process = view.process
    busy = mean(share.busy_percent for share in process.gpus)
    if busy is not None and busy >= 1:
        return State(f"GPU {view.indexes} busy {busy:.0f} %", "", "busy")
    if process.state == "R":
        return State("running", "", "text")
    if process.state == "D":
        return State(f"blocked in {process.waiting_in}" if process.waiting_in else "blocked", "", "text")
    if process.cpu_percent is not None and process.cpu_percent >= BUSY:  # its main thread sleeps, others work
        return State(f"uses {process.cpu_percent:.0f} % of one core", "", "text")
    if process.state is None:
        return State("", "", "dim")
    word = STATES.get(process.state, process.state)
    return State(f"{word} in {process.waiting_in}" if process.waiting_in else word, "", "dim")


_LEAST_IO = 1e6  # bytes a second: the top of the chart of a process that hardly reads

Values = list[float | None]


def now(view: ProcessView, width: int, tall: int) -> list[Strip]:
    """A rule with the state's word, a line of labels, `tall` lines of charts; without them the rule alone."""
    look, state = view.look, doing(view)
    sign = f"{getattr(look.glyphs, state.sign)} " if state.sign else ""
    word = drawing.cut(f"{sign}{state.word}", max(0, width - 16), look.glyphs.more)
    right = [Run(word, state.token, state.sign != "" or state.token == "bright")] if word else ()
    strips = [drawing.rule("now", width, look, right=right)]
    if tall <= 0:
        return strips
    seconds = room(width, 2 + bool(view.process.gpus) + (view.process.step_s is not None))
    charts = [*_gpu(view, seconds), *_step(view, seconds), _cpu(view, seconds), _io(view, seconds)]
    return [*strips, *beside(charts, width, tall, look), *_steps(view, width)]


def _steps(view: ProcessView, width: int) -> list[Strip]:
    """A line with what was slow and what the program noted, where there is any."""
    process, now_s = view.process, view.frame.wall_s
    said = "; ".join(filter(None, (step_report.noted(process, now_s), step_report.slow(process, now_s))))
    if not said:
        return []
    look = view.look
    return [Line(look).add(f" steps  {drawing.cut(said, max(0, width - 9), look.glyphs.more)}", "dim").strip(width)]


def _gpu(view: ProcessView, seconds: int) -> list[Chart]:
    shares, past = view.process.gpus, view.past
    if not shares:
        return []
    values = list(past.values(view.process.identity, "busy_percent", max(1, seconds)))
    whole = mean(gpu.busy_percent for share in shares if (gpu := view.frame.by_uuid.get(share.uuid)))
    own = mean(share.busy_percent for share in shares)
    many = "s" * (len(shares) > 1)
    title = f"gpu{many} {drawing.cut(view.indexes, 9, view.look.glyphs.more)}"
    if own is None and most(values) is None:  # then it is all that is known, but may be the work of others
        values = _mean(past.values(share.uuid, "busy_percent", max(1, seconds)) for share in shares)
        value, texts = whole, (f"the whole GPU{many}, this pid unknown", f"the whole GPU{many}", f"whole GPU{many}")
    else:
        both = f"GPU{many} {_percent(whole)}"
        value, texts = own, (f"this pid, the whole {both}", f"this pid, whole {both}", f"of all {_percent(whole)}")
    said = _first(seconds + 1 - len(f"{title}  {_percent(value)}  "), *texts)
    return [Chart(title, said, values, 100, "busy area", _percent(value))]


def _step(view: ProcessView, seconds: int) -> list[Chart]:
    """What its step meter says, if it has one."""
    process = view.process
    if process.step_s is None:
        return []
    values = list(view.past.values(process.identity, "step_s", max(1, seconds)))
    top, took = drawing.ceiling(most([*values, process.step_s]), 1e-3), units.took_text(process.step_s)
    waits = "" if process.data_wait_percent is None else f"{_percent(process.data_wait_percent)} data wait"
    slowest = f"{waits}, slowest {units.took_text(process.step_longest_s)}".lstrip(", ")
    said = _first(seconds - len(f"step  {took}  "), slowest, waits, waits.replace("data wait", "wait"))
    return [Chart("step", said, values, top, "busy area", took, marks=tuple(_marks(view)))]


def _marks(view: ProcessView) -> Iterator[AxisMark]:
    """The slow steps, and the moments that the program marked."""
    now_s, glyphs = view.frame.wall_s, view.look.glyphs
    for slow in view.process.slow_steps:
        yield AxisMark(now_s - slow.wall_s, (glyphs.down,), "warn")
    for one in view.process.noted:
        if one.moment:
            said, value = step_report.number(one), "" if one.value is None else f"{one.value:.6g}"
            yield AxisMark(
                now_s - one.wall_s, (f"{glyphs.column}{said}", f"{glyphs.column}{value}", glyphs.column), "bright"
            )


def _cpu(view: ProcessView, seconds: int) -> Chart:
    process = view.process
    values = list(view.past.values(process.identity, "cpu_percent", max(1, seconds)))
    top = drawing.ceiling(most([*values, process.cpu_percent]), 100)
    threads = "" if process.threads is None else f", {amount(process.threads, 'thread')}"
    axis = f", axis {top:.0f} %" if top > 100 else ""
    used = _percent(process.cpu_percent)
    said = _first(seconds - len(f"cpu  {used}  "), f"of one core{threads}{axis}", f"{threads[2:]}{axis}", threads[2:])
    return Chart("cpu", said, values, top, "busy area", used)


def _io(view: ProcessView, seconds: int) -> Chart:
    process, loaders = view.process, view.loaders
    values = _sum(_moved(view, one.identity, max(1, seconds)) for one in (process, *loaders))
    top = drawing.ceiling(most(values), _LEAST_IO)
    read = _rate(added([one.read_bytes_per_s for one in (process, *loaders)]))
    here = _rate(process.read_bytes_per_s)
    wrote = f", write {_rate(process.write_bytes_per_s)}" if (process.write_bytes_per_s or 0) >= 1024 else ""
    texts = [f"read{wrote}", "read"]
    if loaders:
        by = f"read by {amount(len(loaders), 'worker')}"
        texts = [f"{by}, {here} of it here{wrote}", f"{by}, {here} here", by, "read"]
    return Chart("io", _first(seconds - len(f"io  {read}  "), *texts), values, top, "busy area", read)


def _first(room: int, *texts: str) -> str:
    """The first that fits beside a title, or nothing: a chart is clear without it, half a word is not."""
    return next((text for text in texts if len(text) <= room), "")


def _moved(view: ProcessView, identity: Identity, seconds: int) -> Values:
    read = view.past.values(identity, "read_bytes_per_s", seconds)
    wrote = view.past.values(identity, "write_bytes_per_s", seconds)
    return _sum((read, wrote))


def _rate(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{units.rate(value)}/s"


def _percent(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0f}%"


def _sum(rows: Iterable[Sequence[float | None]]) -> Values:
    """Place by place, of what is known."""
    return [added(values) for values in zip(*rows, strict=True)]


def _mean(rows: Iterable[Sequence[float | None]]) -> Values:
    return [mean(values) for values in zip(*rows, strict=True)]
