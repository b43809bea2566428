"""Item 4: what known loads look like to the driver: the table that the rules' limits stand on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

from tests.gpu_check.check import Check
from tests.gpu_check.power import share_of_limit
from tests.gpu_check.records import Fact, Figures, Record, Skip, Verdict, measurement, middle, within
from tests.gpu_check.watch import HEAT_NS, POWER_CAP_NS, RX_BYTES, Watched, mean

GPM = {2: "SM", 3: "occup", 5: "tensor", 7: "half", 10: "DRAM", 12: "fp32", 20: "tx", 21: "rx", 174: "ctxsw"}
CAP_BIT = 0x4
MIB = 1 << 20


class Range(NamedTuple):
    """What a figure of a load should be, and which rule or table says so."""

    figure: str
    low: float
    high: float
    source: str


PROXY = "table of proxies without GPM"
BUSY = Range("busy", 90, 100, PROXY)
LOW_POWER = Range("Pn", -0.1, 0.35, PROXY)
LOADS: dict[str, tuple[str, tuple[Range, ...]]] = {
    "bf16": (
        "8192^3 bf16 products",
        (
            BUSY,
            Range("Pn", 0.6, 1.1, "gpu-bound-healthy without GPM"),
            Range("memory", 20, 60, PROXY),
            Range("clock", 0.6, 1.01, PROXY),
            Range("gpm 5", 46, 101, "compute-bound: half of 93 %"),
        ),
    ),
    "fp32": (
        "8192^3 fp32 products, TF32 off",
        (BUSY, Range("gpm 12", 25, 101, "tensor-cores-idle"), Range("gpm 5", 0, 2, "tensor-cores-idle")),
    ),
    "tf32": ("8192^3 fp32 products, TF32 on", (BUSY, Range("gpm 5", 8, 101, "tensor-cores-idle is off"))),
    "fp8": ("8192^3 fp8 products", (BUSY, Range("gpm 5", 32, 101, "gpu-bound-healthy"))),
    "memory": (
        "x.mul_ over 4 GB",
        (
            Range("busy", 70, 100, "mem-bw-bound"),
            Range("memory", 60, 100, PROXY),
            Range("Pn", 0.4, 0.9, "mem-bw-bound without GPM"),
            Range("gpm 10", 48, 101, "mem-bw-bound"),
            Range("gpm 5", 0, 23, "mem-bw-bound"),
        ),
    ),
    "spin": (
        "one thread that spins",
        (BUSY, LOW_POWER, Range("memory", 0, 15, PROXY), Range("gpm 2", 0, 30, "busy-not-effective")),
    ),
    "tiny": (
        "500 small operations a step",
        (
            Range("busy", 15, 85, "overhead-bound"),
            Range("Pn", -0.1, 0.45, "overhead-bound"),
            Range("gpm 2", 0, 35, "overhead-bound"),
        ),
    ),
    **{
        f"starved-{period}": (f"work half of each {period} s", (Range("busy", 40, 60, "the mean is the duty, 50 %"),))
        for period in ("0.1", "0.3", "1", "3")
    },
    "pageable": ("pageable copies to the device", ()),
    "pinned": ("pinned copies to the device", (Range("link", 0.6, 1.0, "h2d-transfer-bound"),)),
}
LINK_GB_S = {1: 4.0, 2: 8.0, 3: 15.75, 4: 31.5, 5: 63.0, 6: 121.0}  # 16 lanes

TITLES = {
    name: name for name in ("busy", "memory", "watts", "Pn", "clock", "link", "cap bit", "cap time", "heat", "stall")
}
TITLES |= {f"gpm {metric}": word for metric, word in GPM.items()}


@measurement("4", "What do known loads look like: busy, memory, power, clock, GPM?")
def signatures(check: Check) -> Iterator[Record]:
    """Each load for a while, and its row of the table."""
    with check.load() as load:
        yield Fact(
            f"{'percent, W; clock and link of their most; tx, rx MiB/s':54}" + "".join(map(_cell, TITLES.values()))
        )
        for name, (title, ranges) in LOADS.items():
            try:
                load.run(name)
            except Skip as why:
                yield Fact(f"{title}: skipped, {why}")
                continue
            load.steps()
            seen = check.watch(name)
            reports = load.steps()
            yield from _row(check, title, seen, ranges)
            if name in ("pageable", "pinned"):
                yield from _copied(title, seen, reports)
            if name == "starved-1":
                yield from _window(seen, reports)
    yield from _shared(check)


def _figures(check: Check, seen: Watched) -> dict[str, float | None]:
    most = check.driver.on(check.gpu, "nvmlDeviceGetMaxClockInfo", 1).value
    clock, watts, rx = mean(seen.clock), mean(seen.watts), seen.gpm_mean(21)
    link = _link_bytes(check)
    return {
        "busy": mean(seen.busy),
        "memory": mean(seen.memory),
        "watts": watts,
        "Pn": share_of_limit(check, watts),
        "clock": clock / most if clock and most else None,
        "link": rx * MIB / link if rx is not None and link else None,
        "cap bit": mean([100.0 * bool(mask & CAP_BIT) for mask in seen.reasons]),
        "cap time": _percent_of_time(seen, POWER_CAP_NS),
        "heat": _percent_of_time(seen, HEAT_NS),
        "stall": mean(seen.stall),
        **{f"gpm {metric}": seen.gpm_mean(metric) for metric in GPM},
    }


def _percent_of_time(seen: Watched, counter: int) -> float | None:
    return seen.grown[counter] / 1e7 if counter in seen.grown else None


def _link_bytes(check: Check) -> float | None:
    generation = check.driver.on(check.gpu, "nvmlDeviceGetCurrPcieLinkGeneration").value
    width = check.driver.on(check.gpu, "nvmlDeviceGetCurrPcieLinkWidth").value
    return LINK_GB_S[generation] * 1e9 * width / 16 if generation in LINK_GB_S and width else None


def _row(check: Check, title: str, seen: Watched, ranges: tuple[Range, ...]) -> Iterator[Record]:
    figures = _figures(check, seen)
    cells = (_cell(_number(figures[name])) for name in TITLES)
    yield Fact(f"{title:54}{''.join(cells)}", {"load": title, "figures": figures})
    yield Figures(f"{title}: busy samples", "%", tuple(seen.busy))
    for one in ranges:
        yield within(f"{title}: {TITLES[one.figure]}", figures[one.figure], one.low, one.high, "", one.source)
    bit, held = figures["cap bit"], figures["cap time"]
    if bit is not None and held is not None and max(bit, held) >= 20:
        text = f"{title}: power cap {held:.3g} % of the time by field 74, its bit set in {bit:.3g} % of looks"
        yield Verdict(abs(bit - held) <= 30 and held <= 105, f"{text}; assumed equal within 30")


def _number(value: float | None) -> str:
    return "·" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(word: str) -> str:
    return f"{word:>9}"


def _copied(title: str, seen: Watched, reports: list[dict[str, Any]]) -> Iterator[Record]:
    """What the program copied against what two counters say arrived: this settles their units."""
    moved = mean([report["bytes_per_s"] for report in reports])
    if not moved:
        raise Skip("the load reported no bytes")
    counted: dict[str, float | None] = {"field 198": mean(seen.pcie.get(RX_BYTES, []))}
    rx = seen.gpm_mean(21)
    counted["GPM 21"] = rx * MIB if rx is not None else None
    for name, value in counted.items():
        ratio = value / moved if value is not None else None
        yield within(f"{title}: {name} over the {moved / 1e9:.2f} GB/s copied", ratio, 0.9, 1.3, "", "bytes, MiB/s")


def window_s(busy: list[float], period_s: float) -> float:
    """The driver's window, from the share of samples that an edge of a square wave falls into: two edges a period."""
    return period_s * sum(1 for value in busy if 5 < value < 95) / len(busy) / 2


