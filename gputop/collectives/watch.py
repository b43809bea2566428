"""A sink of the monitor: while a job seems to wait in a collective, ask its ranks which one, and tell the rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING

from gputop.model import Fact, Identity, Process

if TYPE_CHECKING:
    from gputop.collectives.report import Collectives
    from gputop.monitor import Monitor, Update

RULE = "collective-wait"
APART_S = 30.0  # between two questions to one job
_AGAIN_S = 2.0  # between its two surveys: ranks that advance are not stuck

Ask = Callable[[Sequence[Process]], "Collectives"]


def follow(monitor: Monitor, *, ask: Ask | None = None) -> CollectiveWatch | None:
    """Have a monitor ask jobs that wait; None if they are not live on this machine."""
    if monitor.source.elsewhere:
        return None
    watch = CollectiveWatch(monitor, ask or survey_twice)
    monitor.sinks = (*monitor.sinks, watch.take)
    return watch


class CollectiveWatch:
    """Asks one job at a time, in a thread that nothing waits for. `take` never blocks and never raises."""

    def __init__(self, monitor: Monitor, ask: Ask) -> None:
        self._monitor, self._ask = monitor, ask
        self._asked_s: dict[str, float] = {}  # by job, the time of its last question
        self.busy = False  # a question is under way
        self.problem = ""

    def take(self, update: Update) -> None:
        """Take in an update, in the thread of the monitor."""
        waiting = {key for one in update.findings if one.rule == RULE for key in one.subject.job_keys}
        if not waiting or self.busy:
            return
        frame = update.frame
        self._asked_s = {job: at_s for job, at_s in self._asked_s.items() if 0 <= frame.mono_s - at_s < APART_S}
        for job in frame.jobs:
            if job.key in waiting and job.key not in self._asked_s:
                found = (frame.by_identity.get(identity) for identity in job.ranks)
                self._asked_s[job.key] = frame.mono_s
                self._start([process for process in found if process is not None])
                return

    def _start(self, ranks: Sequence[Process]) -> None:
        self.busy = True
        try:
            Thread(target=self._tell, args=(ranks,), name="collectives", daemon=True).start()
        except RuntimeError:  # this user's thread limit is reached
            self.busy = False

    def _tell(self, ranks: Sequence[Process]) -> None:
        try:
            for identity, facts in facts_of(self._ask(ranks), ranks).items():
                self._monitor.tell(identity, facts, witness="recorder")
        except Exception as error:  # the finding stays as it is without an answer
            self.problem = f"collectives are unknown: {type(error).__name__}: {error}; please report it"
        finally:
            self.busy = False


def survey_twice(ranks: Sequence[Process]) -> Collectives:
    """What two surveys say, so that progress between them shows."""
    from gputop.collectives.report import conclude  # late: most jobs never wait
    from gputop.collectives.survey import ask

    first = ask(ranks)
    if not first.records:
        return conclude(first)
    time.sleep(_AGAIN_S)
    return conclude(ask(ranks), first)


def facts_of(collectives: Collectives, ranks: Iterable[Process]) -> Mapping[Identity, tuple[Fact, ...]]:
    """What a survey says of each rank for the rules: at most one fact for the job, of the rank that differs."""
    facts: dict[Identity, tuple[Fact, ...]] = {process.identity: () for process in ranks}
    if not facts:
        return facts
    found = collectives.comparison.first if collectives.comparison else None
    about, name, text = next(iter(facts)), "", ""
    if found is not None:
        by_label = {one.label: one.process.identity for one in collectives.survey.answers}
        about = next((by_label[one] for one in (*found.ranks, *found.waiting) if one in by_label), about)
        name, text = f"{found.kind}-collective", found.text
    elif collectives.ras_words:
        name, text = "missing-collective", collectives.ras_words[0].rstrip(".")
    if text:
        facts[about] = (Fact(process=about, witness="recorder", name=name, text=text),)
    return facts
