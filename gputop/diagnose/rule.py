"""What a rule is: one function that looks at a view and yields findings, declared where it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

from gputop.diagnose.finding import Finding
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass

Judge = Callable[[View], Iterator[Finding]]


class Level(IntEnum):
    """What comes first when several rules hold for one job: the lowest is its primary finding."""

    HARDWARE = 1  # broken, hung, or about to run out of memory or disk
    USE = 2  # the GPU is not used
    CAUSE = 3  # why a GPU starves: told as the cause of the finding that it does
    STARVED = 4  # the input pipeline is too slow
    RANKS = 5  # the ranks wait for each other
    DEVICE = 6  # heat, power and clocks: primary only where they cost enough
    LINK = 7  # the way to the card
    EFFICIENCY = 8  # busy, but not with much
    BESIDE = 9  # a subject of its own, such as memory: primary where nothing else is
    HEALTHY = 10  # nothing to do
    NEVER = 11  # never primary


_HOST_GROUPS = ("cpu", "storage")
_OF_PHASE = {Level.USE, Level.CAUSE, Level.STARVED, Level.RANKS, Level.EFFICIENCY, Level.HEALTHY}


@frozen_dataclass(frozen=True, slots=True)
class Rule:
    """The declaration of one rule."""

    id: str
    question: str
    state: str  # the word at the end of a GPU's row
    short: str  # the same in a cell
    level: Level
    group: str  # the module, or the folder, below diagnose that it stands in
    judge: Judge
    number: str | None  # in the written specification of the rules: R05; two where it has a variant: R11 and R11b
    rows: tuple[int, ...]  # of the mission, which it serves
    needs: tuple[str, ...]  # metrics without which it never finds anything; `one or other`: where both are unknown
    partly: tuple[str, ...] = ()  # metrics that a part of what it looks for takes
    confirmed_by: tuple[str, ...] = ()  # names of facts, told of one of its processes, that make it surer
    crit_level: Level | None = None  # of its crit findings, where they come before the others
    instead_of: tuple[str, ...] = ()  # rules that are not told of a job while this one explains what they see
    last: bool = False  # told only where no other rule says why a GPU waits
    alone: bool = False  # it judges a machine without a GPU, too
    first: bool = False  # it is asked before the others: what it finds changes what these are asked about
    lasting: bool = False  # it is about what recurs, or stays as it is whatever a trainer does at the moment
    of_host: bool = False  # what it finds is seen in the host's CPUs, memory, storage or network, not in the GPU
    place: int = 0  # among all, once rules.py has loaded them

    @property
    def of_phase(self) -> bool:
        """Whether it judges what a trainer does at the moment: what it does next takes such a finding back."""
        return self.level in _OF_PHASE and not self.lasting


RULES: dict[str, Rule] = {}  # by id; in the order of the groups in rules.py


def rule(
    id: str,
    question: str,
    *,
    level: Level,
    number: str | None,
    rows: tuple[int, ...],
    needs: tuple[str, ...],
    partly: tuple[str, ...] = (),
    state: str = "",
    short: str = "",
    confirmed_by: tuple[str, ...] = (),
    crit_level: Level | None = None,
    instead_of: tuple[str, ...] = (),
    last: bool = False,
    alone: bool = False,
    first: bool = False,
    lasting: bool = False,
    of_host: bool = False,
) -> Callable[[Judge], Judge]:
    """Declare a rule. Its numbers stand in the table of the same name in thresholds.toml.

    `needs`, `partly`: by their names in the manual, what it abstains for; `needs=()` where it judges by what there is.
    `confirmed_by`: facts of told.py. Where one was told of a process of a finding, the engine makes it surer.
    `last`: it has no reason to give, and is told only where no other rule has one. `first`: it is asked before all.
    `of_host`: the host shows it, as it does for all in the groups of CPUs and storage.
    `lasting`: what it finds does not end with the phase of a trainer in which it was found.
    """

    def declare(judge: Judge) -> Judge:
        if id in RULES:
            raise ValueError(f"two rules are called {id}")
        group = judge.__module__.removeprefix("gputop.diagnose.rules.").partition(".")[0]
        RULES[id] = Rule(
            id, question, state, short, level, group, judge, number, rows, needs, partly,
            confirmed_by, crit_level, instead_of, last, alone, first, lasting, of_host or group in _HOST_GROUPS,
        )  # fmt: skip
        return judge

    return declare
