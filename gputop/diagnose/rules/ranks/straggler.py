"""A rule on one rank that all others wait for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from shlex import quote
from statistics import median
from typing import NamedTuple

from gputop import step_report
from gputop.diagnose.cpu_budget import equal_share
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.gpu_tracker import reference_mhz
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.ranks.team import Team, does, teams
from gputop.diagnose.steps import cuda_visible_devices, profile, stack
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.history import HistoryWindow
from gputop.labels import amount
from gputop.model import Gpu, Identity

_OVER_S = 45.0  # some steps, of any length
_LEAST = 20  # values
_LOW, _HIGH = 0.10, 0.95  # percentiles that bound a signal's range
_WORKS = 2.0  # percentage points: a signal with a smaller range shows no work


class Spins(NamedTuple):
    """Range of an activity signal over the steps of one rank; `share` (0-1) of the time it is in the lower half."""

    signal: str
    share: float  # 0-1
    low: float
    high: float


def spins(view: View, team: Team) -> list[list[Spins]]:
    """For each signal that all ranks have, the ranges of all ranks: work is equal, so the rest is waiting.

    A rank that works through the whole step has the same average as those that work more and then wait.
    """
    found = [[_signal_range(name, values) for values in rows] for name, rows in _signals(view, team)]
    return [[one for one in ranks if one is not None] for ranks in found if None not in ranks]


def _signals(view: View, team: Team) -> list[tuple[str, list[Sequence[float]]]]:
    """Tensor activity and power per second, and power at the driver's sampling rate."""
    tensor = [_joined(view, one, "tensor_percent") for one in team.ranks]
    power = [_above_idle(one, _joined(view, one, "power_watts")) for one in team.ranks]
    fine = [_above_idle(one, _powers(one)) for one in team.ranks]
    return [("tensor activity", tensor), ("power above idle", power), ("power above idle", fine)]


def _joined(view: View, one: Trainer, metric: str) -> Sequence[float]:
    """From the first GPU it works on: the others are in step with it."""
    return view.window(one.works_on[0], metric, _OVER_S).values if one.works_on else ()


def _powers(one: Trainer) -> Sequence[float]:
    """Power of that GPU at the driver's sampling rate; empty if unavailable."""
    card = one.cards.get(one.works_on[0].uuid) if one.works_on else None
    return list(card.powers) if card else ()


def _above_idle(one: Trainer, watts: Sequence[float]) -> Sequence[float]:
    """Percent of the range between idle power and limit."""
    if not one.works_on or not watts:
        return ()
    gpu = one.works_on[0]
    card, limit = one.cards.get(gpu.uuid), gpu.power_limit_watts
    idle = card.idle_watts(gpu) if card else None
    if idle is None or limit is None or limit <= idle:
        return ()
    return [100 * max(0.0, value - idle) / (limit - idle) for value in watts]


def _signal_range(signal: str, values: Sequence[float]) -> Spins | None:
    window = HistoryWindow(values)
    low, high, mean = window.percentile(_LOW), window.percentile(_HIGH), window.mean()
    if len(values) < _LEAST or low is None or high is None or mean is None or high < _WORKS:
        return None
    return Spins(signal, max(0.0, 1 - mean / high), low, high)


_FASTER_DISK = Step(text="Move its data shard to a disk as fast as that of the other ranks")
_ALIKE = Step(text="Balance sample cost across ranks, or raise num_workers")


def _own_cpus(view: View, one: Trainer) -> Step:
    each = max(1, int(equal_share(view, one)))
    # ranks may already be confined to parts of the machine: each counts within its own
    at = f"at = {each} * int(os.environ['LOCAL_RANK']) % len(cpus)"
    return Step(
        text=f"Pin each rank to {amount(each, 'separate CPU')} before creating the DataLoader",
        command=f"cpus = sorted(os.sched_getaffinity(0)); {at}; os.sched_setaffinity(0, cpus[at : at + {each}])",
    )


def _profile(view: View, one: Trainer) -> Step:
    return profile(view, one.process, "Profile its main thread")


