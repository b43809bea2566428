"""Prints every budget with what was measured and the peer beside it; exit code 1 when a budget is missed."""

from __future__ import annotations

import argparse
import compileall
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tests.bench import engine, headless, latency
from tests.bench.measure import BTOP, GPUTOP, HTOP, NVITOP, Program, Run, measure, middle
from tests.bench.population import population
from tests.fakenvml import Fake
from tests.fakenvml.profiles import COSTS, FIELD_COSTS

PEERS = (NVITOP, HTOP, BTOP)


@dataclass(frozen=True, slots=True)
class Figure:
    """One budget: what was measured, the most it may be, and what the figure is made of."""

    text: str
    value: float | None
    most: float
    made_of: str = ""

    @property
    def kept(self) -> bool:
        """Unknown (a peer is missing) is not a miss, and is printed as unknown."""
        return self.value is None or self.value <= self.most

    def __str__(self) -> str:
        value = "  unknown" if self.value is None else f"{self.value:9.2f}"
        verdict = "-" if self.value is None else "ok" if self.kept else "MISSED"
        return f"{self.text:58}{value}  <= {self.most:<7g} {verdict:7}{self.made_of}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure."""

    seconds: float
    rounds: int


def rounds(programs: Sequence[Program], fake: Fake, plan: Plan, size: tuple[int, int] = (120, 40)) -> dict[str, Run]:
    """Every program in turn, several times: what the machine does meanwhile hits all of them."""
    runs: dict[str, list[Run]] = {program.name: [] for program in programs}
    for _ in range(plan.rounds):
        for program in programs:
            runs[program.name].append(measure(program, fake, seconds=plan.seconds, size=size))
    result = {name: middle(many) for name, many in runs.items()}
    for name, run in result.items():
        cpu = f"{run.cpu_percent:6.2f} % CPU ({run.cpu_percent * 0.6:.2f} s a minute)"
        frame = f"first frame {run.first_frame_s:5.2f} s  {run.bytes_per_s:7.0f} B/s"
        calls = f"{run.calls_per_s:6.1f} driver calls/s"
        driver = f", {run.driver_ms_per_s:.1f} ms/s inside" if run.driver_ms_per_s else ""
        print(f"    {name:8} {cpu}  {run.rss_mb:6.1f} MB  {frame}  {calls}{driver}", flush=True)
    return result


def ratio(runs: dict[str, Run], peer: str, name: str = "cpu_percent") -> tuple[float | None, str]:
    """gputop over the peer, and both figures."""
    if peer not in runs:
        return None, f"{peer} is not installed"
    ours, theirs = getattr(runs["gputop"], name), getattr(runs[peer], name)
    return (ours / theirs if theirs else None), f"{ours:.2f} / {theirs:.2f}"


def crowds(plan: Plan, peers: Sequence[Program]) -> Iterator[Figure]:
    """CPU among 1,000, 4,000 and 10,000 processes, 8 GPUs, 120x40."""
    seen: dict[int, dict[str, Run]] = {}
    for processes in (1000, 4000):
        print(f"  {processes} processes, 8 GPUs, 120x40", flush=True)
        with population(processes) as fake:
            seen[processes] = rounds([GPUTOP, *peers], fake, plan)
    yield Figure("CPU / nvitop, 1,000 processes", ratio(seen[1000], "nvitop")[0], 1.5, ratio(seen[1000], "nvitop")[1])
    yield Figure("CPU / htop, 1,000 processes", ratio(seen[1000], "htop")[0], 0.4, ratio(seen[1000], "htop")[1])
    yield Figure("CPU / htop, 4,000 processes", ratio(seen[4000], "htop")[0], 0.25, ratio(seen[4000], "htop")[1])
    yield Figure("CPU / btop, 4,000 processes", ratio(seen[4000], "btop")[0], 0.6, ratio(seen[4000], "btop")[1])
    growth = seen[4000]["gputop"].cpu_percent / seen[1000]["gputop"].cpu_percent
    yield Figure("CPU at 4,000 / at 1,000 processes", growth, 2)
    calls, made_of = ratio(seen[1000], "nvitop", "calls_per_s")
    yield Figure("driver calls / nvitop, 8 GPUs", calls, 0.8, made_of)
    yield Figure("first full frame, s", seen[1000]["gputop"].first_frame_s, 0.6)
    yield Figure("RSS, MB", seen[1000]["gputop"].rss_mb, 60)
    print("  10,000 processes", flush=True)
    with population(10_000) as fake:
        crowd = rounds([GPUTOP, *(peer for peer in peers if peer is HTOP)], fake, Plan(plan.seconds, 1))["gputop"]
    yield Figure("CPU, 10,000 processes, % of a core", crowd.cpu_percent, 10)
    yield Figure("RSS, 10,000 processes, MB", crowd.rss_mb, 120)
    yield Figure("first full frame, 10,000 processes, s", crowd.first_frame_s, 1)


