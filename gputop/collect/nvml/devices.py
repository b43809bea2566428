"""The GPUs this driver lists: found by index, known by uuid, their MIG instances under them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gputop.collect.nvml import gpm, pci
from gputop.collect.nvml.device import Device, rests
from gputop.collect.nvml.gate import FUNCTION_NOT_FOUND, DriverGate, DriverGone, Late, Lost, Unanswered
from gputop.collect.nvml.pci import PciFunction

FIRST = "nvmlDeviceGetHandleByIndex"  # the call that initialises a GPU
START_S = 30.0  # where nothing keeps the driver loaded, the first call about a GPU initialises it: seconds, each
_LINK_COUNT = 91
_GONE = 16  # GPUs and instances that are gone: of each all that was read is kept, and its next uuid may be another
_ARCHITECTURES = {  # nvmlDeviceArchitecture_t; rules know them by these names
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}


class Devices:
    """One row an index. A GPU that changes its index, is lost or comes back stays the same card, by its uuid."""

    def __init__(self, sys_root: str) -> None:
        self.rows: dict[int, Device] = {}
        self.unknown: set[int] = set()  # indexes to be identified: all at first, later those of lost GPUs
        self.denied = 0  # GPUs this user may not read
        self.twins = False  # two GPUs gave the same uuid
        self.counted = False  # since the driver was opened
        self.starting: dict[int, float] = {}  # by index: since when it is being initialised, until it is read
        self._known: dict[str, Device] = {}
        self._sys_root = sys_root
        self._slots: tuple[PciFunction, ...] = ()  # in /sys
        self._settled: dict[int, int] = {}  # by index the tick of its identification

    def count(self, gate: DriverGate) -> None:
        """Ask how many GPUs there are; when that changed, all are identified again."""
        try:
            count: int = gate.call("nvmlDeviceGetCount")
        except Unanswered as refused:
            if refused.code != FUNCTION_NOT_FOUND:
                raise
            count = _old_count(gate)
        if count != len(self.rows) + self.denied:
            self.renumber(range(count), gate)
        self.counted = True

    def renumber(self, indexes: Collection[int], gate: DriverGate) -> None:
        """Forget which GPU has which index, not the GPUs."""
        self.rows = {index: self.rows.get(index) or _nameless(index, gate) for index in indexes}
        self.unknown = set(indexes)
        self.starting = {index: since_s for index, since_s in self.starting.items() if index in self.unknown}
        self.denied = 0
        self.counted = False
        self._slots = pci.gpus(self._sys_root)

    def identify(self, gate: DriverGate, tick: int, avoid: Collection[int]) -> None:
        """Identify the unknown indexes; a GPU that does not answer keeps its row and stays unknown."""
        for index in sorted(self.unknown - set(avoid)):
            row = self.rows[index]
            if rests(row):
                continue
            try:
                asleep = self._asleep(index, gate)
            except Late as late:
                self.started(index)
                row.hang(late.since_s)
                if gate.superseded:
                    raise
                continue
            if asleep:
                self._rest(row, index, gate)
            else:
                self._identify(index, gate, tick)

    def knock(self, index: int, gate: DriverGate) -> None:
        """Let the driver initialise the GPU of this index, which hung; Late and others pass."""
        gate.call(FIRST, index, gpu=index, allowed_s=START_S)

    def sleepers(self, gate: DriverGate) -> bool:
        """Rows of the GPUs in /sys if every one is suspended: opening the driver would wake them."""
        slots = pci.gpus(self._sys_root)
        if not slots or not all(slot.asleep for slot in slots):
            return False
        if len(self.rows) != len(slots):
            self.renumber(range(len(slots)), gate)
        for index, row in self.rows.items():
            self._rest(row, index, gate)
        return True

    def _asleep(self, index: int, gate: DriverGate) -> bool:
        """Whether the GPU of this index is suspended, found by its place on the bus, without the driver."""
        if len(self._slots) != len(self.rows):
            return False
        slot = self._slots[index]
        return gate.file("runtime_status", lambda: slot.asleep, index)

    def _rest(self, row: Device, index: int, gate: DriverGate) -> None:
        """The GPU of this index is suspended."""
        row.slot = self._slots[index]
        row.bus_id, row.name = row.slot.bus_id, f"NVIDIA {row.slot.device}"
        row.turn("asleep", gate.clock())

    def _identify(self, index: int, gate: DriverGate, tick: int) -> None:
        since_s, handle = gate.clock(), None
        self.starting.setdefault(index, since_s)
        try:
            handle = gate.call(FIRST, index, gpu=index, allowed_s=START_S)
            uuid = _ask(gate, "nvmlDeviceGetUUID", handle, gpu=index) or f"GPU-{index}"
            self._settle(index, uuid, handle, gate, tick)
        except Late as late:
            # a thread replaced while it initialised the GPU leaves it to the next one: at once, then
            if handle is not None or gate.clock() - late.since_s > START_S:
                self.started(index)
                self.rows[index].hang(late.since_s)
            if gate.superseded:
                raise
        except DriverGone:
            self.started(index)
            raise
        except Unanswered as silent:
            self.started(index)
            if silent.no.reason == "denied":
                self.denied += 1
                self.unknown.discard(index)
                del self.rows[index]
            else:
                self.rows[index].lose(since_s)

    def started(self, index: int) -> None:
        """There is something to be said of it: it was read for the first time, or cannot be."""
        self.starting.pop(index, None)

    def _settle(self, index: int, uuid: str, handle: Any, gate: DriverGate, tick: int) -> None:
        uuid = self._distinct(uuid, index, gate, tick)
        card = self._known.setdefault(uuid, Device(index, uuid, gate))
        for at in [at for at, row in self.rows.items() if row is card and at != index]:
            self.rows[at] = _nameless(at, gate)
        self.rows[index] = card
        card.index, card.label, card.gate = index, str(index), gate
        gpm.release(card)
        card.renew(handle, tick)
        self._forget(uuid, gate)
        describe(card, self._sys_root)
        self.unknown.discard(index)
        self._settled[index] = tick

    def _distinct(self, uuid: str, index: int, gate: DriverGate, tick: int) -> str:
        """The uuid, with its index where two GPUs of one enumeration gave the same; an older row of it is void."""
        twin = f"{uuid}#{index}"
        if twin in self._known:
            return twin
        for at in [at for at, row in self.rows.items() if row.uuid == uuid and at not in {index, *self.unknown}]:
            if self._settled[at] == tick:
                self.twins = True
                return twin
            self.rows[at] = _nameless(at, gate)
            self.unknown.add(at)
        return uuid

    def adopt(self, card: Device, tick: int) -> None:
        """Find the MIG instances of a GPU that is partitioned."""
        partitioned = card.answers.get("mig_mode", {}).get("mig_mode") is True
        card.children = self._children(card, tick) if partitioned else []

    def _forget(self, newest: str, gate: DriverGate) -> None:
        """Drop those that left before many others; this one was seen last."""
        self._known[newest] = self._known.pop(newest)
        here = {one.uuid for row in self.rows.values() for one in (row, *row.children)}
        gone = [uuid for uuid in self._known if uuid not in here and uuid != newest]
        for uuid in gone[: max(0, len(gone) - _GONE)]:
            card = self._known.pop(uuid)
            card.gate = gate  # that of a thread that was replaced lets nothing pass
            gpm.release(card)

    def void(self) -> None:
        """The driver was opened again: what it had allocated for us went with the connection before."""
        for card in self._known.values():
            gpm.drop(card)

    def _children(self, card: Device, tick: int) -> list[Device]:
        found = []
        for number in range(ask(card, "nvmlDeviceGetMaxMigDeviceCount") or 0):
            handle = ask(card, "nvmlDeviceGetMigDeviceHandleByIndex", number)
            if handle is None:
                continue
            uuid = _ask(card.gate, "nvmlDeviceGetUUID", handle, gpu=card.index) or f"{card.uuid}/{number}"
            child = self._known.setdefault(uuid, Device(card.index, uuid, card.gate, parent=card))
            child.gate = card.gate
            if child not in card.children:
                gpm.release(child)
                child.renew(handle, tick)
                self._forget(uuid, card.gate)
                describe(child, self._sys_root)
            child.handle, child.index, child.label = handle, card.index, f"{card.index}:{number}"
            child.instance = ask(child, "nvmlDeviceGetGpuInstanceId")
            found.append(child)
        return found


def _nameless(index: int, gate: DriverGate) -> Device:
    return Device(index, f"GPU-{index}", gate)


def _old_count(gate: DriverGate) -> int:
    """How many indexes have a GPU behind them, on a driver that does not count them."""
    for index in range(64):
        try:
            gate.call(FIRST, index, gpu=index, allowed_s=START_S)
        except Lost:
            continue
        except Unanswered:
            return index
        except Late:
            if gate.superseded:
                raise  # it is there, and identified later, when it is not asked for how many there are
    return 64


def _ask(gate: DriverGate, name: str, *args: Any, gpu: int) -> Any:
    try:
        return gate.call(name, *args, gpu=gpu)
    except Lost:
        raise
    except Unanswered:
        return None


def ask(card: Device, name: str, *args: Any) -> Any:
    """What a call on a card answers, or None; only a lost GPU is an error."""
    return _ask(card.gate, name, card.handle, *args, gpu=card.index)


def describe(card: Device, sys_root: str) -> None:
    """Read what a card is and stays: name, place on the bus, architecture, number of NVLinks."""
    card.name = ask(card, "nvmlDeviceGetName") or "GPU"
    capability = ask(card, "nvmlDeviceGetCudaComputeCapability")
    card.identity = {
        "architecture": _ARCHITECTURES.get(ask(card, "nvmlDeviceGetArchitecture") or 0),
        "compute_capability": tuple(capability) if capability else None,
    }
    if card.parent is not None:
        card.slot, card.bus_id = None, card.parent.bus_id
        return
    place = ask(card, "nvmlDeviceGetPciInfo")
    if place is not None:
        card.bus_id = pci.bus_id(place.domain, place.bus, place.device)
        card.slot = pci.slot_of(card.bus_id, sys_root)
        card.may_sleep = card.slot is not None and card.slot.may_sleep
    values = ask(card, "nvmlDeviceGetFieldValues", [_LINK_COUNT])
    if values is not None and values[0].nvmlReturn == 0:
        card.links = min(values[0].value.uiVal, 36)