_Help = Callable[[View, Trainer], Step]
# causes of a late rank: feature, limit, format, and remedy
_REASONS: tuple[tuple[str, float, str, str, _Help], ...] = (
    (
        "loader_blocked",
        0.2,
        "workers blocked on storage",
        "workers blocked on storage {} % of the time",
        lambda *_: _FASTER_DISK,
    ),
    ("loader_cpu", 0.8, "slow workers", "workers use {} % of a core", lambda *_: _ALIKE),
    ("run_wait", 0.2, "CPU wait", "CPU wait {} % of runnable time", _own_cpus),
    ("main", 0.8, "main thread saturated", "main thread uses {} % of a core", _profile),
)
_UNKNOWN = "cause unknown"
_LEAST_TENSOR = 0.02
_WORTHWHILE = 1.05
_NAMED = 8  # ranks listed by number
_NORMAL = 0.6745  # standard deviations from the median, in a normal distribution


Measure = Callable[[Trainer], float | None]


class _Late(NamedTuple):
    """The rank that waits least, the share of time the others wait for it, and the signs."""

    one: Trainer
    effect: float  # 0-1
    why: str
    evidence: tuple[Evidence, ...]
    steps: tuple[Step, ...]


@rule(
    "straggler",
    "Do all ranks wait for a straggler?",
    level=Level.RANKS,
    state="straggler",
    short="SLOW",
    confirmed_by=("straggler",),
    instead_of=("collective-wait", "network-bound"),
    needs=("busy_percent",),
)
def straggler(view: View) -> Iterator[Finding]:
    """Ranks run in lockstep, so the slowest sets the pace: it is the one that waits least.

    Pipeline stages and different GPU models differ for good reason, and are not compared.
    """
    for team in teams(view):
        if len(team.ranks) < 2 or len(team.ranks) < len(team.job.ranks) or not _comparable(view, team):
            continue
        if not all(view.knows(one, "duty") for one in team.ranks):
            continue
        waits, measured = _alternates(view, team), _by_step_meters(view, team)
        late = _slow_clock(view, team, waits) or _starved(view, team) or _more_work(view, team) or waits or measured
        if late is not None:
            yield _finding(view, team, late, measured)


def _comparable(view: View, team: Team) -> bool:
    """Whether all have the same GPU model with similar memory: pipeline stages hold different parts of a model."""
    if len({tuple(gpu.name for gpu in one.works_on) for one in team.ranks}) > 1:
        return False
    held = [sum(share.vram_bytes or 0 for share in one.process.gpus) for one in team.ranks]
    return min(held) == 0 or max(held) <= view.limit("alike_held") * min(held)


def _outlier(view: View, team: Team, value: Measure, sign: int) -> tuple[Trainer, float] | None:
    """The one outlier above (1) or below (-1) the others, and their median; None for none or several."""
    values = [value(one) for one in team.ranks]
    known = [number for number in values if number is not None]
    if len(known) < len(values):
        return None
    place = max(range(len(known)), key=lambda number: sign * known[number])
    others = known[:place] + known[place + 1 :]
    middle = median(others)
    apart = median(abs(number - middle) for number in others)
    least = view.limit("apart") * max(abs(middle), 1e-9)  # differences of a few percent mean nothing
    far, next_far = sign * (known[place] - middle), max(sign * (number - middle) for number in others)
    alone = 2 * next_far <= far
    return (team.ranks[place], middle) if alone and view.above(_NORMAL * far / max(apart, least), "score") else None


def _by_step_meters(view: View, team: Team) -> _Late | None:
    """By the step meters of all ranks: equal step times, and one waits for data in each."""
    late = step_report.late_rank([one.process for one in team.ranks])
    if late is None or not view.above(late.share, "effect"):
        return None
    one = next(each for each in team.ranks if each.process is late.process)
    others = [other for other in team.ranks if other is not one]
    evidence = Evidence(
        text=f"step meter: {step_report.late_text(late, team.number(one), len(team.ranks))}",
        value=1000 * late.wait_s,
        unit="ms",
        limit=1000 * (late.others_s + view.limit("effect") * late.step_s),
        sense="healthy_to",
    )
    why, more, steps = _work_before_gpu(view, one, others)
    known = why != _UNKNOWN
    return _Late(
        one, late.share, "dataloader-bound", (evidence, *(more if known else ())),
        steps if known else (_ALIKE, *steps),
    )  # fmt: skip


