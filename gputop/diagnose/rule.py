"""A rule: one function that reads a view and yields findings, with its declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

from gputop.diagnose.finding import Finding
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass

Judge = Callable[[View], Iterator[Finding]]


class Level(IntEnum):
    """Rank of a rule if several apply to one job: the lowest is the primary finding."""

    HARDWARE = 1  # broken, hung, or about to run out of memory or disk
    USE = 2  # the GPU is unused
    CAUSE = 3  # cause of GPU starvation: reported under that finding
    STARVED = 4  # the input pipeline is too slow
    RANKS = 5  # the ranks wait for each other
    DEVICE = 6  # temperature, power and clocks: primary only where the cost is large enough
    LINK = 7  # the PCIe link
    EFFICIENCY = 8  # busy, but with little activity
    BESIDE = 9  # a separate subject, such as memory: primary where nothing else is
    HEALTHY = 10  # nothing to do
    NEVER = 11  # never primary


_HOST_GROUPS = ("cpu", "storage")
_OF_PHASE = {Level.USE, Level.CAUSE, Level.STARVED, Level.RANKS, Level.EFFICIENCY, Level.HEALTHY}


@frozen_dataclass(frozen=True, slots=True)
class Rule:
    """The declaration of one rule."""

    id: str
    question: str
    state: str  # label at the end of a GPU's row
    short: str  # its short form for a table cell
    level: Level
    group: str  # the module or package below diagnose that defines it
    judge: Judge
    needs: tuple[str, ...]  # metrics without which it never finds anything; `one or other`: at least one of them
    partly: tuple[str, ...] = ()  # metrics that a part of its findings needs
    confirmed_by: tuple[str, ...] = ()  # facts that raise the confidence if reported for one of its processes
    crit_level: Level | None = None  # level of its critical findings, if it is higher
    instead_of: tuple[str, ...] = ()  # rules that this one replaces for a job: it explains what they see
    last: bool = False  # reported only if no other rule says why a GPU waits
    alone: bool = False  # applies to a machine without a GPU, too
    first: bool = False  # evaluated before the others: its findings change what these judge
    lasting: bool = False  # about something recurring or permanent, independent of the trainer's phase
    of_host: bool = False  # visible in the host's CPUs, memory, storage or network, not on the GPU
    place: int = 0  # position among all rules, set when `diagnose.rules` has loaded them

    @property
    def of_phase(self) -> bool:
        """Whether it judges the current activity of a trainer: the next phase withdraws such a finding."""
        return self.level in _OF_PHASE and not self.lasting


RULES: dict[str, Rule] = {}  # by id, in the order of the groups in `diagnose.rules`


def rule(
    id: str,
    question: str,
    *,
    level: Level,
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
    """Declare a rule. Its numbers are the table of the same name in thresholds.toml.

    `needs`, `partly`: names of metrics as in the manual, without which it abstains; `needs=()` for a rule that judges
    by whatever is available. `confirmed_by`: facts of testimony.py that raise the confidence when reported for a
    process of the finding. `last`: a fallback without a cause, reported only if no other rule has one. `first`:
    evaluated before all others. `of_host`: visible on the host, as is implied for the groups of CPUs and storage.
    `lasting`: its findings outlive the phase in which they were found.
    """

    def declare(judge: Judge) -> Judge:
        if id in RULES:
            raise ValueError(f"two rules are called {id}")
        group = judge.__module__.removeprefix("gputop.diagnose.rules.").partition(".")[0]
        RULES[id] = Rule(
            id, question, state, short, level, group, judge, needs, partly, confirmed_by, crit_level, instead_of,
            last, alone, first, lasting, of_host or group in _HOST_GROUPS,
        )  # fmt: skip
        return judge

    return declare
