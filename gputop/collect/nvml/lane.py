"""The lane of the GPUs: a daemon thread that sweeps the driver, and a substitute each time that a call hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from threading import Event, Lock, Thread

from gputop.collect.lane import pause
from gputop.collect.nvml import notes
from gputop.collect.nvml.device import Device
from gputop.collect.nvml.devices import FIRST, START_S
from gputop.collect.nvml.gate import HANG_S, DriverCall, DriverGate, Late
from gputop.collect.nvml.reader import NvmlReader
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Condition, Gpu, GpuShare, Note, Samples

LOOK_S = 0.1  # how often who waits for the GPUs looks whether they are there
PRIME_S = 0.12  # the second sweep follows soon: rates need two samples, GPM samples 100 ms apart
MOST_STUCK = 8  # threads that may be inside calls on GPUs that hang, and try such GPUs again
WAIT_S = 1.0  # the driver as a whole, and a GPU that starts, may take so long before it is said


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """What the driver said last."""

    taken_s: float  # of the monotonic clock
    gpus: tuple[Gpu, ...] = ()
    shares: Mapping[int, tuple[GpuShare, ...]] = field(default_factory=dict)  # by the pid the driver names
    notes: tuple[Note, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    driver_percent: float | None = None  # of the time, inside calls about all GPUs together
    interval_s: float = 1.0  # between two sweeps, slowed down


class LaneThread:
    """One thread's life in the lane."""

    def __init__(self, gate: DriverGate, holds: int | None = None) -> None:
        self.gate = gate
        self.holds = holds  # the GPU that it alone asks: in which it is stuck since it was replaced, or which it tries

    def stuck(self, now_s: float) -> DriverCall | None:
        """The call it has been inside for too long."""
        at = self.gate.at
        return at if at is not None and now_s - at.since_s > HANG_S else None


