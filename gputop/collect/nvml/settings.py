"""How a GPU is set up, and where in the machine it sits."""

from __future__ import annotations

from collections.abc import Iterable

from gputop import units
from gputop.collect.nvml.card import Card
from gputop.collect.nvml.gate import No, Unanswered
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
def persistence_mode(card: Card) -> Answers:
    """Whether the driver stays loaded between programs."""
    return {"persistence_mode": _on(card.call("nvmlDeviceGetPersistenceMode"))}


@probe(every_s=60, fills=("compute_mode",))
def compute_mode(card: Card) -> Answers:
    """Who may compute here."""
    return {"compute_mode": _word(_COMPUTE, card.call("nvmlDeviceGetComputeMode"))}


@probe(every_s=60, fills=("mig_mode",))
def mig_mode(card: Card) -> Answers:
    """Whether the card is partitioned."""
    return {"mig_mode": _on(card.call("nvmlDeviceGetMigMode")[0])}


@probe(every_s=0, fills=("ecc_mode",))
def ecc_mode(card: Card) -> Answers:
    """Whether memory errors are corrected; it changes with a reboot only."""
    return {"ecc_mode": _on(card.call("nvmlDeviceGetEccMode")[0])}


@probe(every_s=0, fills=("virtualization",))
def virtualization(card: Card) -> Answers:
    """Whether this is a whole card, one passed to a virtual machine, or a part of one."""
    return {"virtualization": _word(_VIRTUAL, card.call("nvmlDeviceGetVirtualizationMode"))}


@probe(every_s=0, fills=("numa_node", "local_cpus"))
def place(card: Card) -> Answers:
    """NUMA node and CPUs near the card, from the kernel; no call."""
    if card.slot is None:
        return dict.fromkeys(("numa_node", "local_cpus"), No("absent"))
    node, cpus = card.slot.read("numa_node"), card.slot.read("local_cpulist")
    return {"numa_node": int(node) if node and node.isdigit() else None, "local_cpus": cpus or None}


@probe(every_s=0, fills=("numa_memory",))
def numa_memory(card: Card) -> Answers:
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
def near_cpus(card: Card) -> Answers:
    """CPUs near the card from the driver, where the kernel does not say."""
    words = card.call("nvmlDeviceGetCpuAffinityWithinScope", _CPU_WORDS, _NODE)
    return {"local_cpus": units.ranges(_set_bits(words)) or None}


@probe(every_s=0, backs=("numa_node",))
def near_memory(card: Card) -> Answers:
    """NUMA node of the memory near the card; more than one is not a place."""
    nodes = _set_bits(card.call("nvmlDeviceGetMemoryAffinity", _NODE_WORDS, _NODE))
    return {"numa_node": nodes[0] if len(nodes) == 1 else None}
