"""Which of four workload classes a trainer belongs to, by questions whose answers are kept."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gputop import units
from gputop.diagnose.chip_activity import dram_share, partitioned, tensor_share
from gputop.diagnose.contention import contention
from gputop.diagnose.finding import Abstained, Class, Finding, Subject
from gputop.diagnose.starvation import has_gaps, has_work, is_oversubscribed, is_starved
from gputop.diagnose.subject_overlap import applies_to
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model.metric_title import metric_title

_NO = "no"
_SHARE, _POINTS, _CORES = "{:.0%}", "{:.0f} points", "{:.1f} cores"
_PERCENT = re.compile(r"(?<=\d)%")
Asked = tuple[str, str]  # a question, and its answer with the value it rests on


class Answers:
    """The shown findings before merging, and the rules that abstained."""

    def __init__(self, findings: Sequence[Finding], abstained: Sequence[Abstained]) -> None:
        self._findings, self._abstained = findings, abstained

    def of(self, trainer: Trainer, rule: str) -> Asked:
        """The question of a rule, with its evidence if the answer is yes, with the missing metric if unknown."""
        from gputop.diagnose.rules import RULES  # imported late: it takes longer to load than anything else here

        question = RULES[rule].question
        return f"{question[0].lower()}{question[1:]}", self._answer(trainer, rule)

    def denies(self, trainer: Trainer, rule: str) -> bool:
        """Whether a rule's answer is no; an abstention is not."""
        return self._answer(trainer, rule) == _NO

    def _answer(self, trainer: Trainer, rule: str) -> str:
        for finding in self._findings:
            if finding.rule == rule and _answers(finding.subject, trainer):
                return ", ".join(("yes", *(item.text for item in finding.evidence[:1])))
        for silent in self._abstained:
            if silent.rule == rule and _answers(silent.subject, trainer):
                return "not known" + "".join(f", no {metric_title(missing.metric)}" for missing in silent.missing[:1])
        return _NO


def _answers(subject: Subject, trainer: Trainer) -> bool:
    # questions about the machine have one answer for all; findings on other ranks are not its own
    return subject.kind == "host" or applies_to(subject, (trainer.identity,), trainer.uuids)


# why it waits, and for which rank of a job, in the order of the checks
_WHY = ("openblas-on-intel", "memory-pressure", "numa-misplacement", "cpu-slow", "checkpoint-stall")
_STORAGE = ("network-fs-bound", "io-bound", "io-small-files")
_RANKS = ("collective-wait", "network-bound", "straggler")


def questions(view: View, trainer: Trainer, answers: Answers) -> Iterator[Asked]:
    """Questions about a trainer that precede its class; unknown values are reported as such."""
    duty = trainer.duty
    works = has_work(view, trainer)
    busy = "not known" if duty is None else f"{'yes' if works else 'no'}, {_shown(_SHARE, duty)} busy"
    yield "does it use a GPU?", busy
    if duty is None or not works:
        return
    enough = view.limit("gpu-bound-healthy.busy_percent") / 100
    yield _limit_answer("is the GPU busy 90 % of the time?", duty, enough, "{:.0%}")
    yield from _busy_questions(view, trainer) if duty >= enough else _wait_questions(view, trainer, answers)
    if trainer.is_rank is None:
        yield "is it one of several ranks?", "not known, no WORLD_SIZE"
    elif trainer.is_rank:
        yield from (answers.of(trainer, rule) for rule in _RANKS)
    if duty < enough:
        yield "do other jobs compete for its CPUs or disk?", _neighbour_answer(view, trainer)
        yield from (answers.of(trainer, rule) for rule in _WHY)


def _busy_questions(view: View, trainer: Trainer) -> Iterator[Asked]:
    """Questions for a busy GPU: what kind of work?"""
    table = "gpu-bound-healthy."
    known = trainer.tensor is not None or trainer.dram is not None or trainer.sm is not None
    best = "{:.0%} of achievable peak"
    yield _limit_answer("are its tensor cores active?", tensor_share(trainer), view.limit(f"{table}tensor"), best)
    yield _limit_answer("is its memory bandwidth near its peak?", dram_share(trainer), view.limit(f"{table}dram"), best)
    yield _limit_answer("are its SMs active?", trainer.sm, view.limit(f"{table}sm"), "{:.0%}")
    if not known:
        power = view.limit(f"{table}power_share")
        yield _limit_answer("is its power near the limit?", trainer.power_share, power, "{:.0%}")