class GpuLane:
    """Sweeps every `interval_s`, which may be set while it runs. Nothing joins its threads, `latest` never waits."""

    def __init__(
        self,
        interval_s: float = 1.0,
        gpm: str = "auto",
        enabled: bool = True,
        clock: Callable[[], float] = time.monotonic,
        sys_root: str = "/sys",
        proc_root: str = "/proc",
        extended: bool = False,
    ) -> None:
        self.interval_s = interval_s
        self._enabled = enabled
        self._clock = clock
        self._reader = NvmlReader(clock=clock, sys_root=sys_root, proc_root=proc_root, gpm_mode=gpm)
        self._reader.extended = extended
        self._workers: list[LaneThread] = []  # the last one sweeps, each other one holds a GPU
        self._watching = Lock()
        self._stopped, self._released, self._swept = Event(), Event(), Event()
        self._started_s = clock()
        self._broken: Note | None = None
        self._shares: tuple[tuple[Mapping[int, GpuShare], ...], Mapping[int, tuple[GpuShare, ...]]] = ((), {})

    def read_extended(self, wanted: bool) -> None:
        """Whether the extended tier of metrics is read as well, from the next sweep on."""
        self._reader.extended = wanted

    def start(self) -> None:
        """Begin to read."""
        if self._enabled:
            self._hire()
        else:
            self._swept.set()

    def settled(self, until_s: float, *, whole: bool = False) -> bool:
        """Wait for the first sweep, no longer than until this time of the clock; a hung driver has none.

        `whole`: and until something is known of every GPU, longer while one of them starts.
        """
        while True:
            known = self.latest()  # replaces a thread that is stuck
            swept = self._swept.is_set()
            if swept and not (whole and self._partly(known)):
                return True
            now_s = self._clock()
            if whole and self._starting(now_s):
                until_s = max(until_s, now_s + HANG_S)
            if now_s >= until_s:
                return False
            (self._stopped if swept else self._swept).wait(min(LOOK_S, until_s - now_s))

    def _partly(self, known: Gpus) -> bool:
        """Whether there are GPUs of which nothing can be said yet, and will be."""
        starting = any(gpu.condition == "starting" for gpu in known.gpus)
        some = starting or len(known.gpus) < sum(1 for _ in self._reader.cards())
        return some and self._reader.connection.is_open

    def _starting(self, now_s: float) -> dict[int, float]:
        """The GPUs that the driver initialises, and since when.

        After too long a time it is a call that hangs, and so is a later one that takes long.
        """
        starting = dict(self._reader.fleet.starting)
        stuck = [call for worker in list(self._workers) if (call := worker.stuck(now_s))]
        hung = {call.gpu for call in stuck if call.name != FIRST}
        return {at: since_s for at, since_s in starting.items() if now_s - since_s <= START_S and at not in hung}

    def stop(self) -> None:
        """Let the thread end after the call it is in; nobody waits for that."""
        self._stopped.set()

    @property
    def released(self) -> bool:
        """Whether the driver was let go of, and not taken again."""
        return self._released.is_set()

    def release(self) -> None:
        """Let go of the driver, so that an administrator can reset a GPU; `resume` takes it again."""
        self._released.set()

    def resume(self) -> None:
        """Open the driver again."""
        self._released.clear()

    def latest(self, frame_s: float | None = None) -> Gpus:
        """What is known now, values that are not fresh with their age; replaces a thread that is stuck.

        `frame_s`: of the frame that they are for, now where there is none. The ages of samples are relative to it.
        """
        now_s = self._clock()
        frame_s = now_s if frame_s is None else frame_s
        with self._watching:
            self._watch(now_s)
        workers = list(self._workers)
        unwell: dict[int | None, tuple[Condition, float]] = {
            call.gpu: ("hung", call.since_s) for worker in workers if (call := worker.stuck(now_s))
        }
        starting = self._starting(now_s).items()
        unwell |= {index: ("starting", since_s) for index, since_s in starting if now_s - since_s > WAIT_S}
        cards = list(self._reader.cards())
        every_s = self.interval_s * self._reader.pace.factor
        aged = (_aged(card, now_s, frame_s, unwell.get(card.index), every_s) for card in cards)
        connection = self._reader.connection
        return Gpus(
            taken_s=max((card.read_s for card in cards), default=now_s),
            gpus=tuple(gpu for gpu in aged if gpu is not None),
            shares=self._merged(cards),
            notes=tuple(self._notes(workers, now_s, every_s)),
            driver_version=connection.driver_version,
            cuda_version=connection.cuda_version,
            driver_percent=self._reader.pace.driver_percent,
            interval_s=every_s,
        )

    def _watch(self, now_s: float) -> None:
        worker = self._workers[-1] if self._workers else None
        call = worker.stuck(now_s) if worker and worker.holds is None else None
        if worker is None or call is None or call.gpu is None:
            return
        held = self._held(worker)
        others = self._reader.fleet.rows.keys() - held - {call.gpu}
        if others and len(held) < MOST_STUCK and worker.gate.supersede(call):
            worker.holds = call.gpu
            self._hire()

    def _hire(self) -> None:
        worker = LaneThread(DriverGate(self._reader.costs, self._clock))
        self._workers = [*self._workers, worker]
        Thread(target=self._run, args=(worker,), name="gpus", daemon=True).start()

    def _try(self, index: int) -> None:
        """Ask a GPU that hung once more, in a thread that nobody waits for: it may hang again."""
        worker = LaneThread(DriverGate(self._reader.costs, self._clock), index)
        self._workers = [worker, *self._workers]
        Thread(target=self._knock, args=(worker, index), name="gpus", daemon=True).start()

    def _knock(self, worker: LaneThread, index: int) -> None:
        try:
            self._guarded(lambda: self._reader.knock(worker.gate, index))
        finally:
            self._leave(worker)

    def _run(self, worker: LaneThread) -> None:
        try:
            while not self._stopped.is_set():
                began_s, tick = self._clock(), self._reader.tick
                self._sweep(worker)
                self._swept.set()
                self._rest(worker, began_s, first=tick == 0 < self._reader.tick)
        except Late:
            pass  # another thread has taken over
        finally:
            if self._stopped.is_set():
                self._reader.stop()
            self._leave(worker)

    def _leave(self, worker: LaneThread) -> None:
        with self._watching:
            self._workers = [other for other in self._workers if other is not worker]

    def _rest(self, worker: LaneThread, began_s: float, *, first: bool) -> None:
        ended_s = self._clock()

        def left_s() -> float:
            # the first sweep reads everything, and may well take longer than that itself
            due_s = ended_s + PRIME_S if first else began_s + self.interval_s * self._reader.pace.factor
            return due_s - self._clock()

        held = self._held(worker)
        before_s = self._reader.before_sweep_s(held)
        if before_s and not self._released.is_set() and not pause(self._stopped, lambda: left_s() - before_s):
            self._guarded(lambda: self._reader.begin(worker.gate, held))
        pause(self._stopped, left_s)

    def _held(self, worker: LaneThread) -> frozenset[int]:
        """The GPUs in which other threads are stuck, or which they try."""
        return frozenset(other.holds for other in self._workers if other is not worker and other.holds is not None)

    def _avoided(self, worker: LaneThread) -> frozenset[int]:
        """The GPUs that a sweep leaves to others: those that hung are tried first, as far as there are threads."""
        held = self._held(worker)
        if self._released.is_set() or not self._reader.connection.is_open:
            return held
        rested = [index for index in self._reader.rested() if index not in held]
        with self._watching:
            for index in rested[: max(0, MOST_STUCK - len(held))]:
                self._try(index)
        return held.union(rested)

    def _sweep(self, worker: LaneThread) -> None:
        held = self._avoided(worker)
        if self._released.is_set():
            done = held or self._guarded(lambda: self._reader.release(worker.gate))
        else:
            done = self._guarded(lambda: self._reader.sweep(worker.gate, held))
        if not done:
            self._reader.tick += 1

    def _guarded(self, read: Callable[[], object]) -> bool:
        """Whether our own code got through: one bad sweep costs one tick, never the lane."""
        try:
            read()
            self._broken = None
        except Late:
            raise
        except Exception as error:
            self._broken = notes.broken(f"{type(error).__name__}: {error}")
            return False
        return True

    def _merged(self, cards: list[Device]) -> Mapping[int, tuple[GpuShare, ...]]:
        """Shares by pid over all GPUs, made again only when one of them changed."""
        parts = tuple(card.shares for card in cards)
        before, merged = self._shares
        if len(parts) != len(before) or any(part is not old for part, old in zip(parts, before, strict=True)):
            pids: dict[int, tuple[GpuShare, ...]] = {}
            for part in parts:
                for pid, share in part.items():
                    pids[pid] = (*pids.get(pid, ()), share)
            merged = pids
            self._shares = parts, merged
        return merged

    def _notes(self, workers: list[LaneThread], now_s: float, every_s: float) -> Iterator[Note]:
        if not self._enabled:
            yield notes.OFF
        if self._released.is_set():
            yield notes.RELEASED
        for at in [worker.gate.at for worker in workers]:
            if not self._swept.is_set() and not self._reader.fleet.rows:
                yield notes.waiting(now_s - self._started_s)
            elif at is not None and at.gpu is None and now_s - at.since_s > WAIT_S:
                yield notes.waiting(now_s - at.since_s)
        yield from self._reader.notes()
        if self._reader.pace.factor > 1:
            pace = self._reader.pace
            yield notes.slow(every_s, pace.call_s, pace.driver_percent)
        if self._broken:
            yield self._broken


