"""The reader: every GPU's probes in turn, one sweep a tick, each GPU published as soon as it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gputop.collect.nvml import activity, clocks, gpm, links, notes, processes, samples, settings, thermal
from gputop.collect.nvml.cadence import Cadence, CallCosts
from gputop.collect.nvml.connection import DriverConnection
from gputop.collect.nvml.device import Device, came_late, extend, reads, rests
from gputop.collect.nvml.devices import Devices
from gputop.collect.nvml.gate import UNKNOWN, DriverGate, DriverGone, Late, Lost, Unanswered
from gputop.collect.nvml.probe import PROBES, ask, due, settle, sources
from gputop.collect.nvml.settings import Topology
from gputop.collect.nvml.xid_events import Xids
from gputop.model import Gpu, Missing, Note

READS = (
    activity,
    clocks,
    gpm,
    settings,
    thermal,
    links,
    links,
    processes,
    samples,
    settings,
    thermal,
    links,
)  # the modules that declare probes
FILLED = sources(PROBES)
COUNT_EVERY = 10  # ticks between two counts of the GPUs
CHILDREN_EVERY = 30  # ticks between two lists of MIG instances
REOPEN_S = 60.0  # between two attempts to open the driver again while every GPU is lost


class NvmlReader:
    """What is known of the driver and its GPUs. One thread at a time sweeps; others read what is published.

    A GPU that hung and has rested is tried by a separate thread, while the sweeps avoid it.
    """

    def __init__(self, *, clock: Callable[[], float], sys_root: str, proc_root: str, gpm_mode: str) -> None:
        self.costs = CallCosts()
        self.pace = Cadence(self.costs)
        self.connection = DriverConnection(sys_root, proc_root)
        self.fleet = Devices(sys_root)
        self._gpm = gpm.OFF if gpm_mode == "off" else None
        self.tick = 0
        self.extended = False  # whether the extended tier is read; may be set at any time
        self._xids = Xids()
        self._topology = Topology()
        self._traffic = links.LinkTraffic()
        self._reopen_s = float("-inf")
        self._clock = clock

    def cards(self) -> Iterator[Device]:
        """Every row: GPUs by index, each with its MIG instances after it."""
        for _, card in sorted(self.fleet.rows.items()):
            yield card
            yield from card.children

    def sweep(self, gate: DriverGate, avoid: frozenset[int]) -> None:
        """One tick: what is due, on every GPU but those in which another thread is stuck."""
        if not self._opened(gate, avoid):
            return
        gate.answered = gate.unknown = 0
        try:
            self._identify(gate, avoid)
            self._traffic.finish(self._awake(gate, avoid), gate)
            for slow in (False, True):
                for card in self.cards():
                    if card.index not in avoid:
                        self._serve(card, gate, slow)
            if gate.unknown and not gate.answered:
                raise DriverGone(UNKNOWN)
        except DriverGone as gone:
            self.connection.lose(gate, gone.code)
        self._finish(gate, avoid)

    def before_sweep_s(self, avoid: frozenset[int]) -> float:
        """How long before the next sweep `begin` is due; 0 where nothing needs it."""
        return (self._traffic.apart_s(self._rows(avoid)) or 0.0) if self.connection.is_open else 0.0

    def begin(self, gate: DriverGate, avoid: frozenset[int]) -> None:
        """The first of two samples close together; the sweep that follows makes the second."""
        if self.connection.is_open:
            self._traffic.begin(self._awake(gate, avoid), gate)

    def _rows(self, avoid: frozenset[int]) -> list[Device]:
        known = sorted(self.fleet.rows.items())
        return [card for at, card in known if at not in avoid and at not in self.fleet.unknown]

    def _awake(self, gate: DriverGate, avoid: frozenset[int]) -> list[Device]:
        """The GPUs that are read outside their own turn; one that hangs or sleeps is found in its turn."""
        found = []
        for card in self._rows(avoid):
            card.gate = gate
            try:
                if card.condition == "ok" and not rests(card) and not self._asleep(card, gate):
                    found.append(card)
            except Late as late:
                came_late(card, gate, late)
        return found

    def rested(self) -> Iterator[int]:
        """The GPUs that hung, by index, whose rest is over, and that have not been tried since."""
        for index, row in sorted(self.fleet.rows.items()):
            if row.condition == "hung" and row.rest_until_s and not rests(row):
                yield index

    def knock(self, gate: DriverGate, index: int) -> None:
        """Ask a GPU that has rested all there is to ask; one that answers in time is read by the next sweep."""
        card = self.fleet.rows.get(index)
        if card is None:
            return
        card.gate = gate
        try:
            if index in self.fleet.unknown:
                self.fleet.knock(index, gate)
            elif not self._asleep(card, gate):
                card.born = self.tick
                for slow in (False, True):
                    self._read(card, slow, card.born)
        except Late as late:
            came_late(card, gate, late)
            return
        except (Unanswered, DriverGone):
            pass  # an answer, too: the next sweep finds it
        card.rest_until_s = 0.0

    def release(self, gate: DriverGate) -> bool:
        """Let go of the driver; False while another thread is still inside it."""
        if not self._xids.stop():
            return False
        if self.connection.is_open:
            for card in self.cards():
                card.gate = gate  # that of a thread that was replaced lets nothing pass
                gpm.release(card)
            self.connection.close(gate)
        return True

    def stop(self) -> None:
        """Ask the thread that listens for errors to end."""
        self._xids.stop()

    def notes(self) -> Iterator[Note]:
        """What the header should say about the driver."""
        rows = self.fleet.rows
        if self.connection.note:
            yield self.connection.note
        elif self.connection.is_open and not rows:
            yield notes.denied(self.fleet.denied) if self.fleet.denied else notes.NO_GPUS
        elif rows and all(card.condition == "asleep" for card in rows.values()):
            yield notes.ASLEEP
        if rows and self.fleet.denied:
            yield notes.denied(self.fleet.denied)
        if self.fleet.twins:
            yield notes.TWINS
        if any(card.kept.get(processes.OLD_DRIVER) for card in rows.values()):
            yield notes.OLD
        if faults := sorted({fault for card in self.cards() for fault in card.broken.values()}):
            yield notes.broken(faults[0])

    def _opened(self, gate: DriverGate, avoid: frozenset[int]) -> bool:
        if self.connection.is_open:
            return True
        if avoid or not self.connection.due(self._clock()) or not self._xids.stop():
            return False  # too early, or another thread is inside the driver
        if not self.connection.worked and self.fleet.sleepers(gate):
            return False
        if self.connection.open(gate):
            self.fleet.void()
            self.fleet.renumber(list(self.fleet.rows), gate)
        return self.connection.is_open

    def _identify(self, gate: DriverGate, avoid: frozenset[int]) -> None:
        try:
            if self.tick % COUNT_EVERY == 0 or not self.fleet.counted:
                self.fleet.count(gate)
        except Unanswered:
            pass
        self.fleet.identify(gate, self.tick, avoid)

    def _serve(self, card: Device, gate: DriverGate, slow: bool) -> None:
        now_s = self._clock()
        if rests(card) or card.index in self.fleet.unknown or self.tick < card.born:
            return
        card.gate, card.driver = gate, self.connection.release
        try:
            if self._asleep(card, gate):
                card.turn("asleep", now_s)
                return
        except Late as late:
            came_late(card, gate, late)
            return
        if card.condition != "ok" and not slow:
            card.born = self.tick  # it is back: read everything
        card.gpm = self._gpm
        if card.extended != self.extended:
            gpm.release_details(card)
            extend(card, self.extended, self.tick)
        before, answered, unknown = dict(card.answers), gate.answered, gate.unknown
        try:
            self._read(card, slow, self.tick)
        except Lost:
            card.lose(now_s)
            self.fleet.unknown.add(card.index)
        except Late as late:
            self.fleet.started(card.index)
            came_late(card, gate, late)
        else:
            if gate.answered > answered:
                card.heard_tick = self.tick
            elif gate.unknown > unknown and card.heard_tick != self.tick:
                card.unheard_tick = self.tick
            if card.unheard_tick == self.tick != card.heard_tick:
                card.answers = before  # no answer: what was known stays, and ages
                settle(card, (name for name in FILLED if reads(card, name)), FILLED)
                return
            card.turn("ok", now_s)
            card.read_s = self._clock()
        if slow or card.condition != "ok" or card.born == self.tick:
            self._publish(card)

    def _asleep(self, card: Device, gate: DriverGate) -> bool:
        slot = card.slot
        return slot is not None and card.may_sleep and gate.file("runtime_status", lambda: slot.asleep, card.index)

    def _read(self, card: Device, slow: bool, tick: int) -> None:
        for one in due(card, tick, slow):
            if names := ask(one, card):
                settle(card, names, FILLED)
                card.lists_changed |= not processes.LISTS.isdisjoint(names)
        if slow and card.parent is None and (tick == card.born or (tick + card.index) % CHILDREN_EVERY == 0):
            self.fleet.adopt(card, tick + 1)

    def _publish(self, card: Device) -> None:
        values = {name: value for name, value in card.values.items() if name not in processes.LISTS}
        missing = tuple(card.missing.values())
        if card.lists_changed:
            card.shares = {} if card.children else processes.shares(card)
            card.lists_changed = False
        card.gpu = Gpu(
            uuid=card.uuid,
            index=card.label,
            name=card.name,
            parent_uuid=card.parent.uuid if card.parent else None,
            pci_bus_id=card.bus_id,
            missing=_of_parent(missing) if card.children else _of_instance(missing) if card.parent else missing,
            xids=self._xids.of(card.uuid),
            peers=() if card.parent else self._topology.peers(card.uuid, self.fleet.rows.values()),
            **card.identity,
            **values,
        )
        self.fleet.started(card.index)

    def _finish(self, gate: DriverGate, avoid: frozenset[int]) -> None:
        rows = list(self.fleet.rows.values())
        fine = [card for card in rows if card.condition == "ok" and card.index not in avoid and card.gpu]
        now_s = self._clock()
        if any(card.born >= self.tick - 1 for card in rows):
            self.pace.restart(now_s)  # the first sweep reads everything, the second follows at once
        else:
            self.pace.judge(now_s)
        if self.connection.is_open:
            self._learn(fine, gate)
            self._xids.listen(fine)
        all_lost = bool(rows) and all(card.condition == "lost" for card in rows)
        if all_lost and not avoid and now_s >= self._reopen_s and self.release(gate):
            self._reopen_s = now_s + REOPEN_S
        self.tick += 1

    def _learn(self, cards: list[Device], gate: DriverGate) -> None:
        for card in cards:
            card.gate = gate
        try:
            self._topology.learn(cards)
        except (Lost, DriverGone):
            pass  # the next sweep finds it too
        except Late:
            if gate.superseded:
                raise


_OF_UNITS = "MIG instances have no utilization counter: on Hopper and newer, GPM shows their activity"


def _of_instance(missing: tuple[Missing, ...]) -> tuple[Missing, ...]:
    return tuple(
        replace(one, unlock=_OF_UNITS) if one.metric == "busy_percent" and one.reason == "unsupported" else one
        for one in missing
    )


def _of_parent(missing: tuple[Missing, ...]) -> tuple[Missing, ...]:
    return tuple(
        replace(one, unlock="see its MIG instances")
        if one.reason == "denied" or (one.reason == "unsupported" and not one.unlock)
        else one
        for one in missing
    )
