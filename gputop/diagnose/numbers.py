"""The second part of a view: the recent past, and the limits of the rule to hold it against."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from operator import attrgetter
from typing import Any, TypeVar

from gputop.diagnose.subjects import Subjects, Thing
from gputop.diagnose.substitutes import Substitute
from gputop.diagnose.sums import KEPT_S
from gputop.diagnose.trainer import Trainer
from gputop.history import COARSE_S, FINE_S, FINE_SLOTS, Key, Window
from gputop.model import Fact, Gpu, Host, Job, Process

_N = TypeVar("_N", bound="Numbers")
_KEYS: dict[type, Callable[[Any], Key]] = {
    str: str,
    Trainer: attrgetter("key"),
    Job: attrgetter("key"),
    Gpu: attrgetter("uuid"),
    Process: attrgetter("identity"),
    Host: lambda _: "host",
}


class Numbers(Subjects):
    """Windows, and comparisons that do not flicker."""

    _for = 1  # 0 where it is compared what speaks against a finding

    @property
    def against(self: _N) -> _N:
        """The same for what speaks against a finding: once that is on the screen, it must be over the limit clearly."""
        other = copy(self)
        other._lenient, other._for = -self._lenient, 0
        return other

    @property
    def usual_step_s(self) -> float:
        """Seconds between two frames, as it mostly is."""
        return self._remembered.usual_step_s

    @property
    def watched_s(self) -> float:
        """Seconds since the first frame that the rules know."""
        first_s = self._remembered.first_s
        return 0.0 if first_s is None else self.frame.mono_s - first_s

    def limit(self, name: str, lenient: int = 0) -> float:
        """A number of the rule's table in thresholds.toml, or of another one as in "starved.duty".

        `lenient`: 1 for the number above which, -1 for the one below which something on the screen leaves.
        """
        limit, slack = self._numbers[name]
        return limit + lenient * slack

    def above(self, value: float | None, name: str) -> bool:
        """Whether a value is at the limit of this name or above; an unknown one is not."""
        if value is None:
            return False
        limit, slack = self._numbers[name]
        if self._for:
            self._numbers.held[name] = 1
        return value >= limit - self._lenient * slack

    def below(self, value: float | None, name: str) -> bool:
        """Whether a value is at the limit of this name or below; an unknown one is not."""
        if value is None:
            return False
        limit, slack = self._numbers[name]
        if self._for:
            self._numbers.held[name] = -1
        return value <= limit + self._lenient * slack

    def window(self, thing: Thing | str, metric: str, seconds: float | None = None, *, whole: bool = False) -> Window:
        """The last seconds of a metric, by default the rule's `window_s`, and no more than the trainer's phase.

        `whole`: earlier phases too. A trainer has the metrics of `Tree`; a key such as "disk nvme0n1" is one of the
        history.
        """
        about, known_s, _ = self._about(thing, seconds, whole)
        return self.history.window(about, self._kept(thing, metric), known_s)

    def mean(
        self, thing: Thing | str, metric: str, seconds: float | None = None, *, whole: bool = False
    ) -> float | None:
        """The mean of the same; None where less than half of the seconds is known."""
        asked = about, known_s, wanted_s = self._about(thing, seconds, whole)
        means = self._known.get(asked)
        if means is None:
            if known_s > KEPT_S or about not in self._remembered.sums:
                return self.history.mean(about, self._kept(thing, metric), known_s, wanted_s / 2)
            means = self._means(*asked)
        return means.get(metric)

    def told(self, thing: Trainer | Process, *names: str) -> Fact | None:
        """The first of these facts that a stack, a trace or the program itself told of a process lately."""
        of = thing.identity
        return next((fact for fact in self.frame.facts if fact.process == of and fact.name in names), None)

    def past(self, thing: Thing | str, metric: str, seconds: float) -> list[float | None]:
        """Means of 15 s over up to four hours, whole ones only, the newest last; of what the history keeps for so long.

        Earlier phases of a trainer too.
        """
        count = round(seconds / COARSE_S)
        reach_s = max(seconds, FINE_S * FINE_SLOTS) + COARSE_S  # no shorter, or the history would look at seconds
        return self.history.values(self._key(thing), self._kept(thing, metric), reach_s, COARSE_S)[-count - 1 : -1]

    def substitute(self, thing: Thing | str) -> Substitute | None:
        """What stands in for the utilization of a GPU, or of the GPUs of a trainer or job; None where that is known."""
        if not self._remembered.substitutes.of:
            return None
        if type(thing) is Gpu:
            return self._remembered.substitutes.of.get(thing.uuid)
        trainers = (thing,) if type(thing) is Trainer else self.ranks(thing) if type(thing) is Job else ()
        return next((one.duty_by for one in trainers if one.duty_by), None)

    def _kept(self, thing: Thing | str, metric: str) -> str:
        """The metric of the history that holds this one: of utilization its substitute where a GPU has one."""
        if metric != "busy_percent" or type(thing) is not Gpu:
            return metric
        substitute = self._remembered.substitutes.of.get(thing.uuid)
        return substitute.metric if substitute else metric

    def _key(self, thing: Thing | str) -> Key:
        return _KEYS[type(thing)](thing)

    def _about(self, thing: Thing | str, seconds: float | None, whole: bool) -> tuple[Key, float, float]:
        """Its key, the seconds that are looked at, and those that are wanted."""
        wanted_s = self._numbers["window_s"][0] if seconds is None else seconds
        if type(thing) is not Trainer:
            return self._key(thing), wanted_s, wanted_s
        return thing.key, wanted_s if whole else max(1.0, min(wanted_s, thing.phase_s)), wanted_s


def idle_watts(numbers: Numbers, gpu: Gpu) -> float | None:
    """What a GPU draws without work."""
    card = numbers._remembered.cards.get(gpu.uuid)
    return card.idle_watts(gpu) if card else None