def _aged(
    card: Device, now_s: float, frame_s: float, unwell: tuple[Condition, float] | None, every_s: float
) -> Gpu | None:
    """A card's last values as of now: fresh ones as they are, others with their age and condition."""
    # a MIG instance is lost, hung or asleep with its GPU
    unit = card.parent if card.parent and card.parent.condition != "ok" else card
    known: tuple[Condition, float] = unit.condition, unit.since_s
    condition, since_s = known if unwell is None or unit.condition == "hung" else unwell  # it hangs once more
    age_s = now_s - card.read_s
    gpu = card.gpu
    if condition == "ok" and gpu is None:
        return None
    if gpu is not None:
        gpu = replace(gpu, busy_samples=_before(gpu.busy_samples, frame_s - card.read_s))
    if gpu is not None and condition == "ok" and age_s < 2 * every_s + WAIT_S:
        return gpu
    if gpu is None:
        gpu = Gpu(uuid=card.uuid, index=card.label, name=card.name, pci_bus_id=card.bus_id)
    return replace(gpu, condition=condition, condition_s=now_s - since_s, age_s=age_s)


def _before(samples: Samples, since_s: float) -> Samples:
    """Samples of a sweep as of a frame, which comes at its own time; what was taken after it is for the next one."""
    moved = (1000 * ago_s + 1000 * since_s for ago_s, _ in samples)
    return tuple([(round(ms) / 1000, value) for ms, (_, value) in zip(moved, samples, strict=True) if ms >= 0])
