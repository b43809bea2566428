"""What the engine remembers between frames: GPUs, CUDA contexts, phases, and the notes of the rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputop.diagnose import neighbours
from gputop.diagnose.gpu_tracker import FRESH_S, GpuTracker
from gputop.diagnose.gpu_turns import Turns, turns
from gputop.diagnose.job_tree import TREE, is_compiling, key, members, tree_sums
from gputop.diagnose.pauses import busy_spans
from gputop.diagnose.phases import PhaseChange, TrainerPhases, any_work
from gputop.diagnose.running_means import Followed, RunningSums
from gputop.diagnose.substitutes import Substitutes
from gputop.history import GPU, HOST, History, Key
from gputop.model import Frame, Identity, Process
from gputop.optional_sums import total

_DESCRIBED = 2  # GPUs per evaluation to compute the rhythm of; one per second at longer intervals
_TURNS_S, _TURNS_MOST, _TURNS_LEAST = 30.0, 200.0, 90  # percentage points of the sum; samples in a complete series
_FULLER = 1.15  # memory of the first GPU relative to any other
_KEPT_S = 900.0  # departed GPUs, and a rule's notes on a subject that exists
_GONE = 64  # departed GPUs: a driver may give a MIG instance a new uuid each time
_SWEEP_S = 60.0
_COSTS = {"cost_percent": 0, "driver_percent": 1}  # of this monitor, by which a phase is tracked
_BEGUN_S = 300.0  # age at which a trainer that predates the monitor has most likely started its training
_STARTS_S = 10.0  # startup costs more than any later evaluation
_OPENS_S = 3.0  # a driver may name its processes one frame after its first answer
_RARE_S = 60.0  # between two frames: a longer interval is a gap


@dataclass(slots=True)
class RuleNotes:
    """A rule's notes on one subject."""

    used_s: float = 0.0  # mono time of the last access
    found: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class EngineState:
    """The whole state. Dropped when a recording is rewound."""

    cards: dict[str, GpuTracker] = field(default_factory=dict)
    trainers: dict[Identity, TrainerPhases] = field(default_factory=dict)
    trees: dict[Identity, list[Process]] = field(default_factory=dict)
    tenants: dict[str, list[Process]] = field(default_factory=dict)  # processes that compute on each GPU
    graphics_gpus: frozenset[str] = frozenset()  # GPUs with graphics processes: a desktop always works a little
    notes: dict[tuple[str, Key], RuleNotes] = field(default_factory=dict)
    restarted: dict[Identity, PhaseChange] = field(
        default_factory=dict
    )  # trainers with a phase that began since the last evaluation
    substitutes: Substitutes = field(default_factory=Substitutes)
    highest_mhz: dict[str, float] = field(default_factory=dict)  # SM clock by GPU uuid
    listed_s: dict[str, float] = field(default_factory=dict)  # mono time of each GPU's last appearance, oldest first
    sums: RunningSums = field(default_factory=RunningSums)  # of GPUs, trees and the host, by history key
    uses: dict[str, neighbours.GroupRow] = field(default_factory=dict)  # use of each group of processes
    looked: bool = False
    first_s: float | None = None  # mono time of the first frame
    newest_s: float | None = None
    gpus_s: float | None = None  # mono time of the first frame with GPUs
    swept_s: float = -math.inf  # mono time at which notes were last dropped
    step_s: float = 1.0  # between the last two frames
    usual_step_s: float = 1.0  # the typical interval

    def add(self, frame: Frame, history: History) -> None:
        """Take in a frame: the same work at every frame, independent of the rules."""
        stands_for_s = self._stands_for(frame.mono_s)
        followed: list[Followed] = [("host", HOST.names, HOST.values(frame.host))]
        if self.first_s is not None and frame.mono_s - self.first_s >= _STARTS_S:
            followed.append(("monitor", _COSTS, (frame.cost_percent, frame.driver_percent)))
        self.first_s = frame.mono_s if self.first_s is None else self.first_s
        self.gpus_s = frame.mono_s if self.gpus_s is None and frame.gpus else self.gpus_s
        self._forget(frame)
        for gpu in frame.gpus:
            if gpu.sm_clock_max_mhz is not None:
                self.highest_mhz[gpu.uuid] = gpu.sm_clock_max_mhz
            if gpu.condition == "ok" and gpu.age_s == 0:
                self.cards.setdefault(gpu.uuid, GpuTracker()).add(gpu, frame.mono_s)
                followed.append((gpu.uuid, GPU.names, GPU.values(gpu)))
        if frame.processes:
            self.trees, self.tenants, self.graphics_gpus = members(frame), _tenants(frame), _graphics_gpus(frame)
            self.uses = neighbours.group_uses(frame.processes, frame.mono_s, self.uses)
            history.put(neighbours.USE, list(self.uses), [(row.cores, row.moved) for row in self.uses.values()])
            busy = {identity: self._busy(frame, tree[0], stands_for_s) for identity, tree in self.trees.items()}
            rows = {
                key(one): TREE.values(tree_sums(tree, busy[one], self.trainers[one].touched))
                for one, tree in self.trees.items()
            }
            history.put(TREE, list(rows), rows.values())
            followed += [(about, TREE.names, values) for about, values in rows.items()]
            self._follow_all(frame.mono_s, stands_for_s, busy)
        self.sums.add(frame.mono_s, stands_for_s, followed)

    def _forget(self, frame: Frame) -> None:
        """Drop the state of GPUs that left long ago or are too many, and notes that are no longer used."""
        now_s = frame.mono_s
        for gpu in frame.gpus:
            self.listed_s.pop(gpu.uuid, None)
            self.listed_s[gpu.uuid] = now_s
        over = len(self.listed_s) - len(frame.by_uuid) - _GONE
        gone = [
            uuid for at, (uuid, last_s) in enumerate(self.listed_s.items()) if at < over or last_s < now_s - _KEPT_S
        ]
        for uuid in gone:
            del self.listed_s[uuid]
            self.cards.pop(uuid, None)
            self.highest_mhz.pop(uuid, None)
            self.substitutes.forget(uuid)
            self.sums.drop(uuid)
        if now_s - self.swept_s >= _SWEEP_S:
            self.swept_s = now_s
            self.notes = {about: kept for about, kept in self.notes.items() if now_s - kept.used_s < _KEPT_S}

    def _follow_all(self, now_s: float, stands_for_s: float, busy: Mapping[Identity, float | None]) -> None:
        """Update the phase of each trainer; `busy` is its GPU utilization in percent."""
        for identity, percent in busy.items():
            known = self._known(now_s, self.trees[identity][0])
            if is_compiling(self.trees[identity]):
                known.compiled_s = now_s
            if percent is not None:
                self._follow(identity, now_s, percent, stands_for_s)
        self.looked = True
        for gone in self.trainers.keys() - self.trees.keys():
            del self.trainers[gone]
            self.sums.drop(key(gone))

    def _stands_for(self, now_s: float) -> float:
        """Seconds that a frame stands for: since the last one, unless there was a gap."""
        since_s = self.step_s if self.newest_s is None else now_s - self.newest_s
        gap = _is_gap(since_s, self.step_s)
        self.newest_s, self.step_s = now_s, since_s
        self.usual_step_s += (min(since_s, _RARE_S) - self.usual_step_s) / 8
        return 1.0 if gap else since_s

    def describe(self, now_s: float, since_s: float) -> None:
        """Update some rhythm shapes, unknown and oldest first; the last evaluation was `since_s` ago."""
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
        """Processes that may share one model: a trainer with several GPUs, or the ranks of a job."""
        jobs: dict[str, list[Identity]] = {}
        for identity, (trainer, *_) in self.trees.items():
            if trainer.job is not None and (trainer.talks or (trainer.world_size or 1) > 1):
                jobs.setdefault(trainer.job, []).append(identity)
            elif len(self.trainers[identity].works_on) > 1:
                yield (identity,)
        yield from (ranks for ranks in jobs.values() if len(ranks) > 1)

    def _follow_turns(self, group: Sequence[Identity], now_s: float) -> None:
        """Update whether these GPUs work in turns: their utilization is their sum from then on."""
        before = self.trainers[group[0]].turns
        uuids = sorted({uuid for one in group for uuid in self.trainers[one].works_on})
        alone = all(len(self.tenants.get(uuid, ())) <= 1 for uuid in uuids)
        means = [self.sums.means(uuid, _TURNS_S, _TURNS_S / 2).get("busy_percent") for uuid in uuids]
        busy = sum(mean or 0.0 for mean in means)
        found = None
        if alone and len(uuids) > 1 and busy <= _TURNS_MOST and all(uuid in self.cards for uuid in uuids):
            series = {uuid: self.cards[uuid].series for uuid in uuids}
            alone = len(group) == 1
            short = alone and _model_is_split(self.trees[group[0]][0])
            found = turns(series, before=before is not None, alone=alone, may_be_short=short)
            if found is None and before is not None and min(map(len, series.values())) < _TURNS_LEAST:
                return  # too few samples since the series restarted to reject it
        for one in group:
            known = self.trainers[one]
            if (known.turns and known.turns.uuids) != (found and found.uuids):
                known.begin(now_s)  # its means describe something else
                self.restarted[one] = PhaseChange(now_s)
            known.turns = found

    def note(self, rule: str, subject: Key, now_s: float) -> dict[str, Any]:
        """A rule's notes on one subject; the caller changes them in place."""
        note = self.notes.get((rule, subject))
        if note is None:
            note = self.notes[rule, subject] = RuleNotes()
        note.used_s = now_s
        return note.found

    def _busy(self, frame: Frame, trainer: Process, stands_for_s: float) -> float | None:
        """Mean utilization in percent of the GPUs a trainer works on; None if one of its GPUs reports none."""
        values: dict[str, float | None] = {}
        touches: list[float | None] = []  # the same, but only its share on GPUs that others draw or compute on
        own = True  # whether the activity of its GPUs is its work alone
        for share in trainer.gpus:
            gpu = frame.by_uuid.get(share.uuid)
            if gpu is None or share.kind == "graphics":
                continue
            # a substitute is measured per GPU: a process that shares it is idle for at least the common gaps
            alone = len(self.tenants.get(share.uuid, ())) <= 1 or share.uuid in self.substitutes.of
            values[share.uuid] = gpu.busy_percent if alone else share.busy_percent
            touches.append(share.busy_percent if share.uuid in self.graphics_gpus else values[share.uuid])
            own = own and alone
        known = self._known(frame.mono_s, trainer)
        known.touched = any_work(touches)
        if known.record_work(values, stands_for_s):
            known.begin(frame.mono_s)  # earlier means are of more GPUs
            self.restarted[trainer.identity] = PhaseChange(frame.mono_s)
        if known.turns is not None:
            mean, gpus = _summed_busy(frame, known.turns), []
        else:
            counted = known.works_on or values.keys()
            added = total([value for uuid, value in values.items() if value is None or uuid in counted])
            mean = added / len(counted) if values and added is not None else None
            gpus = [frame.by_uuid[uuid] for uuid in values if uuid in counted] if own else []
        for piece in busy_spans(gpus, mean, known.pauses.seen_s, frame.mono_s, stands_for_s):
            known.pauses.add(piece)
        return mean

    def _known(self, now_s: float, trainer: Process) -> TrainerPhases:
        known = self.trainers.get(trainer.identity)
        if known is None:
            known = self.trainers[trainer.identity] = TrainerPhases(phase_s=now_s, first_s=now_s, watched_s=now_s)
            if not self.looked:
                # it predates the monitor: its phase began when it started
                known.phase_s = now_s - (trainer.age_s or 0.0)
                known.context_s = known.phase_s if trainer.gpus else None
                known.pauses.begun = bool(trainer.gpus) and (trainer.age_s or 0.0) >= _BEGUN_S
        if known.context_s is None and trainer.gpus:
            # a driver that opens slowly names long-running processes only then
            late = self.gpus_s is not None and now_s - self.gpus_s <= _OPENS_S
            known.context_s = min(now_s, known.phase_s) if late else now_s
            self.restarted[trainer.identity] = PhaseChange(-math.inf)  # whether it has a context can be judged at once
        return known

    def _follow(self, identity: Identity, now_s: float, busy: float, stands_for_s: float) -> None:
        known = self.trainers[identity]
        gap = bool(known.recent) and _is_gap(now_s - known.recent[-1][0], stands_for_s)
        turn = known.update(now_s, busy, stands_for_s, gap)
        if turn is not None:
            self.restarted[identity] = turn
            self.begin(identity, turn.at_s)

    def begin(self, identity: Identity, at_s: float) -> None:
        """Begin a new phase of a trainer."""
        self.trainers[identity].begin(at_s)
        for share in self.trees[identity][0].gpus:
            if share.uuid in self.cards:
                self.cards[share.uuid].restart()


