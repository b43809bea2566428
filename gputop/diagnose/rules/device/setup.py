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
    Step(text="at the next stop of the server: seat the card anew, clean its contacts, check riser and cables"),
    Step(text="in the BIOS: bifurcation of the slot, and its speed set to automatic"),
)
_PROVIDER = Step(
    text="card and slot are the provider's: compare with another machine of this kind, and ask there if it has more"
)


@rule(
    "pcie-degraded",
    "Is the PCIe link of a GPU slower than it could be?",
    level=Level.LINK,
    state="pcie",
    short="PCIE",
    needs=("busy_percent", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max"),
)
def pcie_degraded(view: View) -> Iterator[Finding]:
    """Fewer lanes or a lower generation than GPU and slot support, while it works; replays; a slower slot."""
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
            headline = f"sits in a slot of PCIe generation {slot} and can do {card}"
            yield _slot_finding(view, gpu, headline, f"generation {slot} of {card}", slot, card)
        elif width < (lanes := gpu.pcie_width_max or 0):
            headline = f"sits in a PCIe slot with {width} lanes and can use {lanes}"
            yield _slot_finding(view, gpu, headline, f"{width} of {lanes} lanes, as many as the slot has", width, lanes)


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
    looks: list[tuple[float, int]] = notes.setdefault("looks", [])
    if looks and count < looks[-1][1]:
        looks.clear()  # the driver was reloaded
    if not looks or now_s - looks[-1][0] >= view.limit("look_s"):
        looks.append((now_s, count))
    while len(looks) > 1 and now_s - looks[1][0] >= view.limit("count_s"):
        del looks[0]
    since_s, before = looks[0]
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
        of, why = (gpu.pcie_generation_max, " to save power") if saves else (newer, "")
        text = f"{width} of {wider} lanes, generation {generation} of {of}{why}, under load"
        evidence.append(Evidence(text=text, value=100 * share, unit="%", limit=100.0))
    if replays is not None:
        most = _allowed_replays(view, generation, width)
        text = f"{replays:.0f} packets a minute are sent again (no more than {most:.0f} are usual)"
        evidence.append(Evidence(text=text, value=replays, unit="1/min", limit=most))
    moved = [rate for name in ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s") if (rate := view.mean(gpu, name))]
    if moved:
        evidence.append(Evidence(text=f"it moves {max(moved) / 1e9:.1f} GB/s", value=max(moved), unit="B/s"))
    lent = gpu.virtualization == "passthrough"  # a virtual machine: some clouds give every GPU half the lanes
    unsure = lent or (generation == newer and _slot_lanes(gpu) is None)
    if unsure and not lent and replays is None:
        evidence.append(Evidence(text="how many lanes its slot is wired for is not known here"))
    return view.found(
        gpu,
        "info" if unsure and replays is None else "warn",
        f"has a PCIe link at {100 * share:.0f} % of its speed" if share < 1 else "has a faulty PCIe link",
        evidence=tuple(evidence),
        steps=(_PROVIDER,) if lent else (_agreed_step(gpu), *_SERVER),
        confidence=0.9,
        grade="driver",
    )


def _agreed_step(gpu: Gpu) -> Step:
    where = quote((gpu.pci_bus_id or "its bus id").lower().removeprefix("0000"))
    return Step(
        text="see what card and slot agreed on (LnkSta), and which of them sets the limit (LnkCap)",
        command=f"sudo lspci -vv -s {where} | grep -E 'LnkCap|LnkSta'",
        needs_root=True,
    )


def _slot_finding(view: View, gpu: Gpu, headline: str, evidence: str, slot: int, card: int) -> Finding:
    """The GPU is faster than its slot: no fault of the link."""
    return view.found(
        gpu,
        "info",
        headline,
        evidence=(Evidence(text=evidence, value=float(slot), limit=float(card)),),
        steps=(Step(text="another slot or server, if much is copied to the GPU; else it does not matter"),),
        confidence=0.9,
        grade="driver",
    )


_KEEPERS = ("nvidia-persiste", "nv-hostengine", "nvidia-cuda-mps", "dcgm", "Xorg", "gnome-shell", "Xwayland")


@rule(
    "persistence-off",
    "Does the driver forget the GPUs between programs?",
    level=Level.NEVER,
    state="",
    short="",
    needs=("persistence_mode",),
)
def persistence_off(view: View) -> Iterator[Finding]:
    """No persistence mode or other client holds the driver: each first program waits, and settings are lost."""
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
        "unloads the driver whenever no program uses a GPU",
        evidence=(Evidence(text=f"persistence mode is off on GPU {indexes}", value=float(len(off)), limit=0.0),),
        steps=(
            Step(
                text="keep it loaded: programs begin seconds sooner, and power limits and clocks stay as they are set",
                command="sudo systemctl enable --now nvidia-persistenced",
                needs_root=True,
            ),
            Step(text="without systemd, until the next boot", command="sudo nvidia-smi -pm 1", needs_root=True),
        ),
        confidence=0.95,
        grade="driver",
    )


@rule(
    "mig-visibility",
    "Is a GPU cut in parts that tell little?",
    level=Level.NEVER,
    state="",
    short="",
    needs=(),
)
def mig_visibility(view: View) -> Iterator[Finding]:
    """Metrics unavailable on MIG instances, the rules that cannot judge them, and instances far too large."""
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
        "is set up to be cut in instances and has none: no program can use it",
        evidence=(Evidence(text="MIG mode is on, and there is no instance", value=0.0),),
        steps=(
            Step(text="see which there can be", command=f"nvidia-smi mig -i {quote(gpu.index)} -lgip"),
            Step(
                text="or use it as a whole again; nothing may run on it meanwhile",
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
        text = f"the driver does not tell how busy {', '.join(one.index for one in blind)} are"
        evidence.append(Evidence(text=f"{text}: {', '.join(silent)} cannot judge" if silent else text))
        if any(missing.unlock == "--gpm on" for one in blind for missing in one.missing):
            steps.append(Step(text="Read the activity of their units (GPM)", command="gputop --gpm on"))
    for one in large:
        sm, memory = _units(view, one) or 0.0, f"{units.size(_peak(view, one))} of {units.size(one.vram_total_bytes)}"
        text = f"{one.index} ({one.name}) uses {memory} and {sm:.0f} % of its units"
        evidence.append(Evidence(text=text, value=sm, unit="%", limit=view.limit("sm_percent")))
    if large:
        steps.append(Step(text="a smaller profile would do", command=f"nvidia-smi mig -i {quote(gpu.index)} -lgip"))
    steps.append(
        Step(
            text=f"a program sees an instance by its name only: {instances[0].index} is",
            command=f"export CUDA_VISIBLE_DEVICES={quote(instances[0].uuid)}",
        )
    )
    headline = "is cut in instances that do not tell how busy they are" if blind else "has instances larger than needed"
    return view.found(
        gpu, "info", headline, evidence=tuple(evidence), steps=tuple(steps), confidence=0.9, grade="driver"
    )
