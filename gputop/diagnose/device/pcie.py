"""A rule about the way between a card and its host."""

from __future__ import annotations

import math
from collections.abc import Iterator
from shlex import quote

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.view import View
from gputop.model import Gpu

_NEEDED = ("busy_percent", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max")
_NEWEST = 6  # generation whose replays are known
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
    number="R43",
    rows=(),
    needs=("busy_percent", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max"),
)
def pcie_degraded(view: View) -> Iterator[Finding]:
    """Fewer lanes or a lower generation than card and slot can do, while it works; errors; a slot of a lower one."""
    for gpu in view.gpus():
        if gpu.parent_uuid is not None or gpu.virtualization == "vgpu":
            continue
        if not view.knows(
            gpu, "busy_percent", "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max"
        ):
            continue
        replays = _replays(view, gpu)
        # a card that rests saves power by a slower link
        if not view.above(view.mean(gpu, "busy_percent"), "busy_percent"):
            continue
        width, generation = gpu.pcie_width or 0, gpu.pcie_generation or 0
        many = replays is not None and replays > _most(view, generation, width)
        if width < _lanes(gpu) or generation < _expected(view, gpu) or many:
            yield _slow(view, gpu, replays if many else None)
        elif (slot := gpu.pcie_generation_max or 0) < (card := gpu.pcie_generation_device_max or 0):
            headline = f"sits in a slot of PCIe generation {slot} and can do {card}"
            yield _slot(view, gpu, headline, f"generation {slot} of {card}", slot, card)
        elif width < (lanes := gpu.pcie_width_max or 0):
            headline = f"sits in a PCIe slot with {width} lanes and can use {lanes}"
            yield _slot(view, gpu, headline, f"{width} of {lanes} lanes, as many as the slot has", width, lanes)


def _wired(gpu: Gpu) -> int | None:
    """The lanes of its slot; None where the kernel does not say, or what it says cannot be, as of an emulated port."""
    slot = gpu.pcie_slot_width
    return slot if slot is not None and slot >= (gpu.pcie_width or 0) else None


def _lanes(gpu: Gpu) -> int:
    """The lanes that the link should have: those of the card, in a slot that has as many."""
    return min(gpu.pcie_width_max or 0, _wired(gpu) or gpu.pcie_width_max or 0)


def _expected(view: View, gpu: Gpu) -> int:
    """The generation that the link should have now: with little to do, a card saves power by a lower one."""
    now, most, slot = gpu.pcie_generation or 0, gpu.pcie_generation_max or 0, gpu.pcie_slot_generation
    if _saves(view, gpu):
        return now
    return most if slot is None or slot < now else min(most, slot)


def _saves(view: View, gpu: Gpu) -> bool:
    return (gpu.performance_state or 0) > view.limit("performance_state")


def _replays(view: View, gpu: Gpu) -> float | None:
    """Packets sent again, a minute, over the last minutes; None before one has passed."""
    notes, now_s, count = view.notes(gpu), view.frame.mono_s, gpu.pcie_replays
    if count is None:
        return None
    looks: list[tuple[float, int]] = notes.setdefault("looks", [])
    if looks and count < looks[-1][1]:
        looks.clear()  # the driver was loaded anew
    if not looks or now_s - looks[-1][0] >= view.limit("look_s"):
        looks.append((now_s, count))
    while len(looks) > 1 and now_s - looks[1][0] >= view.limit("count_s"):
        del looks[0]
    since_s, before = looks[0]
    return 60 * (count - before) / (now_s - since_s) if now_s - since_s >= view.limit("count_s") else None


def _most(view: View, generation: int, width: int) -> float:
    """Replays a minute that a link of this kind may have: one wrong bit in 10^12 on each lane."""
    per_lane = view.limit(f"replays_gen{min(max(generation, 1), _NEWEST)}")
    return math.ceil(per_lane * max(1, width))


def _slow(view: View, gpu: Gpu, replays: float | None) -> Finding:
    width, wider = gpu.pcie_width or 0, _lanes(gpu)
    generation, newer = gpu.pcie_generation or 0, _expected(view, gpu)
    share = width * 2.0**generation / (wider * 2.0**newer)
    evidence = []
    if share < 1:
        saves = _saves(view, gpu)
        of, why = (gpu.pcie_generation_max, " to save power") if saves else (newer, "")
        text = f"{width} of {wider} lanes, generation {generation} of {of}{why}, under load"
        evidence.append(Evidence(text=text, value=100 * share, unit="%", limit=100.0))
    if replays is not None:
        most = _most(view, generation, width)
        text = f"{replays:.0f} packets a minute are sent again (no more than {most:.0f} are usual)"
        evidence.append(Evidence(text=text, value=replays, unit="1/min", limit=most))
    moved = [rate for name in ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s") if (rate := view.mean(gpu, name))]
    if moved:
        evidence.append(Evidence(text=f"it moves {max(moved) / 1e9:.1f} GB/s", value=max(moved), unit="B/s"))
    lent = gpu.virtualization == "passthrough"  # to a virtual machine: some clouds give all their cards half the lanes
    unsure = lent or (generation == newer and _wired(gpu) is None)
    if unsure and not lent and replays is None:
        evidence.append(Evidence(text="how many lanes its slot is wired for is not known here"))
    return view.found(
        gpu,
        "info" if unsure and replays is None else "warn",
        f"has a PCIe link at {100 * share:.0f} % of its speed" if share < 1 else "has a faulty PCIe link",
        evidence=tuple(evidence),
        steps=(_PROVIDER,) if lent else (_agreed(gpu), *_SERVER),
        confidence=0.9,
        grade="driver",
    )


def _agreed(gpu: Gpu) -> Step:
    where = quote((gpu.pci_bus_id or "its bus id").lower().removeprefix("0000"))
    return Step(
        text="see what card and slot agreed on (LnkSta), and which of them sets the limit (LnkCap)",
        command=f"sudo lspci -vv -s {where} | grep -E 'LnkCap|LnkSta'",
        needs_root=True,
    )


def _slot(view: View, gpu: Gpu, headline: str, evidence: str, slot: int, card: int) -> Finding:
    """The card can do more than its slot: no fault of the link."""
    return view.found(
        gpu,
        "info",
        headline,
        evidence=(Evidence(text=evidence, value=float(slot), limit=float(card)),),
        steps=(Step(text="another slot or server, if much is copied to the GPU; else it does not matter"),),
        confidence=0.9,
        grade="driver",
    )