def _summed_busy(frame: Frame, turns: Turns) -> float | None:
    """Summed utilization of GPUs of which one works at a time; None if one reports none."""
    gpus = [frame.by_uuid.get(uuid) for uuid in turns.uuids]
    added = total([None if gpu is None else gpu.busy_percent for gpu in gpus])
    return None if added is None else min(100.0, added)


def _model_is_split(trainer: Process) -> bool:
    """Whether a process with several GPUs probably has one model split across them, rather than replicas.

    With nn.DataParallel the first GPU holds more; other frameworks keep replicas.
    """
    held = [share.vram_bytes or 0 for share in trainer.gpus]
    fuller = len(held) > 1 and held[0] > _FULLER * max(held[1:]) > 0
    return not fuller and (not trainer.libraries or "torch" in trainer.libraries)


def _is_gap(since_s: float, step_s: float) -> bool:
    """Whether sampling stopped between two frames that should be one interval apart."""
    return since_s > 2 * step_s + 1


def _graphics_gpus(frame: Frame) -> frozenset[str]:
    shares = (share for process in frame.processes for share in process.gpus)
    return frozenset([share.uuid for share in shares if share.kind == "graphics"])


def _tenants(frame: Frame) -> dict[str, list[Process]]:
    found: dict[str, list[Process]] = {}
    for process in frame.processes:
        for share in process.gpus:
            if share.kind != "graphics":
                found.setdefault(share.uuid, []).append(process)
    return found
