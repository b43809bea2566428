"""How a GPU is set up, where in the machine it sits, how GPUs are joined, and the health of its memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from gputop import units
from gputop.collect.nvml.device import Device
from gputop.collect.nvml.field_values import FieldAnswer, count, field_value, flag, read, tally
from gputop.collect.nvml.gate import ABSENT, Late, Lost, NoValue, Unanswered
from gputop.collect.nvml.probe import Answers, probe

_COMPUTE = ("default", "exclusive thread", "prohibited", "exclusive")
_NODE = 0  # scope of an affinity: the NUMA node, not the socket
_CPU_WORDS, _NODE_WORDS = 128, 16  # of 64 bits: as many CPUs and nodes as Linux can be built for
_VIRTUAL = ("none", "passthrough", "vgpu", "host", "host")


def _word(words: tuple[str, ...], value: int) -> str | None:
    return words[value] if 0 <= value < len(words) else None


def _on(value: int) -> bool | None:
    return bool(value) if value in (0, 1) else None


@probe(every_s=60, fills=("persistence_mode",))
def persistence_mode(card: Device) -> Answers:
    """Whether the driver stays loaded between programs."""
    return {"persistence_mode": _on(card.call("nvmlDeviceGetPersistenceMode"))}


@probe(every_s=60, fills=("compute_mode",))
def compute_mode(card: Device) -> Answers:
    """Which processes may compute here."""
    return {"compute_mode": _word(_COMPUTE, card.call("nvmlDeviceGetComputeMode"))}


@probe(every_s=60, fills=("mig_mode",))
def mig_mode(card: Device) -> Answers:
    """Whether the card is partitioned."""
    return {"mig_mode": _on(card.call("nvmlDeviceGetMigMode")[0])}


@probe(every_s=0, fills=("ecc_mode",))
def ecc_mode(card: Device) -> Answers:
    """Whether memory errors are corrected; it changes with a reboot only."""
    return {"ecc_mode": _on(card.call("nvmlDeviceGetEccMode")[0])}


@probe(every_s=0, fills=("virtualization",))
def virtualization(card: Device) -> Answers:
    """Whether this is a whole card, one passed to a virtual machine, or a part of one."""
    return {"virtualization": _word(_VIRTUAL, card.call("nvmlDeviceGetVirtualizationMode"))}


@probe(every_s=0, fills=("numa_node", "local_cpus"))
def place(card: Device) -> Answers:
    """NUMA node and CPUs near the card, from the kernel; no call."""
    if card.slot is None:
        return dict.fromkeys(("numa_node", "local_cpus"), NoValue("absent"))
    node, cpus = card.slot.read("numa_node"), card.slot.read("local_cpulist")
    return {"numa_node": int(node) if node and node.isdigit() else None, "local_cpus": cpus or None}


@probe(every_s=0, fills=("numa_memory",))
def numa_memory(card: Device) -> Answers:
    """Whether its memory is a NUMA node of the system, as of a Grace superchip: else it is of none."""
    try:
        node: int = (card.parent or card).call("nvmlDeviceGetNumaNodeId")  # an instance may not say it
    except Unanswered as silent:
        if silent.no.reason != "unsupported":
            raise
        return {"numa_memory": False}
    return {"numa_memory": node >= 0}


def _set_bits(words: Iterable[int]) -> tuple[int, ...]:
    return tuple(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)


@probe(every_s=0, backs=("local_cpus",))
def near_cpus(card: Device) -> Answers:
    """CPUs near the card from the driver, where the kernel does not say."""
    words = card.call("nvmlDeviceGetCpuAffinityWithinScope", _CPU_WORDS, _NODE)
    return {"local_cpus": units.ranges(_set_bits(words)) or None}


@probe(every_s=0, backs=("numa_node",))
def near_memory(card: Device) -> Answers:
    """NUMA node of the memory near the card; more than one is not a place."""
    nodes = _set_bits(card.call("nvmlDeviceGetMemoryAffinity", _NODE_WORDS, _NODE))
    return {"numa_node": nodes[0] if len(nodes) == 1 else None}


_ACTIONS = ("none", "reset", "reboot", "drain peers", "drain and reset", "recover domain", "reset bus", "reboot system")


def _action(_card: Device, _name: str, answer: FieldAnswer) -> str | None:
    number = int(answer.value)
    return _ACTIONS[number] if 0 <= number < len(_ACTIONS) else None


HEALTH = (
    field_value("ecc_corrected", tally, 3),
    field_value("ecc_uncorrected", tally, 4),
    field_value("remapped_corrected", count(), 142),
    field_value("remapped_uncorrected", count(), 143),
    field_value("remap_pending", flag, 144),
    field_value("remap_failed", flag, 145),
    field_value("recovery_action", _action, 230),
    field_value("retirement_pending", flag, 31),
)
_REFUSED_S = 10.0  # a GPU that must be reset refuses what is asked every second
_RETIRED = (field_value("single", count(), 29), field_value("double", count(), 30))
_ALL = (*HEALTH, *_RETIRED)


@probe(every_s=30, fills=(*(one.name for one in HEALTH), "retired_pages"))
def health(card: Device) -> Answers:
    """Memory errors, replaced rows, retired pages and the driver's wish, in one call."""
    given: dict[str, Any] = read(card, _ALL)
    single, double = given.pop("single"), given.pop("double")
    known = [pages for pages in (single, double) if isinstance(pages, int)]
    return given | {"retired_pages": sum(known) if known else single}