def _slow_clock(view: View, team: Team, waits: _Late | None) -> _Late | None:
    """Low clock, no pauses, and no more work done: the others wait while it computes."""
    found = _outlier(view, team, lambda one: one.clock_share, -1)
    if found is None:
        return None
    one, usual = found
    effect = 1 - (one.clock_share or 0.0) / usual if usual else 0.0
    others = [other for other in team.ranks if other is not one]
    if not view.above(effect, "effect") or not _never_waits(view, one):
        return None
    seen = waits is not None and waits.one is one
    if not seen and _does_less(one, others, effect):
        return None
    gpu = one.works_on[0]
    clock, highest = view.mean(gpu, "sm_clock_mhz") or 0.0, reference_mhz(gpu) or 0.0
    reasons = (gpu.throttle_reasons or frozenset()) - {"idle"}
    because = f"; active: {', '.join(sorted(reasons))}" if reasons else ""
    evidence = Evidence(
        text=f"GPU {gpu.index}: SM clock {clock:.0f} MHz, other ranks {usual * highest:.0f} MHz{because}",
        value=clock,
        unit="MHz",
        limit=usual * highest * (1 - view.limit("effect")),
        sense="healthy_from",
    )
    seen_from = (evidence, *(waits.evidence if waits and seen else ()))
    return _Late(one, effect, _clock_limit(reasons), seen_from, _clock_steps(view, team, one, gpu, reasons, effect))


def _clock_limit(reasons: Collection[str]) -> str:
    """What lowers the clock, as its own finding calls it."""
    named = {
        "hw thermal": "hardware thermal slowdown",
        "thermal": "software thermal slowdown",
        "power cap": "power cap",
    }
    return next((text for reason, text in named.items() if reason in reasons), "low SM clock")


def _clock_steps(
    view: View, team: Team, one: Trainer, gpu: Gpu, reasons: Collection[str], effect: float
) -> tuple[Step, ...]:
    hot = bool({"hw thermal", "thermal"}.intersection(reasons))
    check = Step(
        text=f"Check what limits the SM clock of GPU {gpu.index}: temperature, power or a locked clock",
        command=f"nvidia-smi -i {quote(gpu.index)} -q -d PERFORMANCE,CLOCK,TEMPERATURE",
    )
    cool = Step(text=f"Improve the cooling of GPU {gpu.index}: airflow, fans, dust filters; a rented node: report it")
    fewer = len(team.ranks) - 1
    gain = fewer / len(team.ranks) / max(0.01, 1 - effect)  # all go at its pace now
    if gain < _WORTHWHILE:
        return (cool if hot else check,)
    exclude = Step(
        text=f"Until it is fixed, start {amount(fewer, 'rank')} without it (--nproc-per-node={fewer}): "
        f"up to {gain:.1f}× as fast, with a smaller global batch",
        command=f"export CUDA_VISIBLE_DEVICES={_devices_without(view, team, one)}",
    )
    return cool if hot else check, exclude


def _does_less(one: Trainer, others: Sequence[Trainer], effect: float) -> bool:
    """Whether it does less work than the others, so that none waits: in step, a slow unit is active for longer."""
    tensor = [other.tensor for other in others if other.tensor is not None]
    if one.tensor is None or len(tensor) < len(others) or not median(tensor):
        return False
    return one.tensor / median(tensor) < 1 + effect / 2


def _starved(view: View, team: Team) -> _Late | None:
    """Its GPU has pauses while the others are always busy: they spin until it arrives."""
    found = _outlier(view, team, lambda one: one.duty, -1)
    if found is None:
        return None
    one, usual = found
    others = [other for other in team.ranks if other is not one]
    effect = usual - (one.duty or 0.0)
    works = view.above(one.duty, "works") and all(_never_waits(view, other) for other in others)
    if not works or not view.above(effect, "effect") or not _in_step(view, team, one, others):
        return None
    evidence = Evidence(
        text=f"GPU {one.works_on[0].index} busy {100 * (one.duty or 0.0):.0f} %, other ranks {100 * usual:.0f} %",
        value=100 * (one.duty or 0.0),
        unit="%",
        limit=100 * (usual - view.limit("effect")),
        sense="healthy_from",
    )
    why, more, steps = _work_before_gpu(view, one, others)
    return _Late(one, effect, why, (evidence, *more), steps)


def _in_step(view: View, team: Team, one: Trainer, others: Sequence[Trainer]) -> bool:
    """Whether it does as much work as the others although its GPU is busy for less of the time."""
    work = _measure(team)
    done = [value for other in others if (value := work(other)) is not None]
    mine = work(one)
    if mine is None or not done or not median(done):
        return False
    # spinning for the rest of the time adds a little power
    spin = view.limit("spins") * (median(other.duty or 0.0 for other in others) - (one.duty or 0.0))
    usual = median(done)
    least = usual - max(0.0, spin) if work is _power else usual
    return (1 - view.limit("in_step")) * least <= mine <= (1 + view.limit("in_step")) * usual


