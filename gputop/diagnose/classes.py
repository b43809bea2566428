"""Which of the four task classes a trainer falls into, by questions whose answers are kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gputop.diagnose.finding import Class
from gputop.diagnose.flow import flow
from gputop.diagnose.regime import regime
from gputop.diagnose.starved import starved
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View

WINDOW_S = 120.0
UNDECIDED = "undecided"


class Answer(NamedTuple):
    """One question: how far its answer is from the limit, as a share of it; negative means no."""

    question: str
    said: str
    slack: float


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
    power_share: float | None = None
    sm: float | None = None
    tensor: float | None = None


def at_least(question: str, value: float, limit: float) -> Answer:
    """Whether a value reaches a limit."""
    return Answer(question, f"{value:.2g} of {limit:.2g}", (value - limit) / (abs(limit) or 1.0))


def at_most(question: str, value: float, limit: float) -> Answer:
    """Whether a value stays within a limit."""
    return Answer(question, f"{value:.2g} of {limit:.2g}", (limit - value) / (abs(limit) or 1.0))


def truth(question: str, value: bool) -> Answer:
    """A question that is not about a number."""
    return Answer(question, "", 1.0 if value else -1.0)


def either(*answers: Sequence[Answer]) -> list[Answer]:
    """The chain of questions that is nearest to yes."""
    return list(max(answers, key=_margin))


def candidates(facts: Facts) -> dict[str, list[Answer]]:
    """The four classes, each with its questions."""
    kappa, duty = facts.cores / facts.allowed, facts.duty
    cpu_high = at_least("are the CPUs busy?", kappa, 0.60)
    cpu_low = at_most("are the CPUs idle, but for one core?", facts.cores - 1.0, 0.25 * facts.allowed)
    gpu_low = at_most("is the GPU idle half of the time?", duty, 0.50)
    pulses = _pulses(facts)
    work = []
    if facts.power_share is not None:
        work.append(at_most("does it draw little power?", facts.power_share, 0.35))
    if facts.sm is not None and facts.tensor is not None:
        work += [
            at_most("do few of its SMs work?", facts.sm, 0.35),
            at_most("are tensor cores idle?", facts.tensor, 0.05),
        ]
    unsteady = either(
        [at_least("does it vary?", facts.sigma, 10)], [at_least("does it swing?", facts.peak - facts.low, 40)]
    )
    return {
        "small/simple": [
            cpu_low, gpu_low, truth("does it not pulse?", _margin(pulses) < 0),
            at_most("does it never peak?", facts.peak, 60), *work,
            truth("does it not wait for loaders?", not facts.waits_for_loaders),
        ],
        "small/complex": [cpu_high, gpu_low, *pulses],
        "large/simple": [
            cpu_low, at_least("is the GPU busy?", duty, 0.90), at_most("steadily?", facts.sigma, 8),
        ],
        "large/complex": [
            cpu_high, at_least("is the GPU busy half of the time?", duty, 0.50),
            at_most("but not always?", duty, 0.90), *unsteady,
        ],
    }  # fmt: skip


def _pulses(facts: Facts) -> list[Answer]:
    """Whether it runs empty between steps, seen or told by busy loaders."""
    return either(
        [
            truth("are its steps long enough to see?", facts.slow_steps),
            at_least("does it peak?", facts.peak, 80),
            at_least("does it run empty between its steps?", facts.empty, 0.25),
        ],
        [
            truth("are its steps too short to see?", not facts.slow_steps),
            at_least("is it used?", facts.duty, 0.05),
            at_most("does it have gaps?", facts.duty, 0.75),
            truth("are the loaders busy?", facts.loaders_busy),
        ],
    )


def decide(pid: int, facts: Facts) -> Class:
    """The class with the most room to its limits; undecided where none has any, with the two nearest."""
    ranked = sorted(candidates(facts).items(), key=lambda found: -_margin(found[1]))
    name, answers = ranked[0]
    margin = _margin(answers)
    if margin >= 0.05:
        return Class(pid=pid, name=name, margin=margin, path=tuple(map(_told, answers)))
    near = tuple((f"nearest: {other}", _failed(asked)) for other, asked in ranked[:2])
    return Class(pid=pid, name=UNDECIDED, margin=margin, path=near)


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


def classes(view: View) -> Iterator[Class]:
    """A class for each trainer that has its GPUs for itself and is past its start."""
    for trainer in view.trainers():
        facts = None if trainer.peers or trainer.compiling else _facts(view, trainer)
        if facts is not None:
            found, bound = decide(trainer.process.pid, facts), regime(view, trainer)
            yield replace(found, regime=bound.name, path=(*flow(view, trainer), *bound.told, *found.path))


def _facts(view: View, trainer: Trainer) -> Facts | None:
    busy, cores = view.mean(trainer, "busy_percent", WINDOW_S), view.mean(trainer, "cores", WINDOW_S)
    shape = trainer.shape
    if busy is None or busy < 1 or cores is None or shape is None or not trainer.allowed:
        return None
    loaders_busy = (trainer.loader_cpu or 0.0) >= 0.5
    return Facts(
        duty=busy / 100,
        sigma=shape.sigma,
        low=shape.low,
        peak=shape.high,
        empty=shape.empty,
        slow_steps=not trainer.flat,
        cores=cores,
        allowed=trainer.allowed,
        loaders_busy=loaders_busy,
        waits_for_loaders=loaders_busy and (trainer.main or 0.0) <= 0.5 and starved(view, trainer),
        power_share=trainer.power_share,
        sm=trainer.sm,
        tensor=trainer.tensor,
    )


def _margin(answers: Iterable[Answer]) -> float:
    return min(answer.slack for answer in answers)
