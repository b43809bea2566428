"""What the engine remembers from tick to tick: GPUs, contexts, phases, and the notes of the rules."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gputop.diagnose import use
from gputop.diagnose.card import FRESH_S, LEAST_S, Card
from gputop.diagnose.pauses import Pauses, pieces
from gputop.diagnose.substitutes import Substitutes
from gputop.diagnose.sums import Followed, Sums
from gputop.diagnose.tree import TREE, added_up, compiles, key, members
from gputop.diagnose.turns import Turns, turns
from gputop.history import GPU, HOST, History, Key
from gputop.known import total
from gputop.model import Frame, Identity, Process

_DESCRIBED = 2  # cards at each look whose rhythm is worked out; one a second where looks are rarer
_PHASE_S, _PHASE_LOOKS = 10.0, 3  # of other work than before make a phase: so many seconds, so many frames at least
_PHASE_POINTS, _PHASE_LEAST_S, _PHASE_MOST_S = 30.0, 30.0, 300.0
_FED_PERCENT = 85.0  # busy: a GPU that is, waits for nothing, as starved.duty_exit says
_WAITS_PERCENT = 78.0  # a GPU that is less busy waits again: between the two it is as it was
_FED_S, _FED_MEAN_S = 8.0, 5.0  # for which it is so, by the mean of so many seconds; its rhythm may ask for more
_WAITED_S, _LATELY_S = 12.0, 40.0  # of waiting lately, that is over then: less says nothing of what it does
_FED_TIMES, _RHYTHM_S = 1.5, 120.0  # of the longest such time between two others in the last seconds
_SWINGS, _SWINGS_S, _SWINGS_KEPT = 2, 160.0, 32  # of one direction in so many seconds: the next is no phase
_SURE = 3.0  # standard errors of a mean over these looks: work with gaps of seconds varies that much by itself
_WORK_PERCENT = 1.0  # busy: less is no work
_LEFT_S, _LEFT_LOOKS = 30.0, 10  # of work on other GPUs alone, in so many looks at least: one is left unused
_TURNS_S, _TURNS_MOST, _TURNS_LEAST = 30.0, 200.0, 90  # of the sum in percent; samples, in a series that is whole
_FULLER = 1.15  # memory of the first GPU against any other
_KEPT_S = 900.0  # notes of a rule about something that is gone
_COSTS = {"cost_percent": 0, "driver_percent": 1}  # of this monitor, by which it is followed
_BEGUN_S = 300.0  # age at which a trainer that was there before anybody looked has most likely begun to work
_STARTS_S = 10.0  # to start costs more than anything later
_OPENS_S = 3.0  # after its first answer a driver may name its processes one look later
_RARE_S = 60.0  # between two frames: what is longer is a gap


class Turn(NamedTuple):
    """How a trainer began another phase: when, and how busy its GPUs were and are, percent."""

    at_s: float
    before: float | None = None
    now: float | None = None

    @property
    def fed(self) -> bool:
        """Whether its GPUs wait for nothing from then on."""
        return self.now is not None and self.now >= _FED_PERCENT

    @property
    def down(self) -> bool:
        """Whether its GPUs are less busy from then on."""
        return None not in (self.before, self.now) and self.now < self.before  # type: ignore[operator]


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
    watched_s: float = 0.0  # the same, since the last gap in which nobody looked
    compiled_s: float = -math.inf  # when a compiler worked for it
    recent: deque[tuple[float, float, float]] = field(default_factory=deque)  # (when, busy, seconds it stands for)
    mean: float | None = None  # busy, of this phase before them
    square: float = 0.0  # mean square of the distance from it
    seconds: float = 0.0  # that this mean is of
    pauses: Pauses = field(default_factory=Pauses)  # in which its GPUs had no work
    turns: Turns | None = None  # its GPUs, or those of its job, where they work in turns
    turned_s: float = -math.inf  # when that was looked at last
    fed_s: float | None = None  # mono time since when its GPUs wait for nothing; None while they do
    fed: deque[tuple[float, float]] = field(default_factory=deque)  # such times: from when until when
    extreme: float = 0.0  # busy, the most or the least since its work turned last to more or to less
    # when it did, and whether to less
    swings: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=_SWINGS_KEPT))

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

    def feed(self, now_s: float) -> None:
        """Take in how its work turns to more and to less, and whether its GPUs wait, by the mean of some seconds."""
        newest = [percent for when, percent, _ in self.recent if when > now_s - _FED_MEAN_S] or [self.recent[-1][1]]
        mean, down = _mean(newest), bool(self.swings) and self.swings[-1][1]
        self.extreme = min(self.extreme, mean) if down else max(self.extreme, mean)
        if abs(mean - self.extreme) >= _PHASE_POINTS:
            self.swings.append((now_s, not down))
            self.extreme = mean
        if mean >= _FED_PERCENT:
            self.fed_s = now_s - _FED_MEAN_S / 2 if self.fed_s is None else self.fed_s
        elif self.fed_s is not None and mean < _WAITS_PERCENT:
            self.fed.append((self.fed_s, now_s - _FED_MEAN_S / 2))
            self.fed_s = None
        while self.fed and self.fed[0][0] < now_s - _RHYTHM_S:
            self.fed.popleft()

    def recovered(self, now_s: float) -> bool:
        """Whether its GPUs have stopped waiting: for longer than they do between two waits, if those come back."""
        if self.fed_s is None or self._waited_s(self.fed_s) < _WAITED_S:
            return False
        # a mean of seconds is as high for that much less than the work lasts
        usual_s = max((until_s - from_s + _FED_MEAN_S for from_s, until_s in self.fed), default=0.0)
        return now_s - self.fed_s >= max(_FED_S, _FED_TIMES * usual_s)

    def _waited_s(self, until_s: float) -> float:
        """For how long its GPUs waited, in this phase and lately."""
        first_s = max(self.phase_s, self.watched_s, until_s - _LATELY_S)
        return until_s - first_s - sum(max(0.0, end_s - max(first_s, from_s)) for from_s, end_s in self.fed)

    def alternates(self, turn: Turn, now_s: float) -> bool:
        """Whether such changes of its work come back every minute or so: they are its rhythm, and begin no phase."""
        until_s = now_s - _PHASE_S - _FED_MEAN_S / 2  # what is later is this change itself
        earlier = [when for when, down in self.swings if down == turn.down and now_s - _SWINGS_S < when < until_s]
        return len(earlier) >= _SWINGS

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
    restarted: dict[Identity, Turn] = field(default_factory=dict)  # whose phase began since rules were asked last
    substitutes: Substitutes = field(default_factory=Substitutes)
    highest_mhz: dict[str, float] = field(default_factory=dict)  # SM clock of GPUs, by uuid
    sums: Sums = field(default_factory=Sums)  # of GPUs, trees and the host, by their key in the history
    uses: dict[str, use.Row] = field(default_factory=dict)  # what each group of processes takes
    looked: bool = False
    first_s: float | None = None  # mono time of the first frame
    newest_s: float | None = None
    gpus_s: float | None = None  # mono time of the first frame with GPUs
    step_s: float = 1.0  # between the last two frames
    usual_step_s: float = 1.0  # the same, as it mostly is

    def add(self, frame: Frame, history: History) -> None:
        """Take in a frame: the same work at every tick, whatever the rules ask."""
        stands_for_s = self._stands_for(frame.mono_s)
        followed: list[Followed] = [("host", HOST.names, HOST.values(frame.host))]
        if self.first_s is not None and frame.mono_s - self.first_s >= _STARTS_S:
            followed.append(("monitor", _COSTS, (frame.cost_percent, frame.driver_percent)))
        self.first_s = frame.mono_s if self.first_s is None else self.first_s
        self.gpus_s = frame.mono_s if self.gpus_s is None and frame.gpus else self.gpus_s
        for gpu in frame.gpus:
            if gpu.sm_clock_max_mhz is not None:
                self.highest_mhz[gpu.uuid] = gpu.sm_clock_max_mhz
            if gpu.condition == "ok" and gpu.age_s == 0:
                self.cards.setdefault(gpu.uuid, Card()).add(gpu, frame.mono_s)
                followed.append((gpu.uuid, GPU.names, GPU.values(gpu)))
        if frame.processes:
            self.trees, self.tenants = members(frame), _tenants(frame)
            self.uses = use.added_up(frame.processes, frame.mono_s, self.uses)
            history.put(use.USE, list(self.uses), [(row.cores, row.moved) for row in self.uses.values()])
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
        for group in self._groups():
            known = self.trainers[group[0]]
            if now_s - known.turned_s >= FRESH_S:
                known.turned_s = now_s
                self._follow_turns(group, now_s)

    def _groups(self) -> Iterator[Sequence[Identity]]:
        """Who may share one model: a trainer with several GPUs, or the ranks of a job with one or more each."""
        jobs: dict[str, list[Identity]] = {}
        for identity, (trainer, *_) in self.trees.items():
            if trainer.job is not None and (trainer.talks or (trainer.world_size or 1) > 1):
                jobs.setdefault(trainer.job, []).append(identity)
            elif len(self.trainers[identity].works_on) > 1:
                yield (identity,)
        yield from (ranks for ranks in jobs.values() if len(ranks) > 1)

    def _follow_turns(self, group: Sequence[Identity], now_s: float) -> None:
        """Whether the GPUs of these work in turns: then how busy they are is their sum from now on."""
        before = self.trainers[group[0]].turns
        uuids = sorted({uuid for one in group for uuid in self.trainers[one].works_on})
        alone = all(len(self.tenants.get(uuid, ())) <= 1 for uuid in uuids)
        means = [self.sums.means(uuid, _TURNS_S, _TURNS_S / 2).get("busy_percent") for uuid in uuids]
        busy = sum(mean or 0.0 for mean in means)
        found = None
        if alone and len(uuids) > 1 and busy <= _TURNS_MOST and all(uuid in self.cards for uuid in uuids):
            series = {uuid: self.cards[uuid].series for uuid in uuids}
            alone = len(group) == 1
            short = alone and _in_pieces(self.trees[group[0]][0])
            found = turns(series, before=before is not None, alone=alone, may_be_short=short)
            if found is None and before is not None and min(map(len, series.values())) < _TURNS_LEAST:
                return  # too few samples since the series restarted to decide against it
        for one in group:
            known = self.trainers[one]
            if (known.turns and known.turns.uuids) != (found and found.uuids):
                known.begin(now_s)  # its means were of something else
                self.restarted[one] = Turn(now_s)
            known.turns = found

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
            # a substitute is measured per GPU: a process beside others is idle for at least the gaps of all
            alone = len(self.tenants.get(share.uuid, ())) <= 1 or share.uuid in self.substitutes.of
            values[share.uuid] = gpu.busy_percent if alone else share.busy_percent
            own = own and alone
        known = self._known(frame.mono_s, trainer)
        if known.work(values, stands_for_s):
            known.begin(frame.mono_s)  # means of before are those of more GPUs
            self.restarted[trainer.identity] = Turn(frame.mono_s)
        if known.turns is not None:
            mean, gpus = _together(frame, known.turns), []
        else:
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
            known = self.trainers[trainer.identity] = Known(phase_s=now_s, first_s=now_s, watched_s=now_s)
            if not self.looked:
                # it was there before anybody looked: it does what it does since it started
                known.phase_s = now_s - (trainer.age_s or 0.0)
                known.context_s = known.phase_s if trainer.gpus else None
                known.pauses.begun = bool(trainer.gpus) and (trainer.age_s or 0.0) >= _BEGUN_S
        if known.context_s is None and trainer.gpus:
            # a driver that opens slowly names only then who has long been there
            late = self.gpus_s is not None and now_s - self.gpus_s <= _OPENS_S
            known.context_s = min(now_s, known.phase_s) if late else now_s
            self.restarted[trainer.identity] = Turn(-math.inf)  # whether it has one can be judged at once
        return known

    def _follow(self, identity: Identity, now_s: float, busy: float, stands_for_s: float) -> None:
        known = self.trainers[identity]
        known.worked = known.worked or busy > 0
        recent = known.recent
        gap = bool(recent) and _is_gap(now_s - recent[-1][0], stands_for_s)
        known.watched_s = now_s if gap else known.watched_s
        while recent and (gap or (len(recent) >= _PHASE_LOOKS and recent[0][0] <= now_s - _PHASE_S)):
            known.learn(*recent.popleft()[1:])
        recent.append((now_s, busy, stands_for_s))
        known.feed(now_s)
        turn = self._turned(known, now_s)
        if turn is not None:
            self.restarted[identity] = turn
            self.begin(identity, turn.at_s)

    def begin(self, identity: Identity, at_s: float) -> None:
        """Begin another phase of a trainer."""
        self.trainers[identity].begin(at_s)
        for share in self.trees[identity][0].gpus:
            if share.uuid in self.cards:
                self.cards[share.uuid].restart()

    def _turned(self, known: Known, now_s: float) -> Turn | None:
        """Whether it does something else, as its GPUs tell: they wait no more, or do so much more or less."""
        if known.mean is None or known.seconds < _PHASE_S or now_s - known.phase_s < _PHASE_LEAST_S:
            return None
        first_s, _, stands_for_s = known.recent[0]
        if len(known.recent) < _PHASE_LOOKS or first_s - stands_for_s > now_s - _PHASE_S + LEAST_S:
            return None
        third = [percent for _, percent, _ in known.recent][-(len(known.recent) // 3) :]
        turn = Turn(_edge(known.recent, known.mean, _mean(third)), known.mean, _mean(third))
        if known.fed_s is not None and known.recovered(now_s):
            return turn._replace(at_s=known.fed_s)
        return turn if self._moved(known, known.mean) and not known.alternates(turn, now_s) else None

    def _moved(self, known: Known, before: float) -> bool:
        """Whether its GPUs are 30 points more or less busy than before, for ten seconds, and that not by chance."""
        # who looks more often than every second sees what the driver says of a second several times
        chance = _SURE * math.sqrt(known.square / min(len(known.recent), _PHASE_S))
        values = [percent - before for _, percent, _ in known.recent]
        newest = _mean(values)
        return abs(newest) > max(_PHASE_POINTS, chance) and not _pause(values, newest)


def _together(frame: Frame, turns: Turns) -> float | None:
    """How busy GPUs are of which one works at a time; None where one does not tell."""
    gpus = [frame.by_uuid.get(uuid) for uuid in turns.uuids]
    added = total([None if gpu is None else gpu.busy_percent for gpu in gpus])
    return None if added is None else min(100.0, added)


def _in_pieces(trainer: Process) -> bool:
    """Whether one process with several GPUs may well hold a part of one model on each, and no copy of it.

    With nn.DataParallel the first holds more, and other frameworks hold copies.
    """
    held = [share.vram_bytes or 0 for share in trainer.gpus]
    fuller = len(held) > 1 and held[0] > _FULLER * max(held[1:]) > 0
    return not fuller and (not trainer.libraries or "torch" in trainer.libraries)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _edge(recent: Sequence[tuple[float, float, float]], before: float, now: float) -> float:
    """Since when values are like those of now, and not as they were before."""
    best, added, at_s = 0.0, 0.0, recent[-1][0]
    for when, percent, stands_for_s in reversed(recent):
        added += (percent - (before + now) / 2) * math.copysign(1.0, now - before)
        if added > best:
            best, at_s = added, when - stands_for_s
    return at_s


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
