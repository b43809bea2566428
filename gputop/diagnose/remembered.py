"""What the engine remembers from tick to tick: GPUs, contexts, phases, and the notes of the rules."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputop.diagnose.card import LEAST_S, Card
from gputop.diagnose.pauses import Pauses, pieces
from gputop.diagnose.substitutes import Substitutes
from gputop.diagnose.sums import Followed, Sums
from gputop.diagnose.tree import TREE, added_up, compiles, key, members
from gputop.history import GPU, HOST, History, Key
from gputop.known import total
from gputop.model import Frame, Identity, Process

_DESCRIBED = 2  # cards at each look whose rhythm is worked out; one a second where looks are rarer
_PHASE_S, _PHASE_LOOKS = 10.0, 3  # of other work than before make a phase: so many seconds, so many frames at least
_PHASE_POINTS, _PHASE_LEAST_S, _PHASE_MOST_S = 30.0, 30.0, 300.0
_SURE = 3.0  # standard errors of a mean over these looks: work with gaps of seconds varies that much by itself
_WORK_PERCENT = 1.0  # busy: less is no work
_LEFT_S, _LEFT_LOOKS = 30.0, 10  # of work on other GPUs alone, in so many looks at least: one is left unused
_KEPT_S = 900.0  # notes of a rule about something that is gone
_COSTS = {"cost_percent": 0, "driver_percent": 1}  # of this monitor, by which it is followed
_BEGUN_S = 300.0  # age at which a trainer that was there before anybody looked has most likely begun to work
_STARTS_S = 10.0  # to start costs more than anything later
_RARE_S = 60.0  # between two frames: what is longer is a gap


@dataclass(slots=True)
class Known:
    """One trainer over time."""

    context_s: float | None = None  # mono time at which its context began, as far as is known
    worked: bool = False  # its GPU has been busy
    work_s: float = 0.0  # in which it worked on any of its GPUs
    worked_s: dict[str, float] = field(default_factory=dict)  # how much of that there was at its last work on each
    works_on: frozenset[str] = frozenset()  # those that it does not leave unused, by uuid; none before its first work
    phase_s: float = 0.0  # mono time at which its phase began, as far as is known
    first_s: float = 0.0  # mono time at which it was seen first
    compiled_s: float = -math.inf  # when a compiler worked for it
    recent: deque[tuple[float, float, float]] = field(default_factory=deque)  # (when, busy, seconds it stands for)
    mean: float | None = None  # busy, of this phase before them
    square: float = 0.0  # mean square of the distance from it
    seconds: float = 0.0  # that this mean is of
    pauses: Pauses = field(default_factory=Pauses)  # in which its GPUs had no work

    def work(self, values: Mapping[str, float | None], seconds: float) -> bool:
        """Take in how busy its GPUs are; whether it leaves one from now on. Who opens all of them may work on one."""
        busy = [uuid for uuid, value in values.items() if (value or 0.0) >= _WORK_PERCENT]
        self.work_s += min(seconds, _LEFT_S / _LEFT_LOOKS) if busy else 0.0  # while all wait none is left
        self.worked_s.update(dict.fromkeys(busy, self.work_s))
        before, least_s = self.works_on.intersection(values), self.work_s - _LEFT_S
        self.works_on = frozenset(uuid for uuid in values if self.worked_s.get(uuid, -math.inf) >= least_s)
        return bool(before - self.works_on)

    def learn(self, percent: float, seconds: float) -> None:
        """Take what was seen for some seconds into the mean of the phase."""
        seconds = min(max(seconds, LEAST_S), _PHASE_MOST_S)
        self.seconds = min(self.seconds + seconds, _PHASE_MOST_S)
        mean = percent if self.mean is None else self.mean
        self.mean = mean + (percent - mean) * seconds / self.seconds
        self.square += ((percent - self.mean) ** 2 - self.square) * seconds / self.seconds

    def begin(self, at_s: float) -> None:
        """Begin another phase."""
        self.phase_s, self.seconds, self.mean, self.square = at_s, 0.0, None, 0.0
        self.recent.clear()


@dataclass(slots=True)
class Note:
    """What a rule wrote down about one subject."""

    used_s: float = 0.0  # mono time at which it was asked for last
    found: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Remembered:
    """All of it. Forgotten when a recording is taken back."""

    cards: dict[str, Card] = field(default_factory=dict)
    trainers: dict[Identity, Known] = field(default_factory=dict)
    trees: dict[Identity, list[Process]] = field(default_factory=dict)
    tenants: dict[str, list[Process]] = field(default_factory=dict)  # who computes on a GPU
    notes: dict[tuple[str, Key], Note] = field(default_factory=dict)
    restarted: set[Identity] = field(default_factory=set)  # trainers whose phase began since rules were asked last
    substitutes: Substitutes = field(default_factory=Substitutes)
    highest_mhz: dict[str, float] = field(default_factory=dict)  # SM clock of GPUs, by uuid
    sums: Sums = field(default_factory=Sums)  # of GPUs, trees and the host, by their key in the history
    looked: bool = False
    first_s: float | None = None  # mono time of the first frame
    newest_s: float | None = None
    step_s: float = 1.0  # between the last two frames
    usual_step_s: float = 1.0  # the same, as it mostly is

    def add(self, frame: Frame, history: History) -> None:
        """Take in a frame: the same work at every tick, whatever the rules ask."""
        stands_for_s = self._stands_for(frame.mono_s)
        followed: list[Followed] = [("host", HOST.names, HOST.values(frame.host))]
        if self.first_s is not None and frame.mono_s - self.first_s >= _STARTS_S:
            followed.append(("monitor", _COSTS, (frame.cost_percent, frame.driver_percent)))
        self.first_s = frame.mono_s if self.first_s is None else self.first_s
        for gpu in frame.gpus:
            if gpu.sm_clock_max_mhz is not None:
                self.highest_mhz[gpu.uuid] = gpu.sm_clock_max_mhz
            if gpu.condition == "ok" and gpu.age_s == 0:
                self.cards.setdefault(gpu.uuid, Card()).add(gpu, frame.mono_s)
                followed.append((gpu.uuid, GPU.names, GPU.values(gpu)))
        if frame.processes:
            self.trees, self.tenants = members(frame), _tenants(frame)
            busy = {identity: self._busy(frame, tree[0], stands_for_s) for identity, tree in self.trees.items()}
            rows = {key(one): TREE.values(added_up(tree, busy[one])) for one, tree in self.trees.items()}
            history.put(TREE, list(rows), rows.values())
            followed += [(about, TREE.names, values) for about, values in rows.items()]
            self._follow_all(frame.mono_s, stands_for_s, busy)
        self.sums.add(frame.mono_s, stands_for_s, followed)

    def _follow_all(self, now_s: float, stands_for_s: float, busy: Mapping[Identity, float | None]) -> None:
        """In which phase each trainer is; `busy` are its GPUs, percent."""
        for identity, percent in busy.items():
            known = self._known(now_s, self.trees[identity][0])
            if compiles(self.trees[identity]):
                known.compiled_s = now_s
            if percent is not None:
                self._follow(identity, now_s, percent, stands_for_s)
        self.looked = True
        for gone in self.trainers.keys() - self.trees.keys():
            del self.trainers[gone]
            self.sums.drop(key(gone))

    def _stands_for(self, now_s: float) -> float:
        """Seconds that a frame stands for: since the last one, unless there was a gap of which nobody knows."""
        since_s = self.step_s if self.newest_s is None else now_s - self.newest_s
        gap = _is_gap(since_s, self.step_s)
        self.newest_s, self.step_s = now_s, since_s
        self.usual_step_s += (min(since_s, _RARE_S) - self.usual_step_s) / 8
        return 1.0 if gap else since_s

    def describe(self, now_s: float, since_s: float) -> None:
        """Bring some shapes up to date, the unknown and the oldest first; the last look was `since_s` ago."""
        due = [card for card in self.cards.values() if card.due(now_s)]
        due.sort(key=lambda card: (card.shape is not None, card.shaped_s))
        for card in due[: max(_DESCRIBED, round(since_s))]:
            card.describe(now_s)

    def note(self, rule: str, subject: Key, now_s: float) -> dict[str, Any]:
        """The notes of a rule about one subject, to be changed in place."""
        note = self.notes.get((rule, subject))
        if note is None:
            if len(self.notes) >= 4096:
                self.notes = {about: kept for about, kept in self.notes.items() if now_s - kept.used_s < _KEPT_S}
            note = self.notes[rule, subject] = Note()
        note.used_s = now_s
        return note.found

    def _busy(self, frame: Frame, trainer: Process, stands_for_s: float) -> float | None:
        """How busy the GPUs are that it works on, percent; None where one of all that it holds does not tell."""
        values: dict[str, float | None] = {}
        own = True  # whether what its GPUs do is its work alone
        for share in trainer.gpus:
            gpu = frame.by_uuid.get(share.uuid)
            if gpu is None or share.kind == "graphics":
                continue
            # what stands in for the whole is not told by process: of neighbours each has its gaps at least
            alone = len(self.tenants.get(share.uuid, ())) <= 1 or share.uuid in self.substitutes.of
            values[share.uuid] = gpu.busy_percent if alone else share.busy_percent
            own = own and alone
        known = self._known(frame.mono_s, trainer)
        if known.work(values, stands_for_s):
            known.begin(frame.mono_s)  # means of before are those of more GPUs
            self.restarted.add(trainer.identity)
        counted = known.works_on or values.keys()
        added = total([value for uuid, value in values.items() if value is None or uuid in counted])
        mean = added / len(counted) if values and added is not None else None
        gpus = [frame.by_uuid[uuid] for uuid in values if uuid in counted] if own else []
        for piece in pieces(gpus, mean, known.pauses.seen_s, frame.mono_s, stands_for_s):
            known.pauses.take(piece)
        return mean

    def _known(self, now_s: float, trainer: Process) -> Known:
        known = self.trainers.get(trainer.identity)
        if known is None:
            known = self.trainers[trainer.identity] = Known(phase_s=now_s, first_s=now_s)
            if not self.looked:
                # it was there before anybody looked: it does what it does since it started
                known.phase_s = now_s - (trainer.age_s or 0.0)
                known.context_s = known.phase_s if trainer.gpus else None
                known.pauses.begun = bool(trainer.gpus) and (trainer.age_s or 0.0) >= _BEGUN_S
        if known.context_s is None and trainer.gpus:
            known.context_s = now_s
        return known

    def _follow(self, identity: Identity, now_s: float, busy: float, stands_for_s: float) -> None:
        known = self.trainers[identity]
        known.worked = known.worked or busy > 0
        recent = known.recent
        gap = bool(recent) and _is_gap(now_s - recent[-1][0], stands_for_s)
        while recent and (gap or (len(recent) >= _PHASE_LOOKS and recent[0][0] <= now_s - _PHASE_S)):
            known.learn(*recent.popleft()[1:])
        recent.append((now_s, busy, stands_for_s))
        if self._changed(known, now_s):
            known.begin(min(now_s - _PHASE_S, recent[0][0]))
            self.restarted.add(identity)
            for share in self.trees[identity][0].gpus:
                if share.uuid in self.cards:
                    self.cards[share.uuid].restart()

    def _changed(self, known: Known, now_s: float) -> bool:
        """Whether its GPUs are 30 points more or less busy than before, for ten seconds, and that not by chance."""
        if known.mean is None or known.seconds < _PHASE_S or now_s - known.phase_s < _PHASE_LEAST_S:
            return False
        first_s, _, stands_for_s = known.recent[0]
        if len(known.recent) < _PHASE_LOOKS or first_s - stands_for_s > now_s - _PHASE_S + LEAST_S:
            return False
        # who looks more often than every second sees what the driver says of a second several times
        chance = _SURE * math.sqrt(known.square / min(len(known.recent), _PHASE_S))
        values = [percent - known.mean for _, percent, _ in known.recent]
        newest = _mean(values)
        return abs(newest) > max(_PHASE_POINTS, chance) and not _pause(values, newest)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _pause(values: Sequence[float], newest: float) -> bool:
    """Whether the first or the last third is as before: a pause that is over, or a change that must first last."""
    third = len(values) // 3
    ends = (_mean(values[:third]), _mean(values[-third:]))
    return min(end * math.copysign(1.0, newest) for end in ends) < _PHASE_POINTS


def _is_gap(since_s: float, step_s: float) -> bool:
    """Whether nobody looked between two frames that should have been one step apart."""
    return since_s > 2 * step_s + 1


def _tenants(frame: Frame) -> dict[str, list[Process]]:
    found: dict[str, list[Process]] = {}
    for process in frame.processes:
        for share in process.gpus:
            if share.kind != "graphics":
                found.setdefault(share.uuid, []).append(process)
    return found
