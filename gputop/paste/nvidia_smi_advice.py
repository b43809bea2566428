"""The report on `nvidia-smi -q` for each GPU: clock limits, health, link, memory users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputop import units
from gputop.paste.nvidia_smi import SmiGpu, cut, looks_like, parse, without_end
from gputop.paste.pasted import LimitTable, Pasted, TextKind, by_severity
from gputop.phrases import held_against, percent
from gputop.report import Do, Point, ReportTable

CUT = "The text is truncated: the end of a GPU's values is missing, and of other GPUs perhaps all."
_LIMIT = LimitTable("paste-nvidia-smi")
_STARVED = LimitTable("starved")  # its duty: utilization of a GPU that is kept busy
_REASONS = ("clocks event reasons", "clocks throttle reasons")
_POWER = ("gpu power readings", "power readings")
# what is judged, and the alternative sections it needs
_JUDGED: dict[str, tuple[str, ...]] = {
    "clock event reasons": _REASONS,
    "ECC errors": ("ecc errors", "remapped rows"),
    "temperature": ("temperature",),
    "power": _POWER,
    "utilization": ("utilization",),
    "memory": ("fb memory usage",),
    "PCIe link": ("gpu link info",),
}
_DECIDES = ("clock event reasons", "ECC errors")  # without these no GPU is called healthy


def summarize(head: Mapping[str, str], cards: Sequence[SmiGpu], *, whole: bool = True) -> Pasted:
    """The output as text, items and tables; truncated output is never called healthy."""
    known = [card for card in cards if card.values]
    if not known:
        return Pasted(
            kind="nvidia-smi",
            about="nvidia-smi -q",
            problems=("It holds no GPU values: paste all of it.",),
            numbers={"gpus": []},
        )
    rows = [(_name(card, at), card) for at, card in enumerate(known)]
    unread = _unread(known)
    points = [point for name, card in rows for point in _points(name, card)] or [_nothing(unread, whole=whole)]
    driver = head.get("Driver Version")
    return Pasted(
        kind="nvidia-smi",
        about=f"nvidia-smi: {len(known)} GPU{'s' if len(known) > 1 else ''}" + (f", driver {driver}" if driver else ""),
        words=(
            *((f"Not in it: {', '.join(unread)}. Paste nvidia-smi -q whole.",) if unread else ()),
            "It is a single sample: use nvidia-smi --query-gpu=... --format=csv -l 5, or gputop, for a history.",
            "Why a GPU waits is not in it: gputop diagnose examines the processes, a trace the steps.",
        ),
        points=by_severity(points),
        tables=(
            ReportTable(
                "GPUs",
                ("name", "busy", "SM MHz", "°C", "W", "limit", "memory", "PCIe"),
                tuple(_row(name, card) for name, card in rows),
            ),
            ReportTable("Processes", ("name", "GPU", "memory"), tuple(_programs(rows))),
        ),
        numbers={
            "driver": driver,
            "cuda": head.get("CUDA Version"),
            "gpus": [_numbers(name, card) for name, card in rows],
        },
    )


def _unread(cards: Sequence[SmiGpu]) -> list[str]:
    """Judged values missing for at least one of the GPUs."""
    there = [{section for at, _ in card.values for section in at[:-1]} for card in cards]
    return [what for what, names in _JUDGED.items() if not all(known.intersection(names) for known in there)]


def _nothing(unread: Sequence[str], *, whole: bool) -> Point:
    """The item if nothing stands out: healthy only if the deciding values were present."""
    if whole and not any(what in unread for what in _DECIDES):
        return Point(severity="fine", text="No GPU is slowed down, and none reports a hardware fault.")
    missing = " Missing values may say otherwise." if unread else ""
    return Point(severity="info", text=f"No problem found in the values present.{missing}")


def _name(card: SmiGpu, at: int) -> str:
    minor = card.text("minor number")
    return f"GPU {minor if minor is not None and minor.isdigit() else at}"


def _points(name: str, card: SmiGpu) -> Iterator[Point]:
    yield from _health(name, card)
    yield from _clocks(name, card)
    if not any("thermal" in reason for reason in _reasons(card)):
        yield from _temperature(name, card)
    yield from _power(name, card)
    yield from _link(name, card)
    yield from _use(name, card)


def _health(name: str, card: SmiGpu) -> Iterator[Point]:
    reset = Do("Drain the GPU, then reset it.", "sudo nvidia-smi --gpu-reset -i " + name.removeprefix("GPU "))
    replace = "Replace the GPU (RMA)."
    if card.says("remapped rows", "remapping failure occurred"):
        yield Point(
            severity="crit", text=f"{name}: row remapping failed, its memory cannot be repaired.", steps=(replace,)
        )
    elif card.says("remapped rows", "pending"):
        yield Point(severity="crit", text=f"{name}: row remapping pending, done at the next reset.", steps=(reset,))
    if card.says("retired pages", "pending page blacklist") or card.says("retired pages", "pending"):
        yield Point(severity="crit", text=f"{name}: page retirement pending, done at the next reset.", steps=(reset,))
    for period, severity in (("volatile", "crit"), ("aggregate", "info")):
        count = errors(card, period, "uncorrectable")
        if count:
            since = "since the driver was loaded" if period == "volatile" else "over its lifetime"
            yield Point(
                severity="crit" if severity == "crit" else "info",
                text=f"{name}: {count:.0f} uncorrectable ECC errors {since}.",
                steps=(reset, "Replace the GPU if they come back.") if severity == "crit" else (),
            )
            break
    action = card.text("gpu recovery action")
    if action and action != "None":
        yield Point(severity="crit", text=f"{name}: the driver requests recovery: {action}.", steps=(reset,))


def errors(card: SmiGpu, period: str, what: str) -> float | None:
    """ECC errors of a kind over all memories; None with ECC off."""
    found: list[float] = []
    for at, value in card.values:
        if period in at[:-1] and "ecc errors" in at and what in at[-1] and "threshold" not in at[-1]:
            head = value.split()
            found += [float(head[0])] if head and head[0].isdigit() and len(head[0]) < 16 else []
    return sum(found) if found else None


def _reasons(card: SmiGpu) -> set[str]:
    """Active throttle reasons."""
    return {name for section in _REASONS for name, value in card.section(section) if value == "Active"}


def _clocks(name: str, card: SmiGpu) -> Iterator[Point]:
    active = _reasons(card)
    facts = tuple(_clock_facts(card))
    airflow = "Improve airflow: fans, dust filters, blanking panels."
    if "hw thermal slowdown" in active:
        yield Point(severity="crit", text=f"{name}: hardware thermal slowdown.", facts=facts, steps=(airflow,))
    elif "sw thermal slowdown" in active:
        yield Point(severity="warn", text=f"{name}: software thermal slowdown.", facts=facts, steps=(airflow,))
    if "hw power brake slowdown" in active:
        yield Point(
            severity="crit",
            text=f"{name}: power brake, requested by the power supply or rack.",
            facts=facts,
            steps=("Check power supplies, cables and the rack's power limit.",),
        )
    elif "hw slowdown" in active and "hw thermal slowdown" not in active:
        yield Point(
            severity="crit", text=f"{name}: hardware slowdown.", facts=facts, steps=("Check power and cooling.",)
        )
    if "applications clocks setting" in active:
        yield Point(
            severity="info",
            text=f"{name}: clocks are limited by the applications clocks setting.",
            facts=facts,
            steps=(Do("Reset it.", "sudo nvidia-smi -rac"),),
        )


def _clock_facts(card: SmiGpu) -> Iterator[str]:
    now, most = (
        card.first(("clocks", "sm"), ("clocks", "graphics")),
        card.first(("max clocks", "sm"), ("max clocks", "graphics")),
    )
    if now is not None:
        yield f"SM clock {now:.0f} MHz" + (f" (maximum {most:.0f} MHz)" if most else "")


def _temperature(name: str, card: SmiGpu) -> Iterator[Point]:
    now = card.number("temperature", "gpu current temp")
    slowdown = card.first(("temperature", "gpu slowdown temp"), ("temperature", "gpu max operating temp"))
    margin = card.number("temperature", "gpu t.limit temp")
    hot = slowdown - _LIMIT["near_celsius"] if slowdown else _LIMIT["hot_celsius"]
    steps = ("Improve airflow: fans, dust filters, blanking panels.",)
    if margin is not None and margin <= _LIMIT["near_celsius"]:
        held = f"{abs(margin):.0f} °C {'below' if margin >= 0 else 'above'} the limit"
        yield Point(
            severity="warn",
            text=f"{name}: {_near(-margin)} its temperature limit.",
            facts=(held + (f", at {now:.0f} °C" if now is not None else ""),),
            steps=steps,
        )
    elif margin is None and now is not None and now >= hot:
        held = f"limit {slowdown:.0f} °C" if slowdown else f"most GPUs slow down above {_LIMIT['hot_celsius']:.0f} °C"
        yield Point(
            severity="warn",
            text=f"{name}: {_near(now - slowdown) if slowdown else 'close to'} its temperature limit.",
            facts=(f"{now:.0f} °C ({held})",),
            steps=steps,
        )


def _near(beyond: float) -> str:
    """A temperature relative to its limit, by degrees above it."""
    return "above" if beyond > 0 else "at" if beyond == 0 else "close to"


def power(card: SmiGpu, *names: str) -> float | None:
    """A value of the GPU's own power readings, not of its module's."""
    return card.first(*((section, name) for name in names for section in _POWER))


def _power(name: str, card: SmiGpu) -> Iterator[Point]:
    limit, default = (
        power(card, "current power limit", "power limit", "enforced power limit"),
        power(card, "default power limit"),
    )
    capped = "sw power cap" in _reasons(card)
    draw = power(card, "average power draw", "power draw", "instantaneous power draw")
    facts = (f"draws {draw:.0f} W, power limit {limit:.0f} W",) if draw is not None and limit is not None else ()
    if limit is not None and default is not None and limit < default - _LIMIT["below_default_watts"]:
        yield Point(
            severity="warn" if capped else "info",
            text=f"{name}: power limit {limit:.0f} W (default {default:.0f} W)"
            + (", power-capped now." if capped else "."),
            facts=facts,
            steps=(
                Do(
                    "Raise the power limit, if power and cooling allow it.",
                    f"sudo nvidia-smi -i {name.removeprefix('GPU ')} -pl {default:.0f}",
                ),
            ),
        )
    elif capped:
        yield Point(severity="info", text=f"{name}: power-capped at full load, as expected.", facts=facts)


def _link(name: str, card: SmiGpu) -> Iterator[Point]:
    width, widest = card.number("link width", "current"), card.number("link width", "max")
    now, most = _generation(card)
    busy = card.first(("utilization", "gpu"), ("utilization", "gpu utilization"))
    if width and widest and width < widest:
        yield Point(
            severity="warn",
            text=f"{name}: PCIe runs at {width:.0f} of {widest:.0f} lanes.",
            facts=(f"link width {width:.0f}x (maximum {widest:.0f}x)",),
            steps=("Reseat the card or riser, and check that the slot has all lanes.",),
        )
    if now and most and now < most and busy is not None and busy >= _LIMIT["at_work_percent"]:
        yield Point(
            severity="warn",
            text=f"{name}: PCIe runs at generation {now:.0f} of {most:.0f} under load.",
            facts=(f"GPU busy {busy:.0f} % (an idle link slows down to save power)",),
            steps=("Check the slot's generation in the BIOS, the riser, and PCIe errors in dmesg.",),
        )


def _generation(card: SmiGpu) -> tuple[float | None, float | None]:
    """The current generation, and the one that both card and host support."""
    both = [card.number("pcie generation", name) for name in ("max", "device max", "host max")]
    return card.number("pcie generation", "current"), min((one for one in both if one), default=None)


def _memory(card: SmiGpu) -> tuple[float | None, float | None]:
    return card.bytes("fb memory usage", "used"), card.bytes("fb memory usage", "total")


def _use(name: str, card: SmiGpu) -> Iterator[Point]:
    busy = card.first(("utilization", "gpu"), ("utilization", "gpu utilization"))
    used, total = _memory(card)
    if used is not None and total and used >= _LIMIT["full"] * total:
        yield Point(
            severity="warn",
            text=f"{name}: memory is nearly full.",
            facts=(f"{units.size(used)} of {units.size(total)} ({percent(used / total)})",),
            steps=("Lower the batch size before longer inputs run out of memory.",),
        )
    if card.programs and busy is not None and busy < 100 * _STARVED["duty"]:
        at = "idle" if busy < _LIMIT["at_work_percent"] else "not fully used"
        on_it = f"{len(card.programs)} process{'es' if len(card.programs) > 1 else ''}"
        yield Point(
            severity="info",
            text=f"{name}: {at} at this moment, with {on_it} on it.",
            facts=(f"GPU busy {busy:.0f} % ({held_against(percent(_STARVED['duty']), 'healthy_from')})",),
            steps=(Do("Diagnose for 60 s: one sample proves nothing.", "gputop diagnose --for 60s"),),
        )
    if card.says("persistence mode") is False:
        yield Point(
            severity="info",
            text=f"{name}: persistence mode is off, so the driver unloads between jobs.",
            steps=(Do("Turn it on, or run nvidia-persistenced.", "sudo nvidia-smi -pm 1"),),
        )


def _row(name: str, card: SmiGpu) -> tuple[str, ...]:
    used, total = _memory(card)
    now, most = _generation(card)
    width, widest = card.number("link width", "current"), card.number("link width", "max")
    product = card.text("product name")
    return (
        f"{name} {product}" if product else name,
        _unit(card.first(("utilization", "gpu"), ("utilization", "gpu utilization")), " %"),
        _unit(card.first(("clocks", "sm"), ("clocks", "graphics"))),
        _unit(card.number("temperature", "gpu current temp")),
        _unit(power(card, "average power draw", "power draw", "instantaneous power draw")),
        _unit(power(card, "current power limit", "power limit", "enforced power limit")),
        "-" if used is None or total is None else f"{units.size(used)} of {units.size(total)}",
        "-" if not now or not width else f"{now:.0f}/{most or now:.0f} x{width:.0f}/{widest or width:.0f}",
    )


def _unit(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _programs(rows: Sequence[tuple[str, SmiGpu]]) -> Iterator[tuple[str, str, str]]:
    for name, card in rows:
        for program in card.programs[:32]:
            yield f"{program.pid} {program.name}"[:80], name, units.size(program.used_bytes)


def _numbers(name: str, card: SmiGpu) -> dict[str, Any]:
    used, total = _memory(card)
    now, most = _generation(card)
    return {
        "gpu": name.removeprefix("GPU "),
        "bus": card.bus or None,
        "product": card.text("product name"),
        "busy_percent": card.first(("utilization", "gpu"), ("utilization", "gpu utilization")),
        "reasons": sorted(_reasons(card)),
        "sm_mhz": card.first(("clocks", "sm"), ("clocks", "graphics")),
        "max_sm_mhz": card.first(("max clocks", "sm"), ("max clocks", "graphics")),
        "temperature_c": card.number("temperature", "gpu current temp"),
        "power_w": power(card, "average power draw", "power draw", "instantaneous power draw"),
        "power_limit_w": power(card, "current power limit", "power limit", "enforced power limit"),
        "memory_used_bytes": used,
        "memory_total_bytes": total,
        "uncorrectable": errors(card, "volatile", "uncorrectable"),
        "correctable": errors(card, "volatile", "correctable"),
        "pcie_generation": now,
        "pcie_generation_max": most,
        "pcie_width": card.number("link width", "current"),
        "pcie_width_max": card.number("link width", "max"),
        "processes": [{"pid": one.pid, "name": one.name, "used_bytes": one.used_bytes} for one in card.programs],
    }


def read(text: str) -> Pasted:
    """The report on such output."""
    if not cut(text):
        return summarize(*parse(text))
    return summarize(*parse(without_end(text)), whole=False).with_problems((CUT,))


KIND = TextKind("nvidia-smi", "nvidia-smi -q", looks_like, read)