def _wait_questions(view: View, trainer: Trainer, answers: Answers) -> Iterator[Asked]:
    """Questions for a waiting GPU: waiting for what, and why?"""
    yield _limit_answer("is the main thread busy?", trainer.main, view.limit("loader-in-main.main"), "{:.2f} of a core")
    yield "does it have DataLoader workers?", f"yes, {trainer.loaders}" if trainer.loaders else "no"
    if trainer.loaders:
        loaders = view.limit("starved-cpu-idle.loader_cpu")
        yield _limit_answer("are they busy?", trainer.loader_cpu, loaders, "each {:.2f} of a core")
        storage = view.limit("starved-cpu-idle.blocked")
        how = "blocked on storage {:.0%} of the time"
        yield _limit_answer("do they wait for storage?", trainer.loader_blocked, storage, how)
        if (trainer.loader_blocked or 0.0) >= storage:
            yield from (answers.of(trainer, rule) for rule in _STORAGE)
    limit, cpus = view.limit("starved-cpu-saturated.saturation"), units.cpus(trainer.allowed or 0.0)
    yield _limit_answer("are all its CPUs busy?", trainer.saturation, limit, f"{{:.0%}} of {cpus}")
    full, how = view.limit("starved-cpu-saturated.host_percent"), "{:.0f} % of its CPUs in use"
    yield _limit_answer("is the host CPU saturated?", view.mean("host", "cpu_percent"), full, how)
    yield "are there more threads than CPUs?", _thread_answer(view, trainer)
    if (crowd := contention(view).pools) is not None:
        how = f"{{:.1f}} times: {crowd.threads:.0f} of {len(crowd.trainers)} on {crowd.cpus or 0:.0f}"
        many = crowd.threads / crowd.cpus if crowd.cpus else None
        yield _limit_answer(
            "do all trainers together have more threads than CPUs?", many, view.limit("threads-host.threads"), how
        )
    yield _limit_answer(
        "is it throttled by its CPU quota?", trainer.throttled, view.limit("starved.throttled"), "{:.0%} of periods"
    )
    if (steal := view.mean("host", "steal_percent")) is not None:
        limit = view.limit("starved.steal_percent")
        yield _limit_answer("does the hypervisor steal CPU time?", steal, limit, "{:.0f} % steal")


def _neighbour_answer(view: View, trainer: Trainer) -> str:
    """The answer of the neighbour rule and of the experiments page."""
    now = contention(view)
    said = [
        f"{100 * one.used_by_others / one.total:.0f} % of {'all CPUs' if one.resource == 'cpu' else 'all I/O'}"
        for one in now.shortages_of(trainer.identity)
    ]
    if said:
        return ", ".join(("yes", *said))
    return "not known" if trainer.identity in now.unknown | now.hidden | now.uncounted else "no"


def _thread_answer(view: View, trainer: Trainer) -> str:
    """Whether it has more threads than CPUs, and they wait for CPUs."""
    threads, allowed = trainer.compute_threads, trainer.allowed
    if threads is None or allowed is None or trainer.run_wait is None:
        return "not known"
    how = f"{threads:.0f} on {units.cpus(allowed)}, CPU wait {_shown(_SHARE, trainer.run_wait)} of runnable time"
    return f"{'yes' if is_oversubscribed(view, trainer) else 'no'}, {how}"


def _limit_answer(question: str, value: float | None, limit: float, how: str) -> Asked:
    """Whether a value reaches a limit."""
    if value is None:
        return question, "not known"
    return question, f"{'yes' if value >= limit else 'no'}, {_shown(how, value)}"


def _shown(how: str, value: float) -> str:
    """A value in its format, with a space before the percent sign."""
    return _PERCENT.sub(" %", how.format(value))


QUESTION = "compute, memory or overhead?"
_OVERHEAD = "overhead: the GPU waits for input or launches"


