"""Rules on GPU setup: PCIe link, persistence, MIG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from shlex import quote

from gputop import units
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.view import View
from gputop.model import Gpu

_NEEDED = ("busy_percent", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max")
_NEWEST = 6  # the generation with known replay rates
_SERVER = (
    Step(text="At the next maintenance, reseat the card, clean its contacts, check riser and cables"),
    Step(text="In the BIOS, check slot bifurcation and set the link speed to automatic"),
)
_PROVIDER = Step(text="Compare with another instance of this type, and ask the provider if that one is faster")


@rule(
    "pcie-degraded",
    "Does the PCIe link of a GPU run below its rated speed?",
    level=Level.LINK,
    state="pcie",
    short="PCIE",
    needs=("busy_percent", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max"),
)
def pcie_degraded(view: View) -> Iterator[Finding]:
    """Fewer lanes or a lower generation under load than GPU and slot support; PCIe replays; a slower slot."""
    for gpu in view.gpus():
        if gpu.parent_uuid is not None or gpu.virtualization == "vgpu":
            continue
        if not view.knows(
            gpu, "busy_percent", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max"
        ):
            continue
        replays = _replays(view, gpu)
        # an idle GPU saves power with a slower link
        if not view.above(view.mean(gpu, "busy_percent"), "busy_percent"):
            continue
        width, generation = gpu.pcie_width or 0, gpu.pcie_generation or 0
        many = replays is not None and replays > _allowed_replays(view, generation, width)
        if width < _lanes(gpu) or generation < _expected(view, gpu) or many:
            yield _link_finding(view, gpu, replays if many else None)
        elif (slot := gpu.pcie_generation_max or 0) < (card := gpu.pcie_generation_device_max or 0):
            headline = f"slower PCIe slot, Gen{slot} for a Gen{card} GPU"
            yield _slot_finding(view, gpu, headline, f"slot Gen{slot}, GPU supports Gen{card}", slot, card)
        elif width < (lanes := gpu.pcie_width_max or 0):
            headline = f"narrow PCIe slot, x{width} for an x{lanes} GPU"
            yield _slot_finding(view, gpu, headline, f"{width} of {lanes} lanes, all that the slot has", width, lanes)


def _slot_lanes(gpu: Gpu) -> int | None:
    """Lanes of its slot; None if the kernel reports none, or an impossible number, as for an emulated port."""
    slot = gpu.pcie_slot_width
    return slot if slot is not None and slot >= (gpu.pcie_width or 0) else None


def _lanes(gpu: Gpu) -> int:
    """Expected lanes of the link: those of the GPU, if the slot has as many."""
    return min(gpu.pcie_width_max or 0, _slot_lanes(gpu) or gpu.pcie_width_max or 0)


def _expected(view: View, gpu: Gpu) -> int:
    """Expected generation of the link now: a nearly idle GPU saves power with a lower one."""
    now, most, slot = gpu.pcie_generation or 0, gpu.pcie_generation_max or 0, gpu.pcie_slot_generation
    if _saves_power(view, gpu):
        return now
    return most if slot is None or slot < now else min(most, slot)


def _saves_power(view: View, gpu: Gpu) -> bool:
    return (gpu.performance_state or 0) > view.limit("performance_state")


def _replays(view: View, gpu: Gpu) -> float | None:
    """PCIe replays per minute, over the last minutes; None before one has passed."""
    notes, now_s, count = view.notes(gpu), view.frame.mono_s, gpu.pcie_replays
    if count is None:
        return None
    samples: list[tuple[float, int]] = notes.setdefault("samples", [])
    if samples and count < samples[-1][1]:
        samples.clear()  # the driver was reloaded
    if not samples or now_s - samples[-1][0] >= view.limit("look_s"):
        samples.append((now_s, count))
    while len(samples) > 1 and now_s - samples[1][0] >= view.limit("count_s"):
        del samples[0]
    since_s, before = samples[0]
    return 60 * (count - before) / (now_s - since_s) if now_s - since_s >= view.limit("count_s") else None


def _allowed_replays(view: View, generation: int, width: int) -> float:
    """Replays per minute allowed for such a link: one bit error in 10^12 on each lane."""
    per_lane = view.limit(f"replays_gen{min(max(generation, 1), _NEWEST)}")
    return math.ceil(per_lane * max(1, width))


def _link_finding(view: View, gpu: Gpu, replays: float | None) -> Finding:
    width, wider = gpu.pcie_width or 0, _lanes(gpu)
    generation, newer = gpu.pcie_generation or 0, _expected(view, gpu)
    share = width * 2.0**generation / (wider * 2.0**newer)
    evidence = []
    if share < 1:
        saves = _saves_power(view, gpu)
        of, why = (gpu.pcie_generation_max, " (power saving)") if saves else (newer, "")
        lanes = f"{width} of {wider} lanes, Gen{generation} of Gen{of}{why}"
        text = f"{100 * share:.0f} % of rated speed under load: {lanes}"
        evidence.append(Evidence(text=text, value=100 * share, unit="%", limit=100.0, sense="healthy_from"))
    if replays is not None:
        most = _allowed_replays(view, generation, width)
        text = f"PCIe replays {replays:.0f}/min"
        evidence.append(Evidence(text=text, value=replays, unit="1/min", limit=most, sense="healthy_to"))
    moved = [rate for name in ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s") if (rate := view.mean(gpu, name))]
    if moved:
        evidence.append(Evidence(text=f"PCIe throughput {max(moved) / 1e9:.1f} GB/s", value=max(moved), unit="B/s"))
    lent = gpu.virtualization == "passthrough"  # a virtual machine: some clouds give every GPU half the lanes
    unsure = lent or (generation == newer and _slot_lanes(gpu) is None)
    if unsure and not lent and replays is None:
        evidence.append(Evidence(text="slot width unknown"))
    return view.found(
        gpu,
        "info" if unsure and replays is None else "warn",
        f"degraded PCIe link, {100 * share:.0f} % of rated speed" if share < 1 else "faulty PCIe link, many replays",
        evidence=tuple(evidence),
        steps=(_PROVIDER,) if lent else (_agreed_step(gpu), *_SERVER),
        confidence=0.9,
        grade="driver",
    )


def _agreed_step(gpu: Gpu) -> Step:
    where = quote((gpu.pci_bus_id or "PCI_BUS_ID").lower().removeprefix("0000"))
    return Step(
        text="Compare the negotiated link (LnkSta) with what GPU and slot support (LnkCap)",
        command=f"sudo lspci -vv -s {where} | grep -E 'LnkCap|LnkSta'",
        needs_root=True,
    )


def _slot_finding(view: View, gpu: Gpu, headline: str, evidence: str, slot: int, card: int) -> Finding:
    """The GPU is faster than its slot: no fault of the link."""
    return view.found(
        gpu,
        "info",
        headline,
        evidence=(Evidence(text=evidence, value=float(slot), limit=float(card), sense="healthy_from"),),
        steps=(Step(text="Move the GPU to a faster slot if transfers to it are large; otherwise ignore this"),),
        confidence=0.9,
        grade="driver",
    )


_KEEPERS = ("nvidia-persiste", "nv-hostengine", "nvidia-cuda-mps", "dcgm", "Xorg", "gnome-shell", "Xwayland")


@rule(
    "persistence-off",
    "Is the driver unloaded when no program uses a GPU?",
    level=Level.NEVER,
    state="",
    short="",
    needs=("persistence_mode",),
)
def persistence_off(view: View) -> Iterator[Finding]:
    """No persistence mode and no other driver client: the first program starts slowly, and settings are lost."""
    gpus = [gpu for gpu in view.gpus() if gpu.parent_uuid is None and view.knows(gpu, "persistence_mode")]
    off = [gpu for gpu in gpus if gpu.persistence_mode is False and gpu.virtualization != "vgpu"]
    if not off:
        return
    processes = view.frame.processes
    kept = any(process.name.startswith(_KEEPERS) for process in processes) or any(
        share.kind == "graphics" for process in processes for share in process.gpus
    )
    # it can neither be read nor set from inside a container
    if kept or any(process.unseen == "foreign" for process in processes):
        return
    indexes = ", ".join(gpu.index for gpu in off)
    yield view.found(
        view.host(),
        "info",
        "persistence mode off, slow first start and settings lost",
        evidence=(
            Evidence(
                text=f"persistence mode off on GPU {indexes}", value=float(len(off)), limit=0.0, sense="healthy_to"
            ),
        ),
        steps=(
            Step(
                text="Keep the driver loaded: faster starts, and power limits and clocks persist",
                command="sudo systemctl enable --now nvidia-persistenced",
                needs_root=True,
            ),
            Step(
                text="Without systemd: enable persistence mode until the next boot",
                command="sudo nvidia-smi -pm 1",
                needs_root=True,
            ),
        ),
        confidence=0.95,
        grade="driver",
    )


@rule(
    "mig-visibility",
    "Do MIG instances lack metrics, or are they too large?",
    level=Level.NEVER,
    state="",
    short="",
    needs=(),
)
def mig_visibility(view: View) -> Iterator[Finding]:
    """Metrics unavailable on MIG instances, the rules that skip them for it, and instances far too large."""
    for gpu in view.gpus():
        if gpu.mig_mode is not True or gpu.parent_uuid is not None:
            continue
        instances = [one for one in view.frame.gpus if one.parent_uuid == gpu.uuid]
        blind = [one for one in instances if one.busy_percent is None and one.sm_active_percent is None]
        large = [one for one in instances if _is_too_large(view, one)]
        if not instances:
            yield _empty_finding(view, gpu)
        elif blind or large:
            yield _instances_finding(view, gpu, instances, blind, large)


def _is_too_large(view: View, instance: Gpu) -> bool:
    """Whether it uses little of its memory and units over the whole window."""
    most, sm, total = _peak(view, instance), _units(view, instance), instance.vram_total_bytes
    if not total or most is None or sm is None:
        return False
    return most / total < view.limit("used_share") and 0 < sm < view.limit("sm_percent")


def _peak(view: View, instance: Gpu) -> float | None:
    return max(_known_values(view, instance, "vram_used_bytes"), default=None)


def _units(view: View, instance: Gpu) -> float | None:
    known = _known_values(view, instance, "sm_active_percent")
    return sum(known) / len(known) if known else None


def _known_values(view: View, instance: Gpu, metric: str) -> list[float]:
    """Known values of a metric over the window for sizes; empty if many are missing."""
    values = view.past(instance, metric, view.limit("size_s"))
    known = [value for value in values if value is not None]
    return known if len(known) >= view.limit("known") * len(values) else []


def _empty_finding(view: View, gpu: Gpu) -> Finding:
    return view.found(
        gpu,
        "info",
        "MIG enabled without instances, GPU unusable",
        evidence=(Evidence(text="MIG mode on, no instances", value=0.0),),
        steps=(
            Step(text="List the available MIG profiles", command=f"nvidia-smi mig -i {quote(gpu.index)} -lgip"),
            Step(
                text="Or disable MIG mode on the idle GPU",
                command=f"sudo nvidia-smi -i {quote(gpu.index)} -mig 0",
                needs_root=True,
                destroys=True,
            ),
        ),
        confidence=0.9,
        grade="driver",
    )


def _instances_finding(
    view: View, gpu: Gpu, instances: Sequence[Gpu], blind: Sequence[Gpu], large: Sequence[Gpu]
) -> Finding:
    evidence, steps = [Evidence(text=f"{len(instances)} instances", value=float(len(instances)))], []
    if blind:
        uuids = {one.uuid for one in (*blind, gpu)}
        silent = dict.fromkeys(one.rule for one in view.abstained if uuids & set(one.subject.gpus))
        text = f"no utilization reported for {', '.join(one.index for one in blind)}"
        evidence.append(Evidence(text=f"{text}; checks skipped: {', '.join(silent)}" if silent else text))
        if any(missing.unlock == "--gpm on" for one in blind for missing in one.missing):
            steps.append(Step(text="Read SM activity of the instances (GPM)", command="gputop --gpm on"))
    for one in large:
        sm, memory = _units(view, one) or 0.0, f"{units.size(_peak(view, one))} of {units.size(one.vram_total_bytes)}"
        text = f"{one.index} ({one.name}) uses {memory}, SM activity {sm:.0f} %"
        evidence.append(Evidence(text=text, value=sm, unit="%", limit=view.limit("sm_percent"), sense="healthy_from"))
    if large:
        steps.append(Step(text="Use a smaller MIG profile", command=f"nvidia-smi mig -i {quote(gpu.index)} -lgip"))
    steps.append(
        Step(
            text=f"Select an instance by its UUID, e.g. {instances[0].index}",
            command=f"export CUDA_VISIBLE_DEVICES={quote(instances[0].uuid)}",
        )
    )
    headline = "MIG instances without utilization metrics" if blind else "MIG instances larger than needed"
    return view.found(
        gpu, "info", headline, evidence=tuple(evidence), steps=tuple(steps), confidence=0.9, grade="driver"
    )
