"""What it does now: a word for it, and its GPUs, CPU and storage on fixed axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from textual.strip import Strip

from gputop import step_report, units
from gputop.labels import amount
from gputop.model import Identity
from gputop.optional_sums import added, mean
from gputop.ui import draw
from gputop.ui.charts import Chart, Mark, beside, most, room
from gputop.ui.details.doing import doing
from gputop.ui.details.opened import Opened
from gputop.ui.draw import Line, Run

_LEAST_IO = 1e6  # bytes a second: the top of the chart of a process that hardly reads

Values = list[float | None]


def now(opened: Opened, width: int, tall: int) -> list[Strip]:
    """A rule with the state's word, a line of labels, `tall` lines of charts; without them the rule alone."""
    look, state = opened.look, doing(opened)
    sign = f"{getattr(look.glyphs, state.sign)} " if state.sign else ""
    word = draw.cut(f"{sign}{state.word}", max(0, width - 16), look.glyphs.more)
    right = [Run(word, state.token, state.sign != "" or state.token == "bright")] if word else ()
    strips = [draw.rule("now", width, look, right=right)]
    if tall <= 0:
        return strips
    seconds = room(width, 2 + bool(opened.process.gpus) + (opened.process.step_s is not None))
    charts = [*_gpu(opened, seconds), *_step(opened, seconds), _cpu(opened, seconds), _io(opened, seconds)]
    return [*strips, *beside(charts, width, tall, look), *_steps(opened, width)]


def _steps(opened: Opened, width: int) -> list[Strip]:
    """A line with what was slow and what the program noted, where there is any."""
    process, now_s = opened.process, opened.frame.wall_s
    said = "; ".join(filter(None, (step_report.noted(process, now_s), step_report.slow(process, now_s))))
    if not said:
        return []
    look = opened.look
    return [Line(look).add(f" steps  {draw.cut(said, max(0, width - 9), look.glyphs.more)}", "dim").strip(width)]


def _gpu(opened: Opened, seconds: int) -> list[Chart]:
    shares, past = opened.process.gpus, opened.past
    if not shares:
        return []
    values = list(past.values(opened.process.identity, "busy_percent", max(1, seconds)))
    whole = mean(gpu.busy_percent for share in shares if (gpu := opened.frame.by_uuid.get(share.uuid)))
    own = mean(share.busy_percent for share in shares)
    many = "s" * (len(shares) > 1)
    title = f"gpu{many} {draw.cut(opened.indexes, 9, opened.look.glyphs.more)}"
    if own is None and most(values) is None:  # then it is all that is known, but may be the work of others
        values = _mean(past.values(share.uuid, "busy_percent", max(1, seconds)) for share in shares)
        value, texts = whole, (f"the whole GPU{many}, this pid unknown", f"the whole GPU{many}", f"whole GPU{many}")
    else:
        both = f"GPU{many} {_percent(whole)}"
        value, texts = own, (f"this pid, the whole {both}", f"this pid, whole {both}", f"of all {_percent(whole)}")
    said = _first(seconds + 1 - len(f"{title}  {_percent(value)}  "), *texts)
    return [Chart(title, said, values, 100, "busy area", _percent(value))]


def _step(opened: Opened, seconds: int) -> list[Chart]:
    """What its step meter says, if it has one."""
    process = opened.process
    if process.step_s is None:
        return []
    values = list(opened.past.values(process.identity, "step_s", max(1, seconds)))
    top, took = draw.ceiling(most([*values, process.step_s]), 1e-3), units.took(process.step_s)
    waits = "" if process.data_wait_percent is None else f"{_percent(process.data_wait_percent)} waits for data"
    slowest = f"{waits}, slowest {units.took(process.step_longest_s)}".lstrip(", ")
    said = _first(seconds - len(f"step  {took}  "), slowest, waits, waits.removesuffix(" for data"))
    return [Chart("step", said, values, top, "busy area", took, marks=tuple(_marks(opened)))]


def _marks(opened: Opened) -> Iterator[Mark]:
    """The slow steps, and the moments that the program marked."""
    now_s, glyphs = opened.frame.wall_s, opened.look.glyphs
    for slow in opened.process.slow_steps:
        yield Mark(now_s - slow.wall_s, (glyphs.down,), "warn")
    for one in opened.process.noted:
        if one.moment:
            said, value = step_report.number(one), "" if one.value is None else f"{one.value:.6g}"
            yield Mark(
                now_s - one.wall_s, (f"{glyphs.column}{said}", f"{glyphs.column}{value}", glyphs.column), "bright"
            )


def _cpu(opened: Opened, seconds: int) -> Chart:
    process = opened.process
    values = list(opened.past.values(process.identity, "cpu_percent", max(1, seconds)))
    top = draw.ceiling(most([*values, process.cpu_percent]), 100)
    threads = "" if process.threads is None else f", {amount(process.threads, 'thread')}"
    axis = f", axis {top:.0f}%" if top > 100 else ""
    used = _percent(process.cpu_percent)
    said = _first(seconds - len(f"cpu  {used}  "), f"of one core{threads}{axis}", f"{threads[2:]}{axis}", threads[2:])
    return Chart("cpu", said, values, top, "busy area", used)


def _io(opened: Opened, seconds: int) -> Chart:
    process, loaders = opened.process, opened.loaders
    values = _sum(_moved(opened, one.identity, max(1, seconds)) for one in (process, *loaders))
    top = draw.ceiling(most(values), _LEAST_IO)
    read = _rate(added([one.read_bytes_per_s for one in (process, *loaders)]))
    here = _rate(process.read_bytes_per_s)
    wrote = f", write {_rate(process.write_bytes_per_s)}" if (process.write_bytes_per_s or 0) >= 1024 else ""
    texts = [f"read{wrote}", "read"]
    if loaders:
        by = f"read by {amount(len(loaders), 'loader')}"
        texts = [f"{by}, {here} of it here{wrote}", f"{by}, {here} here", by, "read"]
    return Chart("io", _first(seconds - len(f"io  {read}  "), *texts), values, top, "busy area", read)


def _first(room: int, *texts: str) -> str:
    """The first that fits beside a title, or nothing: the charts tell what they are, and half a word tells nothing."""
    return next((text for text in texts if len(text) <= room), "")


def _moved(opened: Opened, identity: Identity, seconds: int) -> Values:
    read = opened.past.values(identity, "read_bytes_per_s", seconds)
    wrote = opened.past.values(identity, "write_bytes_per_s", seconds)
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