def drivers(plan: Plan, peers: Sequence[Program]) -> Iterator[Figure]:
    """A driver that costs, one that is slow, one that hangs; 8, 16 and 64 GPUs."""
    rivals = [GPUTOP, *(peer for peer in peers if peer is NVITOP)]
    print("  1 ms of CPU in each driver call, no GPM", flush=True)
    with population(200, **{"burn_us.*": 1000, "gpu.*.gpm_supported": 0}) as fake:
        value, made_of = ratio(rounds(rivals, fake, plan), "nvitop")
    yield Figure("CPU / nvitop, 1 ms of CPU in each driver call", value, 0.8, made_of)
    print("  16 GPUs", flush=True)
    with population(200, gpus=16) as fake:
        rounds(rivals, fake, Plan(plan.seconds, 1), size=(120, 70))  # nvitop lists no process on less
    for text, state in (
        ("100 ms in each driver call", {"delay_us.*": 100_000}),
        ("one GPU hung", {"gpu.3.hang.*": "forever"}),
    ):
        with population(200, **state) as fake:
            run = measure(GPUTOP, fake, seconds=2, settle_s=1)
            yield Figure(f"first frame, {text}, s", run.first_frame_s, 1)
            yield Figure(f"key to its effect, {text}, p99 ms", latency.keys(fake), 100)


def latencies(plan: Plan, peers: Sequence[Program]) -> Iterator[Figure]:
    """What both ask of a driver whose calls take as long as a real one's: 8 GPUs, for two of them."""
    state: dict[str, int] = {"pcie_throughput_us": 21_000, "gpu.*.gpm_supported": 0}
    state |= {f"gpu.*.{name}": us for name, us in FIELD_COSTS.items()}
    state |= {f"{kind}.{name}": us for kind, name, us in COSTS}
    rivals = [GPUTOP, *(peer for peer in peers if peer is NVITOP)]
    for gpus, most in ((1, 20), (8, 25)):
        print(f"  {gpus} GPUs, calls as slow as those of an RTX 5090", flush=True)
        with population(200, gpus=gpus, **state) as fake:
            seen = rounds(rivals, fake, plan)
        theirs = f"nvitop {seen['nvitop'].driver_ms_per_s:.1f}" if "nvitop" in seen else ""
        yield Figure(f"ms a second inside driver calls, {gpus} GPUs", seen["gputop"].driver_ms_per_s, most, theirs)


def lines(plan: Plan) -> Iterator[Figure]:
    """What goes over the line, and how soon a key is answered."""
    with population(0) as fake:
        for size, most in (((120, 40), 5000), ((200, 60), 9000)):
            run = measure(GPUTOP, fake, seconds=plan.seconds, size=size, args=["demo", "showcase"], settle_s=16)
            yield Figure(f"bytes a second, demo showcase, {size[0]}x{size[1]}", run.bytes_per_s, most)
        run = measure(GPUTOP, fake, seconds=plan.seconds, args=["demo", "idle"], settle_s=16)
        yield Figure("bytes a second, nothing changing", run.bytes_per_s, 300)
    with population(4000) as fake:
        yield Figure("key to its effect, 4,000 processes, p99 ms", latency.keys(fake), 50)
    with population(1000) as fake:
        yield Figure("gputop --once, s", latency.once(fake), 0.5)
    yield Figure("64 GPUs: a frame on the screen after its sample, ms", latency.paint("64gpu"), 250)


def recorders(plan: Plan) -> Iterator[Figure]:
    """A recording without a screen: 8 GPUs, 200 processes, 16 of them trainers."""
    with population(200) as fake:
        runs = [headless.recording(fake, plan.seconds) for _ in range(plan.rounds)]
    cpu, rss, grown = (median(figures) for figures in zip(*runs, strict=True))
    yield Figure("gputop record, CPU in % of one core", cpu, 1, f"{grown:.0f} MB an hour, packed")
    yield Figure("gputop record, MB", rss, 25)


def engines() -> Iterator[Figure]:
    """The history and all rules: 16 GPUs whose trainers wait, 200 processes of theirs, one frame a second."""
    yield Figure("engine, ms CPU a second", engine.cpu_ms(), 5)


def main() -> int:
    """Run the bench."""
    options = argparse.ArgumentParser(prog="make bench", description=__doc__)
    options.add_argument("--seconds", type=float, default=20, help="of each measurement (20)")
    options.add_argument("--rounds", type=int, default=3, help="alternating rounds, medians (3)")
    names = ("crowds", "drivers", "latencies", "lines", "recorders", "engines")
    options.add_argument("--only", choices=names, help="one part")
    args = options.parse_args()
    plan = Plan(args.seconds, args.rounds)
    compileall.compile_dir("gputop", quiet=1)  # as pip does when it installs: the peers were
    peers = [peer for peer in PEERS if peer.installed]
    missing = [peer.name for peer in PEERS if not peer.installed]
    print(f"gputop bench: {os.cpu_count()} cores, {platform.release()}, Python {platform.python_version()}")
    print(f"  {plan.rounds} alternating rounds of {plan.seconds:g} s, medians, CPU in % of one core")
    for name in missing:
        print(f"  missing peer: {name} is not installed, its ratios are unknown")
    parts = {
        "crowds": lambda: crowds(plan, peers),
        "drivers": lambda: drivers(plan, peers),
        "latencies": lambda: latencies(plan, peers),
        "lines": lambda: lines(plan),
        "recorders": lambda: recorders(plan),
        "engines": engines,
    }
    figures = [figure for name, part in parts.items() if args.only in (None, name) for figure in part()]
    print(*figures, sep="\n")
    missed = sum(not figure.kept for figure in figures)
    print(f"{len(figures) - missed} of {len(figures)} budgets kept")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