def _window(seen: Watched, reports: list[dict[str, Any]]) -> Iterator[Record]:
    took = [took_s for report in reports for took_s in report["took_s"]]
    if len(seen.busy) < 10 or not took:
        yield Verdict(None, "W from the square wave: too few samples")
        return
    yield within("W from the square wave", window_s(seen.busy, middle(took)), 0.08, 0.3, "s", "1/6 s")


def _shared(check: Check) -> Iterator[Record]:
    """Two processes at once: each alone would fill the GPU."""
    with ExitStack() as stack:
        loads = [stack.enter_context(check.load()) for _ in range(2)]
        loads[0].run("bf16")
        alone = _rate(loads[0], lambda: check.watch("shared, alone"))
        loads[1].run("bf16")
        loads[0].steps()
        seen: list[Watched] = []
        together = _rate(loads[0], lambda: seen.append(check.watch("shared")))
        yield from _row(check, "two processes of bf16 products", seen[0], (BUSY,))
        yield Fact(f"steps of one of them: {alone:.3g} a second alone, {together:.3g} beside the other")


def _rate(load: Any, meanwhile: Callable[[], object]) -> float:
    load.steps()
    meanwhile()
    took = [took_s for said in load.steps() for took_s in said["took_s"]]
    return len(took) / sum(took) if took else 0.0