class Regime(NamedTuple):
    """Name of the regime, None if unknown, and its numbers as shares by what they measure."""

    name: str | None
    numbers: Mapping[str, float]

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The question with its answer, and the numbers."""
        answer = _OVERHEAD if self.name == "overhead" else self.name or "not known"
        return (QUESTION, answer), *((name, _shown(_SHARE, share)) for name, share in self.numbers.items())


def regime(view: View, trainer: Trainer) -> Regime:
    """The regime: overhead is time in which the GPU waits; for the rest, the unit nearest its limit decides."""
    numbers = dict(_numbers(trainer))
    if trainer.duty is None or partitioned(trainer):
        return Regime(None, numbers)
    if trainer.duty < view.limit("starved.duty"):
        return Regime("overhead", numbers)
    return Regime(_units(view, trainer) if trainer.sm is not None else _proxies(view, trainer), numbers)


def _units(view: View, trainer: Trainer) -> str | None:
    table = "gpu-bound-healthy."
    compute = (tensor_share(trainer) or 0.0) >= view.limit(f"{table}compute")
    compute = compute or (trainer.fp32 or 0.0) >= view.limit(f"{table}fp32")
    memory = (dram_share(trainer) or 0.0) >= view.limit(f"{table}dram")
    if compute and memory:
        return "compute- and memory-bound"
    return "compute-bound" if compute else "memory-bound" if memory else None


def _proxies(view: View, trainer: Trainer) -> str | None:
    """For GPUs without unit metrics: moving data takes less power than computing."""
    power, memory = trainer.power_share, trainer.memory_busy
    if power is None or memory is None:
        return None
    if power >= view.limit("mem-bw-bound.most_power_share"):
        return "compute-bound"
    if memory >= view.limit("mem-bw-bound.memory_busy") and power >= view.limit("mem-bw-bound.power_share"):
        return "memory-bound"
    return "compute-bound" if power >= view.limit("gpu-bound-healthy.power_share") else None


def _numbers(trainer: Trainer) -> Iterator[tuple[str, float]]:
    """Compute, memory traffic, and the share of time the GPU works while the CPU does."""
    if trainer.tensor is not None:
        yield "tensor activity", trainer.tensor
    elif trainer.power_share is not None:
        yield "power above idle", trainer.power_share
    if trainer.dram is not None:
        yield "memory bandwidth", trainer.dram
    elif trainer.memory_busy is not None:
        yield "memory busy", trainer.memory_busy
    if trainer.duty is not None:
        yield "CPU-GPU overlap", trainer.duty


UNDECIDED = "undecided"
_INEFFECTIVE = ("busy-not-effective", "collective-wait")  # rules on GPUs that are busy with low activity
Limit = Callable[[str], float]  # a number of this table of thresholds.toml by name


def class_text(name: str) -> str:
    """The name of a class as words: `large model, simple data`."""
    size, _, data = name.partition("/")
    return f"{size} model, {data} data" if data else "no class fits"


class Criterion(NamedTuple):
    """One question: relative distance of its value from the limit; negative means no."""

    question: str
    slack: float
    value: float = 0.0
    limit: float = 0.0
    how: str = ""  # format of the value; empty for a question without a number
    sign: str = "≥"  # on which side of the limit the answer is yes

    @property
    def text(self) -> str:
        """The value and its limit."""
        value, limit = _shown(self.how, self.value), _shown(self.how, self.limit)
        return f"{value} (yes if {self.sign} {limit})" if self.how else ""


class WorkloadFacts(NamedTuple):
    """Values that the questions use. Shares are 0-1, spread and peak in percentage points, CPU in cores."""

    duty: float
    sigma: float
    low: float
    peak: float
    empty: float
    slow_steps: bool  # long enough for gaps to be visible
    cores: float
    allowed: float
    loaders_busy: bool
    waits_for_loaders: bool
    effective: bool = True  # certain that a busy GPU does real work with enough of the chip
    power_share: float | None = None
    sm: float | None = None
    tensor: float | None = None


def at_least(question: str, value: float, limit: float, how: str = _SHARE) -> Criterion:
    """Whether a value reaches a limit."""
    return Criterion(question, (value - limit) / (abs(limit) or 1.0), value, limit, how)


def at_most(question: str, value: float, limit: float, how: str = _SHARE) -> Criterion:
    """Whether a value stays within a limit."""
    return Criterion(question, (limit - value) / (abs(limit) or 1.0), value, limit, how, "≤")


def truth(question: str, value: bool) -> Criterion:
    """A question without a number."""
    return Criterion(question, 1.0 if value else -1.0)


def nearest(*answers: Sequence[Criterion]) -> list[Criterion]:
    """The chain of questions nearest to yes."""
    return list(max(answers, key=_margin))


def candidates(facts: WorkloadFacts, limit: Limit) -> dict[str, list[Criterion]]:
    """The four classes, each with its questions."""
    kappa, duty = facts.cores / facts.allowed, facts.duty
    cpu_high = at_least("are the CPUs busy?", kappa, limit("cpu_high"))
    rest, most = max(0.0, facts.cores - 1.0), limit("cpu_low") * facts.allowed
    cpu_low = at_most("are the CPUs idle, but for one core?", rest, most, _CORES)
    gpu_low = at_most("is the GPU idle half of the time?", duty, limit("gpu_low"))
    pulses = _has_pulses(facts, limit)
    work = []
    if facts.power_share is not None:
        work.append(at_most("is its power low?", facts.power_share, limit("power_share")))
    if facts.sm is not None and facts.tensor is not None:
        work += [
            at_most("is SM activity low?", facts.sm, limit("sm")),
            at_most("are tensor cores idle?", facts.tensor, limit("tensor")),
        ]
    unsteady = nearest(
        [at_least("does GPU busy vary?", facts.sigma, limit("varies"), _POINTS)],
        [at_least("does GPU busy swing?", facts.peak - facts.low, limit("swings"), _POINTS)],
    )
    return {
        "small/simple": [
            cpu_low, gpu_low, truth("does the GPU run without idle gaps between steps?", _margin(pulses) < 0),
            at_most("is peak GPU busy low?", facts.peak / 100, limit("no_peak")), *work,
            truth("is it not waiting for workers?", not facts.waits_for_loaders),
        ],
        "small/complex": [cpu_high, gpu_low, *pulses],
        "large/simple": [
            cpu_low, at_least("is the GPU busy?", duty, limit("gpu_high")),
            at_most("is GPU busy steady?", facts.sigma, limit("steady"), _POINTS),
            truth("is effective work confirmed?", facts.effective),
        ],
        "large/complex": [
            cpu_high, at_least("is the GPU busy half of the time?", duty, limit("gpu_low")),
            at_most("is the GPU below full utilization?", duty, limit("gpu_high")), *unsteady,
        ],
    }  # fmt: skip


def _has_pulses(facts: WorkloadFacts, limit: Limit) -> list[Criterion]:
    """Whether the GPU idles between steps, as samples show or busy loaders imply."""
    return nearest(
        [
            truth("are its gaps long enough to sample?", facts.slow_steps),
            at_least("does GPU busy peak?", facts.peak / 100, limit("peak")),
            at_least("is the GPU idle between steps?", facts.empty, limit("empty")),
        ],
        [
            truth("are its gaps too short to sample?", not facts.slow_steps),
            at_least("is the GPU used?", facts.duty, limit("least")),
            at_most("does GPU busy have gaps?", facts.duty, limit("gaps")),
            truth("are the workers busy?", facts.loaders_busy),
        ],
    )


def decide(pid: int, facts: WorkloadFacts, limit: Limit) -> Class:
    """The class with the largest margin; undecided if none fits, with the two nearest."""
    ranked = sorted(candidates(facts, limit).items(), key=lambda found: _distance(found[1]))
    name, answers = ranked[0]
    margin = _margin(answers)
    if margin >= limit("margin"):
        return Class(pid=pid, name=name, margin=margin, path=tuple(map(_row, answers)))
    near = tuple((f"nearest: {class_text(other)}", _failed(asked)) for other, asked in ranked[:2])
    return Class(pid=pid, name=UNDECIDED, margin=margin, path=near)


def _distance(answers: Sequence[Criterion]) -> tuple[float, int]:
    """Distance of a class from fitting, then the number of questions it fails."""
    return -_margin(answers), sum(answer.slack < 0 for answer in answers)


def _row(answer: Criterion) -> tuple[str, str]:
    word = "yes" if answer.slack >= 0 else "no"
    return answer.question, f"{word}, {answer.text}" if answer.text else word


def _failed(answers: Iterable[Criterion]) -> str:
    """The questions that a class fails."""
    worst = min(answers, key=lambda answer: answer.slack)
    return f"{worst.question} {_row(worst)[1]}"


def confidence(margin: float) -> float:
    """Confidence of a class, 0-1."""
    return 1 / (1 + math.exp(-6 * margin))


def classes(view: View, answers: Answers) -> Iterator[Class]:
    """A class for each trainer after startup that has its GPUs to itself."""
    for trainer in view.trainers():
        facts = None if trainer.peers or trainer.compiling else _facts(view, trainer, answers)
        if facts is not None:
            found, bound = decide(trainer.process.pid, facts, view.limit), regime(view, trainer)
            yield replace(found, regime=bound.name, path=(*questions(view, trainer, answers), *bound.rows, *found.path))


def _facts(view: View, trainer: Trainer, answers: Answers) -> WorkloadFacts | None:
    busy, cores = view.mean(trainer, "busy_percent"), view.mean(trainer, "cores")
    shape = trainer.shape
    if busy is None or busy < 1 or cores is None or shape is None or not trainer.allowed:
        return None
    loaders_busy = (trainer.loader_cpu or 0.0) >= view.limit("loader_cpu")
    return WorkloadFacts(
        duty=busy / 100,
        sigma=shape.sigma,
        low=shape.low,
        peak=shape.high,
        empty=shape.empty,
        slow_steps=has_gaps(view, trainer),
        cores=cores,
        allowed=trainer.allowed,
        loaders_busy=loaders_busy,
        waits_for_loaders=loaders_busy and (trainer.main or 0.0) <= view.limit("main") and is_starved(view, trainer),
        effective=all(answers.denies(trainer, rule) for rule in _INEFFECTIVE),
        power_share=trainer.power_share,
        sm=trainer.sm,
        tensor=trainer.tensor,
    )


def _margin(answers: Iterable[Criterion]) -> float:
    return min(answer.slack for answer in answers)
