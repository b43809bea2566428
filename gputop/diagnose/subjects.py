"""The first part of a view: the subjects a rule steps through."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gputop import words
from gputop.diagnose import features
from gputop.diagnose.finding import Subject, told_apart
from gputop.diagnose.limits import Tables
from gputop.diagnose.pauses import Pauses
from gputop.diagnose.remembered import Remembered
from gputop.diagnose.sums import Means
from gputop.diagnose.trainer import Trainer
from gputop.history import History, Key
from gputop.model import Frame, Gpu, Host, Identity, Job, Process

Thing = Gpu | Trainer | Process | Job | Host


def subject_of(thing: Thing) -> Subject:
    """What a finding about this is about."""
    if isinstance(thing, Trainer):
        return thing.subject
    if isinstance(thing, Gpu):
        return Subject(kind="gpu", gpus=(thing.uuid,))
    if isinstance(thing, Process):
        gpus = tuple(share.uuid for share in thing.gpus)
        return Subject(kind="process", gpus=gpus, processes=(thing.identity,), job=thing.job)
    if isinstance(thing, Job):
        return Subject(kind="job", processes=thing.ranks, job=thing.key)
    return Subject(kind="host")


class Subjects:
    """One tick, and what there is to be judged in it."""

    def __init__(self, frame: Frame, history: History, remembered: Remembered, tables: Tables) -> None:
        self.frame, self.history = frame, history
        self._remembered, self._tables = remembered, tables
        self._jobs = {job.key: job for job in frame.jobs}
        self._trainers: tuple[Trainer, ...] | None = None
        self._mates: dict[str, list[Trainer]] = {}  # trainers by the key of their job
        self._known: dict[tuple[Key, float, float], Means] = {}
        self._shown: Collection[object] = ()
        self._but: Collection[Identity] = ()
        # 1 while the subject has a finding on the screen: its limits give way a little; -1 in `against`
        self._lenient = 0

    def named(self, thing: Thing) -> Subject:
        """What a finding about this is about, with the name it has now."""
        subject = subject_of(thing)
        process = thing.process if isinstance(thing, Trainer) else thing if isinstance(thing, Process) else None
        job = self._jobs.get(subject.job or "")
        if job is None and process is None:
            return subject
        user = (job.user if job else None) or (process.user if process else None)
        name = self.called(process) if process else job.name if job else None
        return replace(subject, name=name, user=user)

    def called(self, process: Process) -> str:
        """What people call what it is of: its job, else what it runs."""
        job = self._jobs.get(process.job or "")
        return job.name if job else words.script(process)

    def turn_to(
        self,
        rule: str,
        state: str = "",
        shown: Collection[object] = (),
        *,
        needs: Collection[str] = (),
        but: Collection[Identity] = (),
    ) -> None:
        """The same tick for the next rule; `shown` are the subjects of its findings that are on the screen.

        `but`: trainers that it does not judge at the moment; `needs`: metrics that it cannot do without.
        """
        self._rule, self._state, self._shown, self._but, self._lenient = rule, state, shown, but, 0
        self._by_busy = "busy_percent" in needs
        self._numbers = self._tables[rule]

    def gpus(self, *, silent: bool = False) -> Iterator[Gpu]:
        """GPUs that answer; `silent`: those too that do not."""
        for gpu in self.frame.gpus:
            if silent or (gpu.condition == "ok" and gpu.age_s == 0):
                yield self._at(gpu)

    def trainers(self, *, cold: bool = False) -> Iterator[Trainer]:
        """Trainers past their start; `cold`: those too that only start, or have no GPU."""
        found = (one for one in self.vectors() if (cold or one.warm) and one.identity not in self._but)
        return map(self._at, found) if self._shown else found  # nearly always nothing is shown: leniency stays 0

    def jobs(self) -> Iterator[Job]:
        """Jobs; `ranks(job)` are their trainers."""
        for job in self.frame.jobs:
            yield self._at(job)

    def host(self) -> Host:
        """The machine itself, as the subject."""
        host: Host = self._at(self.frame.host)
        return host

    def vectors(self) -> tuple[Trainer, ...]:
        """Every trainer, to compare with or to look one up; `trainers` to judge them one by one."""
        if self._trainers is None:
            warm_s = self._tables.limits["engine"]["warm_s"]
            self._trainers = tuple(
                features.trainer(self.frame, self._means, self._remembered, tree, self._jobs, warm_s)
                for tree in self._remembered.trees.values()
            )
            for one in self._trainers:
                self._mates.setdefault(one.process.job or "", []).append(one)
        return self._trainers

    def mates(self, trainer: Trainer) -> Sequence[Trainer]:
        """The trainers of its job on this machine, itself among them."""
        return self._mates[trainer.process.job] if trainer.process.job else (trainer,)

    def pauses(self, trainer: Trainer) -> Pauses:
        """When its GPUs had no work, of all the time it was watched."""
        return self._remembered.trainers[trainer.identity].pauses

    def ranks(self, job: Job) -> tuple[Trainer, ...]:
        """The trainers of a job on this machine, by rank."""
        places = {identity: place for place, identity in enumerate(job.ranks)}
        self.vectors()
        return tuple(sorted(self._mates.get(job.key, ()), key=lambda one: places.get(one.identity, len(places))))

    def tenants(self, gpu: Gpu) -> tuple[Process, ...]:
        """Processes that compute on a GPU."""
        return tuple(self._remembered.tenants.get(gpu.uuid, ()))

    def _at(self, thing: Any) -> Any:
        self._lenient = 1 if self._shown and told_apart(subject_of(thing)) in self._shown else 0
        return thing

    def _means(self, about: Key, seconds: float, wanted_s: float) -> Means:
        """The means of a subject: many rules ask for some of them."""
        asked = about, seconds, wanted_s
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = self._remembered.sums.means(about, seconds, wanted_s / 2)
        return found