@probe(every_s=2, backs=("recovery_action",))
def refusals(card: Device) -> Answers:
    """That it must be reset, from its refusals, where the driver has no number for what it wishes; no call."""
    refuses = card.gate.clock() - card.refused_s < _REFUSED_S
    return {"recovery_action": "reset" if refuses else ABSENT}


PAIRS_A_TICK = 8
_MOST = 4096  # pairs: twice those of 64 GPUs
_NVLINK = 2  # NVML_P2P_CAPS_INDEX_NVLINK
_LEVELS = {0: "switch", 10: "switch", 20: "switch", 30: "bridge", 40: "node", 50: "system"}


class Topology:
    """Words for pairs of GPUs, by their uuids."""

    def __init__(self) -> None:
        self._words: dict[frozenset[str], str | None] = {}
        self._peers: dict[str, tuple[list[str], tuple[tuple[str, str], ...]]] = {}  # of a GPU, with those compared

    def learn(self, cards: Iterable[Device]) -> None:
        """Ask about a few pairs of GPUs that were not asked about yet."""
        left, cards = PAIRS_A_TICK, list(cards)
        if len(self._words) > _MOST:  # most of them of GPUs that are gone
            here = {card.uuid for card in cards}
            self._words = {pair: word for pair, word in self._words.items() if pair <= here}
            self._peers.clear()
        for one, other in combinations(cards, 2):
            pair = frozenset((one.uuid, other.uuid))
            if pair in self._words:
                continue
            try:
                self._words[pair] = _joined(one, other)
                self._peers.clear()
            except Late as late:
                one.hang(late.since_s)
                raise
            left -= 1
            if not left:
                return

    def peers(self, uuid: str, cards: Iterable[Device]) -> tuple[tuple[str, str], ...]:
        """The other GPUs and how this one is joined to them, in the order of their indexes."""
        others = [card.uuid for card in cards if card.uuid != uuid]
        known = self._peers.get(uuid)
        if known is None or known[0] != others:
            words = ((other, self._words.get(frozenset((uuid, other)))) for other in others)
            known = self._peers[uuid] = others, tuple((other, word) for other, word in words if word)
        return known[1]


def _joined(one: Device, other: Device) -> str | None:
    try:
        if one.call("nvmlDeviceGetP2PStatus", since=(other.handle, _NVLINK)) == 0:
            return "nvlink"
    except Lost:
        raise
    except Unanswered:
        pass
    try:
        return _LEVELS.get(one.call("nvmlDeviceGetTopologyCommonAncestor", since=(other.handle,)))
    except Lost:
        raise
    except Unanswered:
        return None