def _more_work(view: View, team: Team) -> _Late | None:
    """All are busy without pauses, and one does more work: the others spin for the rest of the time.

    With equal work per step a slow GPU has equal tensor activity; power shows the spinning ones.
    """
    measures = (_measure(team), _power)
    found = next(((work, odd) for work in measures if (odd := _outlier(view, team, work, 1)) is not None), None)
    if found is None:
        return None
    work, (one, usual) = found
    most = work(one) or 0.0
    effect = 1 - usual / most if most else 0.0
    busy = all(view.above(other.duty, "busy") for other in team.ranks) and _sends_as_much(view, team, one)
    slow = work is _power and measures[0] is _tensor
    enough = view.above(effect, "power_effect" if slow else "effect")
    if not busy or not enough or usual < view.limit("progress") * most:
        return None
    name = _MEASURED[work]
    text = f"GPU {one.works_on[0].index}: {name} {100 * most:.0f} %, other ranks {100 * usual:.0f} %, all GPUs busy"
    evidence = Evidence(
        text=text,
        value=100 * most,
        unit="%",
        limit=100 * usual / (1 - view.limit("power_effect" if slow else "effect")),
        sense="healthy_to",
    )
    why = "slower on equal work" if slow else "more work per step"
    return _Late(one, effect, why, (evidence,), _slow_gpu(view, one) if slow else _uneven(view, one))


def _uneven(view: View, one: Trainer) -> tuple[Step, ...]:
    return (
        Step(text="Balance work across ranks: equal tokens per batch, samples sorted by length"),
        Step(
            text="Run garbage collection on all ranks at the same step",
            command="gc.disable(); gc.collect()  # every 1000",
        ),
        stack(view, one.process, "Dump its stack to find work besides training"),
    )


def _slow_gpu(view: View, one: Trainer) -> tuple[Step, ...]:
    index = quote(one.works_on[0].index)
    return (
        Step(text=f"Check GPU {one.works_on[0].index}: clocks, memory errors, PCIe link",
             command=f"nvidia-smi -i {index} -q -d PERFORMANCE,CLOCK,ECC"),
        Step(text="Balance work across ranks: equal tokens per batch, samples sorted by length"),
        stack(view, one.process, "Dump its stack to find work besides training"),
    )  # fmt: skip


def _alternates(view: View, team: Team) -> _Late | None:
    """All are busy without pauses; the others work, then spin, while one works through the whole step."""
    if not all(_never_waits(view, one) for one in team.ranks):
        return None
    for found in spins(view, team):
        shares = {one.identity: each.share for one, each in zip(team.ranks, found, strict=True)}
        odd = _outlier(view, team, _measure_of(shares), -1)
        if odd is None:
            continue
        one, usual = odd
        effect = (usual - shares[one.identity]) / (1 - shares[one.identity])
        by_rank = list(zip(team.ranks, found, strict=True))
        others = [each for other, each in by_rank if other is not one]
        mine = next(each for other, each in by_rank if other is one)
        swings = median(each.low for each in others) <= view.limit("alternates") * median(each.high for each in others)
        if not view.above(effect, "effect") or not swings or not _sends_as_much(view, team, one):
            continue
        return _Late(one, effect, "longer steps", tuple(_range_evidence(team, one, mine, others)),
                     _slow_gpu(view, one))  # fmt: skip
    return None


def _measure_of(values: Mapping[Identity, float]) -> Measure:
    return lambda one: values.get(one.identity)


def _range_evidence(team: Team, one: Trainer, mine: Spins, others: Sequence[Spins]) -> Iterator[Evidence]:
    cards = ", ".join(other.works_on[0].index for other in team.ranks if other is not one)
    low, high = median(each.low for each in others), median(each.high for each in others)
    many = f"GPUs {cards} alternate" if len(others) > 1 else f"GPU {cards} alternates"
    yield Evidence(
        text=f"{many} between compute and spinning: {mine.signal} {low:.0f}-{high:.0f} % at GPU busy 100 %",
        value=low,
        unit="%",
    )
    steady = f"{mine.signal} {mine.low:.0f}-{mine.high:.0f} % (peak of other ranks {high:.0f} %)"
    text = f"GPU {one.works_on[0].index} computes throughout: {steady}"
    yield Evidence(text=text, value=mine.low, unit="%", limit=low, sense="healthy_to")


