"""Who judges: gputop, and three simpler sets of rules that others publish, each as frames in and words out.

The others are written anew from their published predicates, with the name of the rule of ours that means the same:
- naive: means and spreads of GPU utilisation as guides to slow training give them, then the CPU of the machine;
- gputui: eleven hints of a monitor, over the means of all GPUs and of the machine, steadied by a decaying score;
- SageMaker Debugger: its profiler rules over 250 seconds.
A hint that only says that the GPU is little used names a symptom.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import mean, pstdev

from gputop import thresholds
from gputop.diagnose import Finding
from gputop.diagnose.engine import Engine
from gputop.diagnose.finding import POSSIBLE
from gputop.history import History
from gputop.model import Frame, Gpu
from gputop.thresholds import Thresholds
from tests.score.marks import Said
from tests.score.truths import WELL

LOW = "gpu-little-used"
SYMPTOMS = frozenset({LOW, "starved-cause-unknown"})
Tool = Callable[[Iterable[tuple[float, Frame]]], Iterator[Said]]


def gputop(
    frames: Iterable[tuple[float, Frame]],
    limits: Callable[[], Thresholds] = thresholds.shipped,
    follow: Callable[[float, Frame, Sequence[Finding]], None] = lambda *_: None,
) -> Iterator[Said]:
    """The rules, by default with the thresholds that are shipped; what they find goes to `follow`, too."""
    engine, history = Engine(limits), History()
    for t, frame in frames:
        history.add(frame)
        engine.remember(frame, history)
        verdict = engine.judge(frame, history)
        told = [finding for finding in verdict.findings if finding.confidence >= POSSIBLE]
        follow(t, frame, told)
        alarms = frozenset(finding.rule for finding in told if finding.severity != "info")
        yield Said(
            t,
            primary=frozenset(rule for one in told if one.primary for rule in (one.rule, *one.causes)),
            named=frozenset(rule for one in told for rule in (one.rule, *one.causes)),
            alarms=alarms,
            abstained=frozenset(one.rule for one in verdict.abstained),
            symptoms=alarms & SYMPTOMS,
        )


def said(t: float, *hints: str) -> Said:
    """The first hint leads; who has none to give says that all is well."""
    all_of = frozenset(hints)
    return Said(
        t,
        primary=frozenset(hints[:1] or (WELL,)),
        named=all_of or frozenset((WELL,)),
        alarms=all_of,
        symptoms=all_of & SYMPTOMS,
    )


def naive(frames: Iterable[tuple[float, Frame]]) -> Iterator[Said]:
    """Below 3 % idle, above 90 % fine, else low or fluctuating; then the CPUs: busy is preprocessing, else loaders."""
    recent: dict[str, deque[float]] = {}
    for t, frame in frames:
        hints: dict[str, None] = {}
        for gpu in frame.gpus:
            seen = recent.setdefault(gpu.uuid, deque(maxlen=60))
            seen.append(gpu.busy_percent or 0.0)
            if len(seen) == 60:
                hints.update(dict.fromkeys(_naive(frame, gpu, seen)))
        yield said(t, *hints)


def _naive(frame: Frame, gpu: Gpu, seen: deque[float]) -> Iterator[str]:
    busy, cpu = mean(seen), frame.host.cpu_percent or 0.0
    if (gpu.temperature_celsius or 0) > 83:
        yield "thermal"
    if busy < 3:
        yield "no-cuda-context"
    elif busy < 80 or pstdev(seen) > 15:
        if cpu >= 85:
            yield "starved-cpu-saturated"
        elif cpu <= 30:
            yield from ("starved-cpu-idle", "io-bound")
        else:
            yield LOW


def gputui(frames: Iterable[tuple[float, Frame]]) -> Iterator[Said]:
    """Each hint gains a point while it holds and loses half in three looks; it is shown from two points on."""
    points: dict[str, float] = {}
    for t, frame in frames:
        hits = list(_gputui(frame))
        points = {hint: points.get(hint, 0.0) * 0.5 ** (1 / 3) + (hint in hits) for hint in {*points, *hits}}
        at_once = [hint for hint in hits if hint == "power"]  # not steadied
        yield said(t, *dict.fromkeys([hint for hint, score in points.items() if score >= 2] + at_once))


def _gputui(frame: Frame) -> Iterator[str]:
    host, gpus = frame.host, [gpu for gpu in frame.gpus if gpu.busy_percent is not None]
    if not gpus:
        return
    busy = mean(gpu.busy_percent or 0.0 for gpu in gpus)
    if busy < 60 and (host.user_percent or 0.0) > 50:
        yield "starved-cpu-saturated"
    if busy < 60 and (host.iowait_percent or 0.0) > 15:
        yield "io-bound"
    for gpu in gpus:
        reasons = gpu.throttle_reasons or frozenset()
        if reasons & {"thermal", "hw thermal"}:
            yield "thermal"
        if "power cap" in reasons:
            yield "power"
        if (gpu.performance_state or 0) >= 8 and (gpu.vram_used_bytes or 0) > 2**30:
            yield "zombie-memory"
        if (gpu.memory_busy_percent or 0) > 80 and (gpu.busy_percent or 0) < 50:
            yield "mem-bw-bound"
        if _less(gpu.pcie_generation, gpu.pcie_generation_max) or _less(gpu.pcie_width, gpu.pcie_width_max):
            yield "pcie-degraded"
        if gpu.ecc_uncorrected or gpu.xids:
            yield "hw-errors"


def _less(now: float | None, most: float | None) -> bool:
    return now is not None and most is not None and now < most


def sagemaker(frames: Iterable[tuple[float, Frame]]) -> Iterator[Said]:
    """Percentiles of 250 s, and how often the GPU is below 10 % while CPUs or storage are busy."""
    recent: dict[str, deque[tuple[float, float, float, float]]] = {}
    for t, frame in frames:
        hints: dict[str, None] = {}
        for gpu in frame.gpus:
            seen = recent.setdefault(gpu.uuid, deque(maxlen=250))
            used = 100 * (gpu.vram_used_bytes or 0) / (gpu.vram_total_bytes or 1)
            seen.append(
                (gpu.busy_percent or 0.0, frame.host.cpu_percent or 0.0, frame.host.iowait_percent or 0.0, used)
            )
            if len(seen) == seen.maxlen:
                hints.update(dict.fromkeys(_sagemaker(list(seen))))
        yield said(t, *hints)


def _sagemaker(seen: list[tuple[float, float, float, float]]) -> Iterator[str]:
    busy = sorted(row[0] for row in seen)
    low, high = busy[int(0.05 * len(busy))], busy[int(0.95 * len(busy))]
    if sum(gpu < 10 and cpu > 90 for gpu, cpu, _, _ in seen) > len(seen) / 2:
        yield "starved-cpu-saturated"
    if sum(gpu < 10 and wait > 50 for gpu, _, wait, _ in seen) > len(seen) / 2:
        yield "io-bound"
    half = len(seen) // 2
    if mean(row[3] for row in seen[half:]) - mean(row[3] for row in seen[:half]) > 5:
        yield "gmem-leak"
    if high < 70 or low < 10:
        yield LOW


TOOLS: dict[str, Tool] = {
    "gputop": gputop,
    "naive rule": naive,
    "gputui's hints": gputui,
    "SageMaker Debugger": sagemaker,
}
