"""The report on precisions: a table of runs, the roofline, the verdict, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from gputop import units
from gputop.lab.precision import (
    BF16,
    CEILINGS,
    COMPILED,
    FP16,
    FP32,
    LEAST_COMPILE,
    LEAST_PRECISION,
    SAME_TIME,
    SIZES,
    TF32,
    TWICE_TIME,
    WAITS,
    SpeedRatio,
    Spot,
    bandwidth,
    bf16_cores,
    extra_share,
    gain,
    median_of,
    picture,
    rate,
    spots,
    spread,
    verdict,
    wait_share,
)
from gputop.report import Do, Page, Point, ReportTable
from gputop.safe.text import clean

_NAMES = {COMPILED: "bf16 + compile", FP32: "fp32", BF16: "bf16", TF32: "TF32", FP16: "fp16 + scaler"}


def page(result: Mapping[str, Any]) -> Page:
    """The report on all measurements, complete or partial."""
    found = spots(result)
    done = not result.get("ended")
    return Page(
        title=_title(result),
        before=(_runs(result), *_efficiency(result, found)),
        drawing=(*picture(found), *_legend(found)),
        heading="Findings" if done else "Findings so far",
        words=tuple(_words(result, found)),
        points=tuple(_points(result)) if done else (),
        notes=tuple(_notes(result, found)),
    )


def name_of(kind: str) -> str:
    """Name of a precision in tables."""
    return _NAMES.get(kind, clean(kind))


def _title(result: Mapping[str, Any]) -> str:
    made = result["made"]
    where = clean(made["device_name"] or "CUDA") if made["device"] == "cuda" else f"CPU, {made['cpus']} threads"
    size = "" if made["batch_size"] is None else f"batches of {made['batch_size']}, "
    return f"{clean(result['factory'])}: {size}{where}, torch {clean(made['torch'])}"


def _share(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{100 * value:.0f} %"


def _runs(result: Mapping[str, Any]) -> ReportTable:
    """One row per precision: medians of its equal runs."""
    runs = result["runs"]
    counts = all(row["samples_per_s"] for rows in runs.values() for row in rows)
    key, title = ("samples_per_s", "SAMPLES/s") if counts else ("steps_per_s", "STEPS/s")
    cuda = result["made"]["device"] == "cuda"
    head = ("", title, "SPREAD", "STEP", "COMPUTE ONLY", "PEAK MEMORY" if cuda else "PEAK RSS", "COMPILE", "SPEEDUP")
    first = next(iter(runs.values()))
    cells = []
    for kind, rows in runs.items():
        factor = (median_of(rows, "steps_per_s") or 0.0) / (median_of(first, "steps_per_s") or 1.0)
        compiled = [row["compile_s"] for row in rows if row["compile_s"] is not None]
        cells.append(
            (
                name_of(kind),
                f"{median_of(rows, key):.4g}",
                _share(spread(rows)),
                units.took_text(median_of(rows, "step_s")),
                units.took_text(median_of(rows, "alone_s")),
                units.decimal(max(row["peak_bytes"] for row in rows)),
                units.took_text(max(compiled)) if compiled else "",
                f"{factor:.2f}×",
            )
        )
    return ReportTable("precision", head, tuple(cells))


def _kernels(result: Mapping[str, Any]) -> tuple[str, bool]:
    """What limits a step that is far below both roofs, and whether that is known: its time grows with the batch."""
    of = "kernels" if result["made"]["device"] == "cuda" else "operators"
    known = verdict(result)["overhead_bound"] is False
    return (f"slow {of}" if known else f"slow or small {of}"), known


def _efficiency(result: Mapping[str, Any], found: Sequence[Spot]) -> Iterator[ReportTable]:
    if not found:
        return
    slow, known = _kernels(result)
    head = ("", "FLOP/STEP", "ACHIEVED", "CEILING", "MFU", "FLOP/BYTE", "BOUND BY")
    cells = [
        (
            name_of(spot.kind),
            rate(spot.flops).removesuffix("/s"),
            rate(spot.flops_per_s),
            units.UNKNOWN if spot.ceiling is None else rate(spot.ceiling),
            _share(spot.utilization),
            units.UNKNOWN if spot.intensity is None else f"{spot.intensity:.3g}",
            units.UNKNOWN if spot.roof is None and not spot.bound else spot.bound or (slow if known else "neither"),
        )
        for spot in found
    ]
    yield ReportTable("efficiency, compute only", head, tuple(cells))


def _legend(found: Sequence[Spot]) -> Iterator[str]:
    """The letters and lines of the roofline, each with its numbers."""
    placed = [spot for spot in found if spot.roof is not None and spot.intensity]
    for letter, spot in zip("ABCDEFGH", placed, strict=False):
        limit = "compute" if spot.roof == spot.ceiling else "memory bandwidth"
        allows = f"at {spot.intensity:.3g} FLOP/byte {limit} allows {rate(spot.roof or 0.0)}"
        yield f"  {letter}  {name_of(spot.kind)}: {rate(spot.flops_per_s)}; {allows}"
    if placed:
        yield f"  /  memory bandwidth: a copy reached {bandwidth(placed[0].bandwidth or 0.0)}"
        yield "  ─  compute: what a matrix product reached in each precision"


def _speed(one: SpeedRatio, than: str, least: float) -> str:
    """A speedup, that of single runs, and from which on it counts."""
    word = f"{1 + one.middle:.2f}× the speed of {than}"
    if one.once:
        return f"{word} (one run of each; {_worthwhile(least)})"
    return f"{word} ({1 + one.low:.2f}× to {1 + one.high:.2f}× in single runs; {_worthwhile(least)})"


def _worthwhile(least: float) -> str:
    return f"worthwhile from {1 + least:.2f}×"


def _words(result: Mapping[str, Any], found: Sequence[Spot]) -> Iterator[str]:
    """Sentences on waits for data, gains, the two batch sizes, and what limits a step."""
    made, runs = result["made"], result["runs"]
    first = FP32 if FP32 in runs else next(iter(runs))
    if made["loads"]:
        waiting = wait_share(runs[first])
        yield (
            f"{name_of(first)}: a step takes {units.took_text(median_of(runs[first], 'step_s'))}, and "
            f"{units.took_text(median_of(runs[first], 'alone_s'))} without data wait: "
            f"training waits for data {_share(waiting.middle)} of the time."
        )
        if median(map(extra_share, runs[first])) - waiting.middle >= WAITS:
            yield (
                "The rest of the difference is not a wait for data: batches of other sizes, or other programs on this "
                "machine."
            )
    for before, after, least in (
        (FP32, TF32, LEAST_PRECISION),
        (FP32, BF16, LEAST_PRECISION),
        (FP32, FP16, LEAST_PRECISION),
        (BF16, COMPILED, LEAST_COMPILE),
    ):
        if (one := gain(result, before, after)) is not None:
            yield f"{name_of(after)}: {_speed(one, name_of(before), least)}."
    if sizes := result.get("sizes"):
        ratio = sizes["ratio"]
        yield (
            f"A batch of {2 * sizes['size']} takes {ratio['middle']:.2f}× the time of {sizes['size']} in "
            f"{name_of(sizes['kind'])}: {_size_says(ratio, steady=sizes['steady'], cuda=made['device'] == 'cuda')}."
        )
    yield from _neither(result, found)


def _size_says(ratio: Mapping[str, float], *, steady: bool, cuda: bool) -> str:
    """What two batch sizes say of the time that does not depend on the batch."""
    fixed, small = ("launch overhead", "small kernels") if cuda else ("fixed overhead", "small operators")
    if not steady:
        return "single steps vary too much to decide"
    if ratio["high"] < SAME_TIME:
        return f"most of the time is {fixed}, or {small}"
    if ratio["low"] > TWICE_TIME:
        return f"the time grows with the batch, so {fixed} is not the limit"
    return f"part of the time is {fixed}, or {small}"


def _neither(result: Mapping[str, Any], found: Sequence[Spot]) -> Iterator[str]:
    """What a step below both roofs means: one sentence, or the low MFU seems to contradict the two batch sizes."""
    names = [name_of(spot.kind) for spot in found if spot.roof is not None and spot.bound is None]
    if names:
        reach = "reaches" if len(names) == 1 else "reach"
        those = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
        yield (
            f"{those} {reach} less than half of what compute or memory bandwidth allows, whichever is lower: "
            f"{_kernels(result)[0]}. Find them with gputop trace."
        )


def _points(result: Mapping[str, Any]) -> Iterator[Point]:
    """What to do, the cheapest and most likely first."""
    says, cuda = verdict(result), result["made"]["device"] == "cuda"
    unsure = []
    if says["waits_for_data"]:
        command = f"gputop loader {clean(result['factory'])}"
        yield Point(
            severity="warn",
            text="dataloader-bound, tune the loader before precision",
            facts=(f"waits for data {_share(says['waits'])} of the time (healthy < 20 %)",),
            steps=(Do("Measure the loader's settings", command),),
        )
    elif says["waits_for_data"] is None and result["made"]["loads"]:
        unsure.append("the wait for data")
    yield from _overhead(says)
    if cuda:
        yield from _precision(says, result)
    elif says["compile_helps"]:
        facts = (f"{1 + says['compile_gain']:.2f}× the speed of bf16 on this CPU ({_worthwhile(LEAST_COMPILE)})",)
        yield Point(severity="info", text="torch.compile helps on this CPU", facts=facts)
    unsure += [
        words
        for key, words in (
            ("precision_helps", f"the gain of {name_of(says['precision'])}"),
            ("compile_helps", "the gain of torch.compile"),
        )
        if says[key] is None and says[key.replace("helps", "gain")] is not None and (cuda or "compile" in key)
    ]
    if unsure:
        once = max(len(rows) for rows in result["runs"].values()) == 1
        why = "one run of each may be chance" if once else "equal runs differ too much"
        do = "Measure with --repeats 3" if once else "Measure on a quiet machine, or with --repeats 7"
        yield Point(severity="info", text=f"undecided: {', '.join(unsure)}; {why}", steps=(do,))


def _overhead(says: Mapping[str, Any]) -> Iterator[Point]:
    if says["overhead_bound"]:
        yield Point(
            severity="warn",
            text="overhead-bound, a larger batch is nearly free",
            facts=(f"twice the batch takes less than {SAME_TIME:g}× the time",),
            steps=("Raise the batch size: gputop maxbatch finds the limit", "Use torch.compile, or CUDA Graphs"),
        )


def _precision(says: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Point]:
    """The verdict on a GPU: both, one of them, or neither."""
    precise, fused, kind = says["precision_helps"], says["compile_helps"], says["precision"]
    compiled = Do("Compile once", "model = torch.compile(model)")
    if precise and fused and kind == BF16:
        both = gain(result, FP32, COMPILED)
        factor = f"{1 + both.middle:.1f}×" if both else ""
        yield Point(
            severity="info",
            text=f"use bf16 and torch.compile, {factor} the speed of fp32",
            steps=(compiled, *_AUTOCAST[BF16]),
        )
        return
    if precise:
        after = "; torch.compile gains little: kernels are already fused" if fused is False else ""
        yield Point(severity="info", text=f"use {name_of(kind)}{after}", steps=_AUTOCAST[kind])
    else:
        yield from _no_half(says, result)
    if fused:
        yield Point(severity="info", text="use torch.compile", steps=(compiled,))
    elif fused is False and not precise and COMPILED not in result["failed"]:
        yield Point(severity="info", text="torch.compile gains little: kernels are already fused")


def _no_half(says: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Point]:
    """If half precision gains little or the result is undecided: TF32, or precision is not the limit."""
    name, tf32 = name_of(says["precision"]), gain(result, FP32, TF32)
    large = f"the speed of fp32 ({_worthwhile(LEAST_PRECISION)})"
    if tf32 is not None and tf32.decided(LEAST_PRECISION):
        yield Point(
            severity="info",
            text="use TF32",
            facts=(f"TF32 has {1 + tf32.middle:.2f}× {large}",),
            steps=(Do("Compute matrix products in TF32", 'torch.set_float32_matmul_precision("high")'),),
        )
    elif says["precision_helps"] is False and says["precision"] == BF16 and not bf16_cores(result):
        yield Point(
            severity="info",
            text="undecided: whether precision is the limit; this GPU has no Tensor Cores for bf16",
            steps=("Measure with --fp16",),
        )
    elif says["precision_helps"] is False and not says["waits_for_data"]:
        yield Point(
            severity="info",
            text=f"precision is not the limit: {name} gains little",
            facts=(f"{name} has {1 + says['precision_gain']:.2f}× {large}",),
            steps=("Record a trace of some steps: gputop explain shows what the GPU waits for",),
        )


_AUTOCAST = {
    BF16: (Do("Run forward and loss under bf16 autocast", 'with torch.autocast("cuda", dtype=torch.bfloat16):'),),
    FP16: (
        Do("Run forward and loss under fp16 autocast", 'with torch.autocast("cuda", dtype=torch.float16):'),
        Do(
            "Scale the loss, or small gradients become 0",
            "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
        ),
    ),
}


def _notes(result: Mapping[str, Any], found: Sequence[Spot]) -> Iterator[str]:
    made, runs = result["made"], result["runs"]
    if ended := result.get("ended"):
        yield f"The measurement is not complete: {clean(ended)}"
    for key, text in result["failed"].items():
        yield f"{key if key in (SIZES, CEILINGS) else name_of(key)} was not measured: {clean(text)}"
    if made["device"] != "cuda":
        yield (
            f"This is a CPU. It cannot show what {'bf16 or fp16 gain' if FP16 in runs else 'bf16 gains'} from a GPU's "
            "Tensor Cores, nor GPU memory, nor how long a GPU waits."
        )
    elif TF32 not in runs and TF32 not in result["failed"] and not made["tf32"] and bf16_cores(result):
        yield "TF32 was not measured: --tf32 adds it."
    if made["device"] == "cuda" and not bf16_cores(result):
        yield "This GPU has no Tensor Cores for bf16: newer GPUs have them, and gain more."
    if lost := max((row.get("skipped") or 0 for row in runs.get(FP16, ())), default=0):
        yield (
            f"fp16 + scaler: gradients overflowed in {lost} of {runs[FP16][0]['steps']} steps, which take no optimizer "
            "step."
        )
    rows = [row for each in runs.values() for row in each]
    chosen = [rows[0]["loss_name"], made["optimizer"]]
    if any(word and "chosen" in word for word in chosen):
        yield f"Loss: {clean(chosen[0] or 'unknown')}. Optimizer: {clean(chosen[1] or 'none')}."
    if unknown := [name_of(kind) for kind, each in runs.items() if any(row["loss"] is None for row in each)]:
        yield f"The loss of the last step is not a finite number, or none is returned: {', '.join(unknown)}."
    if made["tf32"]:
        yield "fp32 here is as your code sets it: matrix products in TF32."
    if breaks := max((row["breaks"] or 0 for row in runs.get(COMPILED, ())), default=0):
        yield f"torch.compile broke the graph {breaks} times: it compiles only the parts between."
    if any(row["compile_s"] for row in rows):
        yield "COMPILE is the extra time of the first steps; torch caches compiled code between runs."
    yield from _counts(result, found)


def _counts(result: Mapping[str, Any], found: Sequence[Spot]) -> Iterator[str]:
    """Meaning of the roofline's numbers."""
    reasons = {row["uncounted"] for rows in result["runs"].values() for row in rows if row.get("uncounted")}
    for reason in sorted(reasons):
        yield clean(reason[:1].upper() + reason[1:]) + "."
    if any(spot.utilization for spot in found):
        yield (
            "CEILING is what a matrix product reached on this device, and MFU the achieved share of it. Bytes are "
            "counted as if nothing were cached or fused, so FLOP/BYTE is a lower bound."
        )
