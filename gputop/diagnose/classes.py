"""Which of the four task classes a trainer falls into, by questions whose answers are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gputop.diagnose.answers import Answers
from gputop.diagnose.finding import Class
from gputop.diagnose.flow import flow
from gputop.diagnose.regime import regime
from gputop.diagnose.starved import gaps, starved
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View

UNDECIDED = "undecided"
_IN_VAIN = ("busy-not-effective", "collective-wait")  # rules about GPUs that are busy, and get little done
_SHARE, _POINTS, _CORES = "{:.0%}", "{:.0f} points", "{:.1f} cores"
Limit = Callable[[str], float]  # a number of this table of thresholds.toml by its name


class Answer(NamedTuple):
    """One question: how far its answer is from the limit, as a share of it; negative means no."""

    question: str
    slack: float
    value: float = 0.0
    limit: float = 0.0
    how: str = ""  # how a value reads; nothing where the question is not about a number

    @property
    def said(self) -> str:
        """The value and its limit."""
        return f"{self.how.format(self.value)} (limit {self.how.format(self.limit)})" if self.how else ""


class Facts(NamedTuple):
    """What the questions are about. Shares are 0-1, spread and peak points of 100, CPU in cores."""

    duty: float
    sigma: float
    low: float
    peak: float
    empty: float
    slow_steps: bool  # long enough to see gaps
    cores: float
    allowed: float
    loaders_busy: bool
    waits_for_loaders: bool
    effective: bool = True  # it is sure that a busy GPU is busy with work, and with enough of itself
    power_share: float | None = None
    sm: float | None = None
    tensor: float | None = None


def at_least(question: str, value: float, limit: float, how: str = _SHARE) -> Answer:
    """Whether a value reaches a limit."""
    return Answer(question, (value - limit) / (abs(limit) or 1.0), value, limit, how)


def at_most(question: str, value: float, limit: float, how: str = _SHARE) -> Answer:
    """Whether a value stays within a limit."""
    return Answer(question, (limit - value) / (abs(limit) or 1.0), value, limit, how)


def truth(question: str, value: bool) -> Answer:
    """A question that is not about a number."""
    return Answer(question, 1.0 if value else -1.0)


def either(*answers: Sequence[Answer]) -> list[Answer]:
    """The chain of questions that is nearest to yes."""
    return list(max(answers, key=_margin))


def candidates(facts: Facts, limit: Limit) -> dict[str, list[Answer]]:
    """The four classes, each with its questions."""
    kappa, duty = facts.cores / facts.allowed, facts.duty
    cpu_high = at_least("are the CPUs busy?", kappa, limit("cpu_high"))
    rest, most = max(0.0, facts.cores - 1.0), limit("cpu_low") * facts.allowed
    cpu_low = at_most("are the CPUs idle, but for one core?", rest, most, _CORES)
    gpu_low = at_most("is the GPU idle half of the time?", duty, limit("gpu_low"))
    pulses = _pulses(facts, limit)
    work = []
    if facts.power_share is not None:
        work.append(at_most("does it draw little power?", facts.power_share, limit("power_share")))
    if facts.sm is not None and facts.tensor is not None:
        work += [
            at_most("do few of its SMs work?", facts.sm, limit("sm")),
            at_most("are tensor cores idle?", facts.tensor, limit("tensor")),
        ]
    unsteady = either(
        [at_least("does it vary?", facts.sigma, limit("varies"), _POINTS)],
        [at_least("does it swing?", facts.peak - facts.low, limit("swings"), _POINTS)],
    )
    return {
        "small/simple": [
            cpu_low, gpu_low, truth("does it not pulse?", _margin(pulses) < 0),
            at_most("does it never peak?", facts.peak / 100, limit("no_peak")), *work,
            truth("does it not wait for loaders?", not facts.waits_for_loaders),
        ],
        "small/complex": [cpu_high, gpu_low, *pulses],
        "large/simple": [
            cpu_low, at_least("is the GPU busy?", duty, limit("gpu_high")),
            at_most("steadily?", facts.sigma, limit("steady"), _POINTS),
            truth("is much of it sure to be at work?", facts.effective),
        ],
        "large/complex": [
            cpu_high, at_least("is the GPU busy half of the time?", duty, limit("gpu_low")),
            at_most("but not always?", duty, limit("gpu_high")), *unsteady,
        ],
    }  # fmt: skip


def _pulses(facts: Facts, limit: Limit) -> list[Answer]:
    """Whether it runs empty between steps, seen or told by busy loaders."""
    return either(
        [
            truth("are its gaps long enough to see?", facts.slow_steps),
            at_least("does it peak?", facts.peak / 100, limit("peak")),
            at_least("does it run empty between its steps?", facts.empty, limit("empty")),
        ],
        [
            truth("are its gaps too short to see?", not facts.slow_steps),
            at_least("is it used?", facts.duty, limit("least")),
            at_most("does it have gaps?", facts.duty, limit("gaps")),
            truth("are the loaders busy?", facts.loaders_busy),
        ],
    )


def decide(pid: int, facts: Facts, limit: Limit) -> Class:
    """The class with the most room to its limits; undecided where none has any, with the two nearest."""
    ranked = sorted(candidates(facts, limit).items(), key=lambda found: _far(found[1]))
    name, answers = ranked[0]
    margin = _margin(answers)
    if margin >= limit("margin"):
        return Class(pid=pid, name=name, margin=margin, path=tuple(map(_told, answers)))
    near = tuple((f"nearest: {other}", _failed(asked)) for other, asked in ranked[:2])
    return Class(pid=pid, name=UNDECIDED, margin=margin, path=near)


def _far(answers: Sequence[Answer]) -> tuple[float, int]:
    """How far a class is from being it, and where that is the same, by how many of its questions."""
    return -_margin(answers), sum(answer.slack < 0 for answer in answers)


def _told(answer: Answer) -> tuple[str, str]:
    word = "yes" if answer.slack >= 0 else "no"
    return answer.question, f"{word}, {answer.said}" if answer.said else word


def _failed(answers: Iterable[Answer]) -> str:
    """What keeps a class from being it."""
    worst = min(answers, key=lambda answer: answer.slack)
    return f"{worst.question} {_told(worst)[1]}"


def confidence(margin: float) -> float:
    """How sure a class is, 0-1."""
    return 1 / (1 + math.exp(-6 * margin))


def classes(view: View, answers: Answers) -> Iterator[Class]:
    """A class for each trainer that has its GPUs for itself and is past its start."""
    for trainer in view.trainers():
        facts = None if trainer.peers or trainer.compiling else _facts(view, trainer, answers)
        if facts is not None:
            found, bound = decide(trainer.process.pid, facts, view.limit), regime(view, trainer)
            yield replace(found, regime=bound.name, path=(*flow(view, trainer, answers), *bound.told, *found.path))


def _facts(view: View, trainer: Trainer, answers: Answers) -> Facts | None:
    busy, cores = view.mean(trainer, "busy_percent"), view.mean(trainer, "cores")
    shape = trainer.shape
    if busy is None or busy < 1 or cores is None or shape is None or not trainer.allowed:
        return None
    loaders_busy = (trainer.loader_cpu or 0.0) >= view.limit("loader_cpu")
    return Facts(
        duty=busy / 100,
        sigma=shape.sigma,
        low=shape.low,
        peak=shape.high,
        empty=shape.empty,
        slow_steps=gaps(view, trainer),
        cores=cores,
        allowed=trainer.allowed,
        loaders_busy=loaders_busy,
        waits_for_loaders=loaders_busy and (trainer.main or 0.0) <= view.limit("main") and starved(view, trainer),
        effective=all(answers.denies(trainer, rule) for rule in _IN_VAIN),
        power_share=trainer.power_share,
        sm=trainer.sm,
        tensor=trainer.tensor,
    )


def _margin(answers: Iterable[Answer]) -> float:
    return min(answer.slack for answer in answers)