def _sends_as_much(view: View, team: Team, one: Trainer) -> bool:
    """Whether it sends as much as the others, if links report it: ranks in step must."""
    sent = [other.nvlink for other in team.ranks if other is not one and other.nvlink is not None]
    if one.nvlink is None or len(sent) < len(team.ranks) - 1 or not median(sent):
        return True
    return one.nvlink / median(sent) >= 1 - view.limit("in_step")


def _measure(team: Team) -> Measure:
    """The activity measure of ranks: tensor cores if every GPU reports them and they are used, else power.

    If power is unknown, as on a vGPU or MIG instance: memory traffic.
    """
    tensor = [one.tensor for one in team.ranks if one.tensor is not None]
    if len(tensor) == len(team.ranks) and max(tensor) >= _LEAST_TENSOR:
        return _tensor
    measures: tuple[Measure, ...] = (_power, _dram, _memory_busy)
    return next((one for one in measures if all(one(rank) is not None for rank in team.ranks)), _power)


def _tensor(one: Trainer) -> float | None:
    return one.tensor


def _power(one: Trainer) -> float | None:
    return one.power_share


def _dram(one: Trainer) -> float | None:
    return one.dram


def _memory_busy(one: Trainer) -> float | None:
    return one.memory_busy


_MEASURED: dict[Measure, str] = {
    _tensor: "tensor activity",
    _power: "power above idle",
    _dram: "memory bandwidth",
    _memory_busy: "memory busy",
}


def _never_waits(view: View, one: Trainer) -> bool:
    return view.above(one.duty, "full")


def _work_before_gpu(
    view: View, one: Trainer, others: Sequence[Trainer]
) -> tuple[str, tuple[Evidence, ...], tuple[Step, ...]]:
    """What a rank with GPU pauses does before it computes, unlike the others."""
    dump = stack(view, one.process, "Dump the stack of its main thread")
    for metric, least, why, text, help in _REASONS:
        mine, usual = getattr(one, metric) or 0.0, median(getattr(other, metric) or 0.0 for other in others)
        if mine >= least and mine - usual >= view.limit("more"):
            said = f"{text.format(f'{100 * mine:.0f}')} (other ranks {100 * usual:.0f} %)"
            return (
                why,
                (Evidence(text=said, value=100 * mine, unit="%", limit=100 * usual, sense="healthy_to"),),
                (help(view, one), dump),
            )
    return _UNKNOWN, (Evidence(text=does(one)),), (dump,)


def _devices_without(view: View, team: Team, one: Trainer) -> str:
    left = {gpu.uuid for gpu in one.works_on}
    kept = [gpu for other in team.ranks for gpu in other.works_on if gpu.uuid not in left]
    return cuda_visible_devices(view, kept, [rank.process for rank in team.ranks])


def _finding(view: View, team: Team, late: _Late, measured: _Late | None) -> Finding:
    sure = measured is not None and measured.one is late.one
    seen = measured.evidence[:1] if measured is not None and sure and measured is not late else ()
    severity: Severity = "crit" if late.effect >= view.limit("crit_effect") else "warn"
    count = len(team.ranks)
    numbers = [team.number(one) for one in team.ranks if one is not late.one]
    others = f"ranks {', '.join(map(str, numbers))} wait" if len(numbers) > 1 else f"rank {numbers[0]} waits"
    others = others if count <= _NAMED else f"the other {count - 1} ranks wait"
    known = late.one.tensor
    return view.found(
        team.job,
        severity,
        f"straggler {team.name(late.one)}, {late.why}",
        evidence=(
            *late.evidence,
            *seen,
            Evidence(
                text=f"{others} for it up to {100 * late.effect:.0f} % of the time",
                value=100 * late.effect,
                unit="%",
                limit=100 * view.limit("effect"),
                sense="healthy_to",
            ),
        ),
        steps=late.steps,
        confidence=view.confidence(0.7 if count >= 3 else 0.6, known, confirmed=sure),
        grade="job" if sure else "correlation",
        lost_share=late.effect * (count - 1) / count,
        gpus=late.one.uuids,
    )
