"""The report on memory: how much is held, by which kind, whether it grows, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputop import pytorch, units
from gputop.lab.memory import LEAST_BYTES, LEAST_STEPS, MemorySamples
from gputop.paste.pasted import LimitTable
from gputop.phrases import held_against, percent
from gputop.report import Do, Page, Point, ReportTable
from gputop.safe.text import clean

_LIMIT = LimitTable("paste-memory")
_CACHE = 1.5  # times the allocated peak, from which reserved memory is mostly cache
_CACHE_BYTES = 256 << 20
_ROWS = 8  # kinds of tensors
_KEEP_NUMBERS = Do(
    "Keep numbers of each step, not tensors: a tensor keeps everything it was computed from.",
    "losses.append(loss.item())  # and total += loss.item()",
)
_DETACH = "Detach a tensor that must be kept: x.detach().cpu()."


def of_steps(result: Mapping[str, Any]) -> dict[str, Any]:
    """Results from training steps after the warm-up."""
    samples, made = MemorySamples(peaks=True), result["made"]
    for row in result["samples"]:
        if row["step"] >= result["warmup"]:
            unused = None if row["devices"] else "torch sees no CUDA device here"
            said = {**row, "torch": made["torch"], "cuda": unused, "steps": row["step"]}
            samples.take(said, row["host"], row["s"])
    name = result["factory"]
    about = {"name": name, "agent": None, "more": None, "longer": ": --steps 200", "sites": result.get("sites")}
    return {**samples.result(), **about, "ended": result.get("ended")}


def page(result: Mapping[str, Any]) -> Page:
    """The report on all measurements, complete or partial."""
    points = (*_growth(result), *_accumulation(result), *_allocator(result))
    return Page(
        title=_title(result),
        before=tuple(table for table in (_devices(result), _host(result), _over_time(result)) if table.rows),
        heading="Findings so far" if result.get("ended") else "Findings",
        words=tuple(_words(result)),
        points=points,
        tables=tuple(table for table in (_tensors(result), _sites(result)) if table.rows),
        notes=tuple(_notes(result)),
    )


def _title(result: Mapping[str, Any]) -> str:
    steps = "" if result["steps"] is None else f", {result['steps']} steps"
    torch = f", torch {clean(result['torch'])}" if result.get("torch") else ""
    return f"{clean(result['name'])}: memory over {units.ago_text(max(1.0, result['seconds']))}{steps}{torch}"


def _devices(result: Mapping[str, Any]) -> ReportTable:
    rows = [
        (
            f"cuda:{one['device']}",
            *(units.size(one[name]) for name in ("allocated", "peak_allocated", "reserved", "peak_reserved")),
            units.size(one["inactive_split"]),
            units.count(one["segments"]),
        )
        for one in result["devices"]
    ]
    head = ("", "ALLOCATED", "PEAK", "RESERVED", "PEAK", "SPLIT", "SEGMENTS")
    return ReportTable("PyTorch's allocator", head, tuple(rows))


def _host(result: Mapping[str, Any]) -> ReportTable:
    host, of_driver = result["host"], result.get("driver") or []
    head = ("", "NOW", "PEAK", "OF", "SHARED")
    rows = []
    if host["rss"] is not None:
        rows.append(("RSS", units.size(host["rss"]), units.size(host["peak"]), "", units.size(host["shared"])))
    gpus = [
        (f"GPU {one['gpu']}, by the driver", units.size(one["used"]), "", units.size(one["total"]), "")
        for one in of_driver
    ]
    return ReportTable("The process", head, (*rows, *gpus))


def _over_time(result: Mapping[str, Any]) -> ReportTable:
    a_step = result["steps"] is not None
    head = ("", "FIRST", "LAST", "MOST", "PER STEP" if a_step else "PER MIN", "±", "GROWS")
    rows = [
        (
            one["name"],
            *(units.size(one[name]) for name in ("first", "last", "most")),
            _signed(one["each"], a_step),
            units.UNKNOWN if one["noise"] is None else units.size(_each(one["noise"], a_step)),
            {True: "yes", False: "no", None: units.UNKNOWN}[one["grows"]],
        )
        for one in result["rows"]
        if one["first"] is not None
    ]
    return ReportTable("During the measurement", head, tuple(rows))


def _each(value: float, a_step: bool) -> float:
    return value if a_step else 60 * value


def _signed(value: float | None, a_step: bool) -> str:
    if value is None:
        return units.UNKNOWN
    text = units.size(abs(_each(value, a_step)))
    return text if text == "0" else f"{'+' if value > 0 else '-'}{text}"


def _words(result: Mapping[str, Any]) -> Iterator[str]:
    """Whether memory grows, if no item says that it does."""
    if any(one["grows"] for one in result["rows"]):
        return
    if any(one["grows"] is None for one in result["rows"]) or not result["rows"]:
        seen = f"{result['seconds']:.0f} s without steps are too short"
        if result["steps"] is not None and result["steps"] >= LEAST_STEPS:
            seen = "too few samples"
        elif result["steps"] is not None:
            seen = f"{result['steps']} steps were made, {LEAST_STEPS} are needed"
        yield f"Memory growth is undetermined: {seen}; measure longer{result['longer']}."
    else:
        yield "Memory does not grow from step to step." if result["steps"] is not None else "Memory does not grow."


def _growth(result: Mapping[str, Any]) -> Iterator[Point]:
    """One item per growing kind of memory; growth of reserved memory due to it is not separate."""
    a_step = result["steps"] is not None
    growing = [one for one in result["rows"] if one["grows"]]
    allocated = {one["device"] for one in growing if one["kind"] == "allocated"}
    for one in growing:
        if one["kind"] in ("reserved", "peak") and one["device"] in allocated:
            continue
        each = f"{units.size(_each(one['each'], a_step))} {'per step' if a_step else 'per minute'}"
        noise = units.size(_each(one["noise"], a_step))
        facts = (
            f"±{noise}",
            f"{units.size(one['first'])} → {units.size(one['last'])}",
            *_line(result, one),
            *_left(result, one, a_step),
        )
        yield Point(
            severity="warn",
            text=f"{_NAMES[one['kind']].format(clean(one['name']))} grows by {each}.",
            facts=facts,
            steps=tuple(_advice(result, one)),
        )


_NAMES = {
    "allocated": "{}: memory in use by tensors",
    "reserved": "{}: memory reserved by PyTorch's allocator",
    "peak": "{}",
    "driver": "{}: device memory of the process",
    "host": "Host memory of the process",
}


def _line(result: Mapping[str, Any], one: Mapping[str, Any]) -> Iterator[str]:
    """The line that allocated most of what was not freed."""
    kept = [site for site in result.get("sites") or () if site["kept"] and one["device"] == site["gpu"]]
    if kept:
        yield f"kept: {units.size(kept[0]['bytes'])} in {kept[0]['blocks']} blocks of {clean(kept[0]['where'], 60)}"


def _left(result: Mapping[str, Any], one: Mapping[str, Any], a_step: bool) -> Iterator[str]:
    """When the only GPU is full."""
    of_driver = result.get("driver") or []
    if one["kind"] == "host" or len(of_driver) != 1 or of_driver[0]["total"] is None or of_driver[0]["free"] is None:
        return
    left = of_driver[0]["free"] / one["each"]
    yield f"full in about {units.count(left)} steps" if a_step else f"full in about {units.roughly(left)}"


def _advice(result: Mapping[str, Any], one: Mapping[str, Any]) -> Iterator[str | Do]:
    if one["kind"] == "reserved":
        yield "Keep batch shapes fixed, as each new shape may take a new segment: pad to a few lengths."
        yield Do("Let segments grow.", pytorch.allocator("expandable_segments:True", result.get("torch")))
        return
    yield _KEEP_NUMBERS
    yield _DETACH
    if one["kind"] == "host":
        yield "A dataset or cache that fills also grows, until all samples have been read."
    if result.get("tensors") is None and not result.get("untold") and result.get("more"):
        yield Do("See what accumulates.", result["more"])


def _accumulation(result: Mapping[str, Any]) -> Iterator[Point]:
    """Accumulating tensors: with their graph, or large in total; losses first, as the cause."""
    piled = [
        one
        for one in result.get("tensors") or ()
        if one["grows"] and (one["graph"] or _added_bytes(one) >= LEAST_BYTES)
    ]
    if not piled:
        return
    first, *others = sorted(piled, key=lambda one: (not _is_loss(one), -one["bytes"]))
    what = "Losses with their graphs" if _is_loss(first) else f"{_shaped(first)} tensors"
    yield Point(
        severity="warn",
        text=f"{what} accumulate: {first['more']} more in {result['steps']} steps.",
        facts=tuple(
            f"{_shaped(one)}: {one['count']} alive, {units.size(one['bytes'])}" for one in (first, *others[:3])
        ),
        steps=() if any(row["grows"] for row in result["rows"]) else (_KEEP_NUMBERS, _DETACH),
    )


def _is_loss(one: Mapping[str, Any]) -> bool:
    return bool(one["graph"]) and not one["shape"]


def _added_bytes(one: Mapping[str, Any]) -> float:
    """Bytes of those added."""
    return float(one["bytes"] / max(1, one["count"]) * one["more"])


def _allocator(result: Mapping[str, Any]) -> Iterator[Point]:
    """Cache, fragmentation and retries of each device."""
    for one in result["devices"]:
        gpu, reserved, peak, split = f"cuda:{one['device']}", one["reserved"], one["peak_allocated"], one["split"]
        if split >= _LIMIT["split"] * max(1, reserved):
            yield Point(
                severity="warn",
                text=f"{gpu}: the allocator's cache is fragmented.",
                facts=(
                    f"{units.size(split)} free in partly used segments, {percent(split / reserved)} of what is "
                    f"reserved ({held_against(percent(_LIMIT['split']), 'flagged_from')})",
                ),
                steps=(
                    Do("Let segments grow.", pytorch.allocator("expandable_segments:True", result.get("torch"))),
                    "Keep batch shapes fixed: pad to a few lengths.",
                ),
            )
        elif reserved >= _CACHE * peak and reserved - peak >= _CACHE_BYTES:
            yield Point(
                severity="info",
                text=f"{gpu}: {units.size(reserved - peak)} is unused cache held by PyTorch.",
                facts=(f"{units.size(reserved)} reserved, at most {units.size(peak)} allocated",),
                steps=("Call torch.cuda.empty_cache() between phases, never inside the loop.",),
            )
        if one["retries"]:
            times = "once" if one["retries"] == 1 else f"{units.count(one['retries'])} times"
            yield Point(
                severity="warn",
                text=f"{gpu}: memory ran out {times}, and the allocator freed its cache, which stalls the GPU.",
                facts=(f"{units.count(one['ooms'])} times that was not enough",) if one["ooms"] else (),
                steps=("Lower the batch size a little, or use activation checkpointing.",),
            )


def _shaped(one: Mapping[str, Any]) -> str:
    shape = "×".join(str(size) for size in one["shape"]) or "scalar"
    return clean(f"{one['dtype']} {shape}", 60)


def _tensors(result: Mapping[str, Any]) -> ReportTable:
    a_step = result["steps"] is not None
    rows: Sequence[Mapping[str, Any]] = result.get("tensors") or ()
    first = sorted(rows, key=lambda one: (not one["grows"], -one["bytes"]))[:_ROWS]
    cells = [
        (
            f"{_shaped(one)}{' parameter' * (one['type'] == 'Parameter')}{', with graph' * one['graph']}",
            clean(one["device"], 12),
            units.size(one["bytes"]),
            str(one["count"]),
            *((f"{one['more']:+d}" if one["more"] else "0",) if a_step else ()),
        )
        for one in first
    ]
    return ReportTable("Live tensors", ("", "DEVICE", "BYTES", "COUNT", *(("CHANGE",) if a_step else ())), tuple(cells))


def _sites(result: Mapping[str, Any]) -> ReportTable:
    rows = [site for site in result.get("sites") or () if not site["kept"]]
    cells = [
        (clean(one["where"], 60), f"cuda:{one['gpu']}", units.size(one["bytes"]), str(one["blocks"])) for one in rows
    ]
    return ReportTable("Lines that hold the most", ("", "DEVICE", "BYTES", "BLOCKS"), tuple(cells[:_ROWS]))


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    if ended := result.get("ended"):
        yield f"The measurement is not complete: {clean(ended)}"
    if agent := result.get("agent"):
        yield clean(agent)
    elif (cuda := result.get("cuda")) and result.get("torch"):
        yield f"No device memory is shown: {clean(cuda)}."
    if untold := result.get("untold"):
        yield f"Live tensors are not listed: {clean(untold)}."
    if result.get("tensors"):
        yield "Tensors held only by the autograd graph are not listed: Python does not see them."
