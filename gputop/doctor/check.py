"""A check: one question about this machine and the lines that answer it, declared together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Literal

from gputop.doctor.machine import DoctorContext
from gputop.frozen_dataclass import frozen_dataclass

Status = Literal["ok", "limited", "missing", "unknown", "advice"]

STATUSES: Mapping[Status, str] = {
    "ok": "works",
    "limited": "limited",
    "missing": "does not work",
    "unknown": "unknown",
    "advice": "advice, not a check",
}
GROUPS: Mapping[str, str] = {  # a group is a module of this package, in this order: what limits a training first
    "driver": "NVIDIA driver",
    "container": "Container and limits",
    "python": "Python in use",
    "advice": "Advice for training on this machine",
    "kernel": "Kernel interfaces",
    "tools": "Stacks and traces",
    "terminal": "Terminal",
}
_TRAINING = ("driver", "container", "python", "advice")  # groups whose limits are those of a training


@frozen_dataclass(frozen=True, slots=True)
class CheckLine:
    """What works or does not, the command that unlocks it, and the numbers behind it (units in names)."""

    status: Status
    what: str
    unlock: str | None = None
    value: Mapping[str, object] = field(default_factory=dict)


Answer = Callable[[DoctorContext], Iterable[CheckLine]]


@frozen_dataclass(frozen=True, slots=True)
class Check:
    """A question, its short name, and the function that answers it.

    `training`: a limit is one of a training, not of what gputop shows.
    """

    name: str
    question: str
    group: str
    answer: Answer
    training: bool = False


_declared: list[Check] = []


def check(name: str, question: str, *, training: bool | None = None) -> Callable[[Answer], Answer]:
    """Declare a function as the answer to a question; its module is its group, which says what its limits concern."""

    def declare(answer: Answer) -> Answer:
        group = answer.__module__.rpartition(".")[2]
        _declared.append(Check(name, question, group, answer, group in _TRAINING if training is None else training))
        return answer

    return declare


def checks() -> tuple[Check, ...]:
    """Every declared check, by group."""
    order = list(GROUPS)
    return tuple(sorted(_declared, key=lambda check: order.index(check.group)))
