"""The report on a GPU CSV: use over time, dips and their period, power, clocks, growing memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from gputop import units
from gputop.paste.gpu_csv import GpuCsv, GpuSample, GpuSeries, looks_like, parse
from gputop.paste.pasted import LimitTable, Pasted, TextKind, by_severity, median
from gputop.phrases import held_against, percent
from gputop.report import Do, Point, ReportTable
from gputop.severity import by_lost_share

_LIMIT = LimitTable("paste-gpu-csv")
_STARVED = LimitTable("starved")  # its duty: utilization of a GPU that is kept busy

_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_POWER_CAP = 0x04


class Use:
    """Use of one GPU between its first and last work, without idle samples before and after."""

    def __init__(self, series: GpuSeries) -> None:
        self.gpu = series.gpu if series.gpu.startswith("GPU") else f"GPU {series.gpu}" if series.gpu else "The GPU"
        self.all = series.samples
        busy = [
            at
            for at, one in enumerate(series.samples)
            if one.busy is not None and one.busy >= _LIMIT["at_work_percent"]
        ]
        self.worked = bool(busy)
        self.samples = series.samples[busy[0] : busy[-1] + 1] if busy else series.samples
        self.after = series.samples[busy[-1] + 1 :] if busy else ()
        self.before = busy[0] if busy else 0  # number of samples before its first work

    def values(self, name: str) -> list[float]:
        """Known values of a column in this interval."""
        return [value for one in self.samples if (value := getattr(one, name)) is not None]

    def mean(self, name: str) -> float | None:
        """Its mean; None if unknown."""
        found = self.values(name)
        return sum(found) / len(found) if found else None

    @cached_property
    def interval_s(self) -> float | None:
        """Typical seconds between two samples."""
        times = self.values("at_s")
        return median(later - earlier for earlier, later in pairwise(times) if later > earlier)

    @cached_property
    def dips(self) -> list[int]:
        """Indices of samples with less than half of the usual utilization."""
        busy = [one.busy if one.busy is not None else 100.0 for one in self.samples]
        usual = median(busy) or 0.0
        low = [value < _LIMIT["dip"] * usual for value in busy]
        return [at for at, (before, now) in enumerate(pairwise(low), 1) if now and not before]

    @cached_property
    def between(self) -> float:
        """Mean utilization outside of dips."""
        busy = self.values("busy")
        usual = median(busy) or 0.0
        high = [value for value in busy if value >= _LIMIT["dip"] * usual]
        return sum(high) / len(high) if high else 0.0

    @cached_property
    def period_s(self) -> float | None:
        """Seconds between dips, if they are evenly spaced."""
        gaps = [later - earlier for earlier, later in pairwise(self.dips)]
        usual = median(gaps)
        if len(self.dips) < _LIMIT["dips"] or not usual or usual < 2 or self.interval_s is None:
            return None
        even = all(abs(gap - usual) <= max(1.0, _LIMIT["even"] * usual) for gap in gaps)
        return usual * self.interval_s if even else None

    @cached_property
    def growth_mib(self) -> float | None:
        """Memory growth from the second to the last quarter, if it grew in each; else None."""
        used = self.values("used_mib")
        if len(used) < 4 * _LIMIT["samples"]:
            return None
        each = len(used) // 4
        _, *later = [median(used[part * each : (part + 1) * each]) or 0.0 for part in range(4)]
        total = next((one.total_mib for one in self.samples if one.total_mib), None)
        grown = later[-1] - later[0]
        rises = all(after > before for before, after in pairwise(later))
        return grown if rises and grown >= _LIMIT["grown"] * (total or later[-1]) else None


def summarize(log: GpuCsv) -> Pasted:
    """The samples as text, items and a table."""
    uses = [Use(series) for series in log.series]
    if not uses:
        return Pasted(
            kind="gpu-csv",
            about="GPU samples",
            problems=("It has a header, but no readable samples.",),
            numbers={"gpus": []},
        )
    points = [point for use in uses for point in _points(use)]
    count = sum(len(use.all) for use in uses)
    return Pasted(
        kind="gpu-csv",
        about=f"GPU samples: {len(uses)} GPU{'s' if len(uses) > 1 else ''}, {count} samples",
        problems=tuple(_problems(log)),
        words=tuple(_words(log, uses)),
        points=by_severity(points),
        tables=(
            ReportTable(
                "GPUs",
                ("name", "busy", "lowest", "below 30", "SM MHz", "W", "°C max", "memory max"),
                tuple(map(_row, uses)),
            ),
        ),
        numbers={"gpus": [_numbers(use) for use in uses]},
    )


def _problems(log: GpuCsv) -> Iterator[str]:
    if log.cut:
        yield "The last line is truncated and left out."
    if log.strange:
        lines, are = ("line", "is") if log.strange == 1 else ("lines", "are")
        yield f"{log.strange} {lines} could not be read and {are} left out."
    if log.mixed:
        yield "It has samples of several GPUs but no column that identifies them: query index too."


def _words(log: GpuCsv, uses: Sequence[Use]) -> Iterator[str]:
    if log.guessed:
        yield "It has no header: columns are assumed to be those of gpu_snapshot(), index to power.draw."
    if "busy" not in log.columns:
        yield "GPU utilization is not in it: query utilization.gpu."
    rate = next((use.interval_s for use in uses if use.interval_s), None)
    if rate is not None and rate >= 1:
        yield f"It has a sample every {rate:.3g} s: steps are shorter, so what repeats in each step is not seen."
    for use in uses:
        parts = [(use.before, "before its first work"), (len(use.after), "after its last work")]
        if sum(count for count, _ in parts) >= _LIMIT["low_share"] * len(use.all):
            idle = " and ".join(f"{count} samples {when}" for count, when in parts if count)
            yield f"Idle time at the ends is not counted: {use.gpu}, {idle}."
    missing = [
        name
        for column, name in (("sm_mhz", "clocks.sm"), ("reasons", "clocks_event_reasons.active"))
        if column not in log.columns and not (column == "reasons" and "heat" in log.columns)
    ]
    if missing:
        yield f"Not in it: {', '.join(missing)}, so slowed clocks can only be guessed."
    yield "Utilization says that some kernel ran, not how well. The cause of a wait is in gputop diagnose or a trace."


def _points(use: Use) -> Iterator[Point]:
    ended = tuple(_ended(use))
    yield from (point for point in _use_points(use) if not ended or point.severity != "fine")
    yield from ended
    yield from _device(use)
    yield from _memory(use)


def _ended(use: Use) -> Iterator[Point]:
    """Idle samples after the last work with memory still held: a hang, or other work."""
    held = [one.used_mib for one in use.after if one.used_mib is not None]
    usual = median(use.values("used_mib")) or 0.0
    if (
        len(use.after) < _LIMIT["samples"]
        or not held
        or min(held) < _LIMIT["held"] * usual
        or min(held) < _LIMIT["held_mib"]
    ):
        return
    rate = use.interval_s
    lasts = f"the last {units.ago_text(round(len(use.after) * rate))}" if rate else f"the last {len(use.after)} samples"
    yield Point(
        severity="warn",
        text=f"{use.gpu} was idle in {lasts} while its memory stayed allocated.",
        facts=(f"{min(held):.0f} MiB allocated", f"GPU busy below {_LIMIT['at_work_percent']:.0f} % to the end"),
        steps=(Do("Check what the process does: it may hang, or run on the CPU.", "gputop stack PID"),),
    )


def _use_points(use: Use) -> Iterator[Point]:
    busy = use.values("busy")
    if len(busy) < _LIMIT["samples"]:
        return
    mean = sum(busy) / len(busy)
    if not use.worked:
        yield Point(severity="info", text=f"{use.gpu} had no work in this time.", facts=(f"GPU busy {mean:.0f} %",))
        return
    low = sum(value < _LIMIT["low_percent"] for value in busy) / len(busy)
    facts = (
        f"GPU busy, mean {mean:.0f} % ({held_against(f'{_healthy():.0f} %', 'healthy_from')})",
        f"below {_LIMIT['low_percent']:.0f} % in {percent(low)} of the samples",
    )
    if mean >= _LIMIT["steady_percent"] and low < _LIMIT["low_share"]:
        yield Point(severity="fine", text=f"{use.gpu}: steady and busy, GPU-bound.", facts=facts)
    elif mean < _healthy():
        yield _starved(use, mean, facts)
    elif use.period_s is not None:
        yield _periodic(use, "info", facts)


def _starved(use: Use, mean: float, facts: tuple[str, ...]) -> Point:
    severity = by_lost_share(1 - mean / 100, "warn")
    if use.period_s is not None and use.between >= _healthy():
        return _periodic(use, severity, facts)
    busy, swings = use.values("busy"), len(use.dips) >= _LIMIT["dips"]
    high = sum(value >= _healthy() for value in busy) / len(busy)
    how = "utilization rises and falls" if swings or high >= _LIMIT["low_share"] else "utilization is low throughout"
    return Point(
        severity=severity,
        text=f"{use.gpu}: {how}, the GPU waits for input, the CPU or other ranks.",
        facts=(*facts, *((f"{len(use.dips)} dips{_every(use)}",) if swings else ())),
        steps=(
            Do("Find the cause: DataLoader, storage, launches or communication.", "gputop diagnose --for 60s"),
            "Check the DataLoader first: num_workers, pin_memory, persistent_workers.",
        ),
    )


def _every(use: Use) -> str:
    return "" if use.period_s is None else f", one every {units.ago_text(max(1, round(use.period_s)))}"


def _periodic(use: Use, severity: Any, facts: tuple[str, ...]) -> Point:
    period = use.period_s or 0.0
    return Point(
        severity=severity,
        text=f"{use.gpu}: utilization dips every {units.ago_text(max(1, round(period)))}.",
        facts=(*facts, f"{len(use.dips)} dips at even distances"),
        steps=(
            "Compare the period with checkpoints, evaluation, logging and epochs.",
            Do("Diagnose it while it happens.", "gputop diagnose --for 60s"),
        ),
    )


def _device(use: Use) -> Iterator[Point]:
    work = [one for one in use.samples if one.busy is None or one.busy >= _LIMIT["at_work_percent"]]
    for bit, name in _REASONS.items():
        share = sum(bool(one.reasons & bit) for one in work) / len(work) if work else 0.0
        if share >= _LIMIT["reason_share"]:
            yield Point(
                severity="crit" if bit != 0x20 else "warn",
                text=f"{use.gpu}: {name}.",
                facts=(f"active in {percent(share)} of the samples under load",),
                steps=("Improve airflow: fans, dust filters, blanking panels.",)
                if "thermal" in name
                else ("Check power and cooling.",),
            )
    heat = use.mean("heat_percent")
    if heat is not None and heat >= _LIMIT["slowdown_percent"]:
        yield Point(
            severity="crit",
            text=f"{use.gpu}: thermal slowdown.",
            facts=(f"active {heat:.0f} % of the time",),
            steps=("Improve airflow: fans, dust filters, blanking panels.",),
        )
    hottest = max(use.values("celsius"), default=0.0)
    if hottest > _LIMIT["hot_celsius"]:
        yield Point(
            severity="info",
            text=f"{use.gpu}: up to {hottest:.0f} °C, where many GPUs slow down.",
            facts=(f"{hottest:.0f} °C (many slow down above {_LIMIT['hot_celsius']:.0f} °C)",),
            steps=(Do("See its slowdown temperature.", "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"),),
        )
    yield from _clocks(use, work)


def _clocks(use: Use, work: Sequence[GpuSample]) -> Iterator[Point]:
    ratios = [one.sm_mhz / one.sm_most for one in work if one.sm_mhz and one.sm_most and (one.busy or 0) >= _healthy()]
    capped = [one for one in work if _capped(one)]
    share = len(capped) / len(work) if work else 0.0
    if share >= _LIMIT["capped_share"]:
        yield Point(
            severity="info", text=f"{use.gpu}: power-capped.", facts=(f"in {percent(share)} of the samples under load",)
        )
    elif len(ratios) >= _LIMIT["samples"] and (mean := sum(ratios) / len(ratios)) < _LIMIT["clock"]:
        yield Point(
            severity="warn",
            text=f"{use.gpu}: SM clock is {percent(mean)} of its maximum under load.",
            steps=(Do("See what limits the clock.", "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER"),),
        )


def _capped(one: GpuSample) -> bool:
    at_limit = one.watts and one.limit_watts and one.watts >= _LIMIT["at_limit"] * one.limit_watts
    return bool(one.reasons & _POWER_CAP or (one.capped_percent or 0.0) >= _LIMIT["capped_percent"] or at_limit)


def _memory(use: Use) -> Iterator[Point]:
    used = use.values("used_mib")
    total = next((one.total_mib for one in use.samples if one.total_mib), None)
    if use.growth_mib is not None:
        end = used[-1]
        times = use.values("at_s")
        left = ""
        if total and len(times) > 1 and times[-1] > times[0]:
            per_s = use.growth_mib / (0.5 * (times[-1] - times[0]))  # between the centres of two quarters
            left = f", full in {units.roughly(max(0.0, total - end) / per_s)} at this rate"
        yield Point(
            severity="warn",
            text=f"{use.gpu}: memory grows steadily.",
            facts=(f"{_mib(use.growth_mib)} more, now {_mib(end)}{left}",),
            steps=(
                "Add loss.detach() to sums, not loss: losses.append(loss.item()).",
                Do(
                    "See which line allocates it: dump a memory snapshot, then gputop explain snapshot.pickle.",
                    "torch.cuda.memory._record_memory_history(max_entries=100000)",
                ),
            ),
        )
    elif used and total and max(used) >= _LIMIT["nearly_full"] * total:
        yield Point(
            severity="info",
            text=f"{use.gpu}: memory is nearly full.",
            facts=(f"up to {_mib(max(used))} of {_mib(total)}",),
        )


def _mib(value: float) -> str:
    return units.size(value * 2**20)


def _row(use: Use) -> tuple[str, ...]:
    busy, used = use.values("busy"), use.values("used_mib")
    low = f"{sum(value < _LIMIT['low_percent'] for value in busy) / len(busy):.0%}" if busy else "-"
    return (
        use.gpu,
        _percent(use.mean("busy")),
        _percent(min(busy, default=None)),
        low,
        _whole(use.mean("sm_mhz")),
        _whole(use.mean("watts")),
        _whole(max(use.values("celsius"), default=None)),
        _mib(max(used)) if used else "-",
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _numbers(use: Use) -> dict[str, Any]:
    times, used = use.values("at_s"), use.values("used_mib")
    return {
        "gpu": use.gpu,
        "samples": len(use.all),
        "samples_at_work": len(use.samples) if use.worked else 0,
        "seconds": max(times) - min(times) if times else None,
        "interval_s": use.interval_s,
        "busy_percent": use.mean("busy"),
        "lowest_percent": min(use.values("busy"), default=None),
        "dips": len(use.dips),
        "period_s": use.period_s,
        "power_w": use.mean("watts"),
        "temperature_max_c": max(use.values("celsius"), default=None),
        "sm_mhz": use.mean("sm_mhz"),
        "memory_used_max_bytes": max(used) * 2**20 if used else None,
        "memory_growth_bytes": use.growth_mib * 2**20 if use.growth_mib is not None else None,
    }


def read(text: str) -> Pasted:
    """The report on such a CSV."""
    return summarize(parse(text))


KIND = TextKind("gpu-csv", "a CSV of nvidia-smi --query-gpu", looks_like, read)


def _healthy() -> float:
    """Utilization of a GPU that is kept busy, in percent."""
    return 100 * _STARVED["duty"]
