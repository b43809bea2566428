"""The report on a DataLoader: tables by workers and settings, its present state, the advice, slow samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputop import units
from gputop.lab.loader import (
    AHEAD,
    ANY_ORDER,
    COPIED,
    LEAST_GAIN,
    PINNED,
    SAME,
    STAYS,
    STEP_BATCHES,
    faster_batches_help,
    faster_epochs,
    is_faster,
    is_gain,
    line,
    per_rank,
    plan_of,
    wait_share,
)
from gputop.phrases import percent
from gputop.report import Do, Page, Point, ReportTable
from gputop.safe.text import clean
from gputop.units import took_text

# batches/s by workers of a CPU-bound loader, 64 images per batch, on a 16-core machine
_MUCH_WAIT = 0.1  # of the training time
PUBLISHED = {0: 22.1, 2: 53.5, 4: 107.5, 8: 196.1, 12: 200.0}
_COLD = 0.5  # of the first setting's reads: below, the others read from the page cache
_COLD_BYTES = 16 << 20
_NAMED = 5  # slow samples
_SKEWED = 1.02  # mean over 90th percentile: equal ones differ in their last digit


def page(result: Mapping[str, Any]) -> Page:
    """The report on all measurements, complete or partial."""
    if not result.get("workers"):
        return Page(title=f"{clean(result['factory'])}: nothing was measured", heading="Findings")
    known = "recommended" in result
    done = known and not result.get("ended")
    return Page(
        title=_title(result),
        before=(_workers(result), *_option_tables(result)),
        heading="Findings" if done else "Findings so far",
        words=(_present(result), *(() if done else map(_sentence, _facts(result)))) if known else (),
        points=(_advice(result), *_slow_point(result)) if done else (),
        notes=tuple(_notes(result)),
    )


def _title(result: Mapping[str, Any]) -> str:
    made = result["made"]
    size = "its own batches" if made["batch_size"] is None else f"batches of {made['batch_size']}"
    cpus = units.cpus(result["cpus"])
    return f"{clean(result['factory'])}: {size}, {cpus} CPUs, torch {clean(made['torch'])}"


def _sentence(fact: str) -> str:
    """A fact as a sentence; one that begins with the name of a setting keeps it as it is."""
    return f"{fact[:1].upper() if fact.split()[0].isalpha() else fact[:1]}{fact[1:]}."


def _rate_text(row: Mapping[str, Any]) -> str:
    rate = row["batches_per_s"]
    return f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"


def _factor(value: float) -> str:
    return f"{value:.1f}×" if value >= 0.95 else f"{value:.2g}×"


def _row(result: Mapping[str, Any], count: int) -> Mapping[str, Any] | None:
    """The measurement of a number of workers; None without one."""
    return next((row for row in result["workers"] if row["num_workers"] == count), None)


def _with_step(result: Mapping[str, Any]) -> dict[int, float]:
    """Share of time spent waiting for data by workers, where loader and step ran together."""
    best = result.get("with_step")
    older = {best["num_workers"]: best["waits"]} if best else {}
    return older | {row["num_workers"]: row["waits"] for row in result["workers"] if "waits" in row}


def _waits(result: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    """Share of the training time spent waiting for data: measured, else computed; None if neither.

    One number for one setting: beyond those measured with the step, the computed share would only seem better.
    """
    count, step_s, measured = row["num_workers"], result.get("step_s"), _with_step(result)
    if count in measured:
        return measured[count]
    return None if step_s is None or (measured and count > max(measured)) else wait_share(row, step_s)


def _on_cpu(result: Mapping[str, Any]) -> bool:
    """Whether the step was timed, and torch saw no GPU to run it on."""
    return result.get("step_s") is not None and not result["made"]["cuda"]


def _workers(result: Mapping[str, Any]) -> ReportTable:
    rows, step_s = result["workers"], result.get("step_s")
    first = rows[0]
    referred = first["num_workers"] == 0
    head = ["", "BATCHES/s", "MEAN", "P50", "P90", "SLOWEST", "FIRST BATCH", "SPEEDUP"]
    head += ["DATA WAIT"] if step_s is not None else []
    head += ["PUBLISHED"] if referred else []
    cells = []
    for row in rows:
        count = row["num_workers"]
        cell = [
            str(count),
            _rate_text(row),
            *(took_text(row[key]) for key in ("mean_s", "p50_s", "p90_s", "slowest_s")),
        ]
        cell += [took_text(row["first_s"]), _factor(row["batches_per_s"] / first["batches_per_s"])]
        if step_s is not None:
            waits = _waits(result, row)
            cell.append(units.UNKNOWN if waits is None else percent(waits))
        if referred:
            cell.append(f"{PUBLISHED[count] / PUBLISHED[0]:.1f}×" if count in PUBLISHED else units.UNKNOWN)
        cells.append(tuple(cell))
    return ReportTable("num_workers", tuple(head), tuple(cells))


def _option_tables(result: Mapping[str, Any]) -> Iterator[ReportTable]:
    rows = result.get("options") or []
    if not rows:
        return
    count = result["recommended"]
    head = ("", "BATCHES/s", "MEAN", "P90", "SLOWEST", "NEXT EPOCH")
    cells = [
        (
            row["setting"],
            _rate_text(row),
            *(took_text(row[key]) for key in ("mean_s", "p90_s", "slowest_s", "again_s")),
        )
        for row in rows
    ]
    yield ReportTable(f"num_workers={count}, one change at a time", head, tuple(cells))


def _present(result: Mapping[str, Any]) -> str:
    """How the loader fares as the function makes it."""
    own = result["made"]["workers"]
    row = _row(result, own)
    if row is None:
        return f"Your loader: num_workers={own}, which was not measured."
    if (waits := _waits(result, row)) is None:
        return f"Your loader: num_workers={own}, {_rate_text(row)} batches/s."
    where = " (step timed on the CPU)" if _on_cpu(result) else ""
    return f"Your loader: num_workers={own}, training waits for data {percent(waits)} of the time{where}."


def _advice(result: Mapping[str, Any]) -> Point:
    """The number of workers, why it is enough, and the line to write."""
    plan, count, on_cpu = plan_of(result), result["recommended"], _on_cpu(result)
    rank = per_rank(plan, count)
    code = line(result, rank)
    steps: list[str | Do] = ["Repeat it where the GPU is: a shorter step needs more workers"] if on_cpu else []
    steps.append(Do("Until then, create the loader as" if on_cpu else "Create the loader as", code))
    if "pin_memory=True" in code:
        steps.append("Copy batches with .to(device, non_blocking=True): the other half of pin_memory")
    kept = rank == result["made"]["workers"]
    text = f"{'try' if on_cpu else 'keep' if kept else 'use'} num_workers={rank}{_effect(result, rank)}"
    much = (_own_waits(result) or 0.0) >= _MUCH_WAIT and not kept and not on_cpu
    return Point(
        severity="warn" if much else "info", text=text, facts=tuple(_enough_facts(result, rank)), steps=tuple(steps)
    )


def _own_waits(result: Mapping[str, Any]) -> float | None:
    """The share of the training time that the loader as it is waits; None if unknown."""
    own = _row(result, result["made"]["workers"])
    return _waits(result, own) if own else None


def _effect(result: Mapping[str, Any], rank: int) -> str:
    """What the recommended number of workers gains over the present one."""
    plan, count, own = plan_of(result), result["recommended"], _row(result, result["made"]["workers"])
    if rank != count:
        return f" for each of {plan.jobs} ranks"
    best = _row(result, count)
    assert best is not None
    if (waits := _waits(result, best)) is not None:
        now = None if own is best else _own_waits(result)
        then = f", now {percent(now)}: up to {(1 - waits) / (1 - now):.1f}× faster" if now and waits < now < 1 else ""
        return f"; training {'' if own is best else 'then '}waits for data {percent(waits)} of the time{then}"
    if own is not None and is_gain(own["batches_per_s"], best["batches_per_s"]):
        return f"; it loads {best['batches_per_s'] / own['batches_per_s']:.1f}× as fast"
    return ""


def _enough_facts(result: Mapping[str, Any], rank: int) -> Iterator[str]:
    """What the advice rests on."""
    plan, count, step_s = plan_of(result), result["recommended"], result.get("step_s")
    if _on_cpu(result):
        yield (
            "the step was timed on the CPU, as no GPU is visible: repeat where the GPU is before trusting this number"
        )
    if rank != count:
        yield f"num_workers={count} for one rank alone"
        yield f"{plan.cpus} CPUs for {plan.jobs} ranks: {rank} each"
    if step_s is not None and (best := _row(result, count)):
        where = "on the CPU " if _on_cpu(result) else ""
        yield f"a training step takes {took_text(step_s)} {where}(median of {STEP_BATCHES} steps run here)"
        yield f"a batch is ready every {took_text(best['mean_s'])} on average"
    yield _enough(result)
    yield from _effects(result)


def _facts(result: Mapping[str, Any]) -> Iterator[str]:
    """All that is known before the measurement is complete."""
    count = result["recommended"]
    yield f"best so far: num_workers={count}{_effect(result, count)}"
    yield from _enough_facts(result, count)
    yield from _slow(result)


def _enough(result: Mapping[str, Any]) -> str:
    """Why this number of workers."""
    rows, count, with_step = result["workers"], result["recommended"], result.get("with_step")
    after = next((row["num_workers"] for row in rows if row["num_workers"] > count), None)
    of = "load batches" if result.get("step_s") is None else "train"
    if with_step and with_step["waits"] < LEAST_GAIN:
        return "more workers can save no more than this wait"
    if len(rows) == 1:
        return f"only num_workers={count} was measured"
    if not count:
        return f"num_workers=0 is the fastest way to {of} here: workers cost more than they save"
    if after is not None:
        return f"num_workers={count} is enough: {after} would {of} less than {percent(LEAST_GAIN)} faster"
    if count >= result["cpus"]:
        return f"num_workers={count} is the fastest measured; there are no more than {units.cpus(result['cpus'])} CPUs"
    return f"num_workers={count} is the fastest measured; more may be faster still: try --workers {count},{2 * count}"


def _effects(result: Mapping[str, Any]) -> Iterator[str]:
    """What each other setting gains."""
    options = {row["setting"]: row for row in result.get("options") or ()}
    if SAME not in options:
        return
    faster = [name for name in (AHEAD, ANY_ORDER) if is_faster(options.get(name))]
    better = [f"{name} is {100 * options[name]['gain']:.0f} % faster, each time it was measured" for name in faster]
    if faster_epochs(options):
        stays, plain = options[STAYS]["again_s"], options[SAME]["again_s"]
        better.append(
            f"persistent_workers=True starts the next epoch in {took_text(stays)} instead of {took_text(plain)}"
        )
    copied, pinned = options.get(COPIED), options.get(PINNED)
    if copied and pinned and is_gain(copied["batches_per_s"], pinned["batches_per_s"]):
        factor = pinned["batches_per_s"] / copied["batches_per_s"]
        better.append(f"pin_memory=True with non_blocking=True copies to the GPU {factor:.1f}× as fast")
    yield from better or [f"no other setting helps; two equal runs differ by {100 * result['noise']:.0f} %"]
    if faster and not faster_batches_help(result):
        yield "the step rarely waits for data, so faster batches gain nothing: prefetch_factor keeps its default, 2"
    elif ANY_ORDER in faster:
        yield "in_order=False changes the order of batches from run to run, so it is not in the line below"


def _slow_point(result: Mapping[str, Any]) -> Iterator[Point]:
    facts, samples = tuple(_slow(result)), result.get("slow_samples")
    if not facts:
        return
    steps: tuple[str, ...] = ()
    if samples:
        worst = max(samples, key=lambda one: one["s"])["index"]
        steps = (f"Shrink, re-encode or cache the slow samples, first dataset[{worst}]",)
    text = f"slow {'samples' if samples else 'batches'}{'' if samples and _hidden(result) else ' delay batches'}"
    yield Point(severity="info", text=text, facts=facts, steps=steps)


def _slow(result: Mapping[str, Any]) -> Iterator[str]:
    """Slow samples by index, or the slowest batch and why its samples are not identified."""
    batches, samples = result.get("slow_batches") or [], result.get("slow_samples")
    if not batches:
        return
    if samples:
        yield from _named(result, samples)
    else:
        worst = max(batches, key=lambda one: one["s"])
        median = took_text(result["workers"][0]["p50_s"])
        yield f"batch {worst['number']} took {took_text(worst['s'])}, the median batch {median}"
        yield from _unnamed(result, samples)
    if _skewed(result):
        yield f"slow {'samples' if samples else 'batches'} raise MEAN above P90 in the table"


def _hidden(result: Mapping[str, Any]) -> bool:
    """Whether the slowest sample takes longer than any batch of the recommended workers."""
    best = _row(result, result["recommended"])
    assert best is not None
    return bool(best["num_workers"]) and max(one["s"] for one in result["slow_samples"]) > best["slowest_s"]


def _named(result: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The slow samples, and what of them the recommended setting shows."""
    ordered = sorted(samples, key=lambda one: -one["s"])
    named = ", ".join(f"dataset[{one['index']}] takes {took_text(one['s'])}" for one in ordered[:_NAMED])
    yield f"{named}; the median sample takes {took_text(samples[0]['median_s'])} (loaded alone)"
    best = _row(result, result["recommended"])
    if best is not None and _hidden(result):
        slowest = took_text(best["slowest_s"])
        yield f"other workers hide it: with num_workers={best['num_workers']} no timed batch took over {slowest}"
    else:
        yield "a slow sample delays its batch and those behind it"


def _unnamed(result: Mapping[str, Any], samples: Sequence[object] | None) -> Iterator[str]:
    if samples is not None:
        yield "none of its samples is slow when loaded alone"
    elif result["made"]["iterable"]:
        yield "its samples have no index, as the dataset is an IterableDataset"
    elif not result.get("ended"):
        yield "its samples cannot be followed: the sampler does not yield integers"


def _skewed(result: Mapping[str, Any]) -> bool:
    """Whether some batches take so long that a mean is above what 90 % of them need."""
    return any(row["mean_s"] > _SKEWED * row["p90_s"] for row in result["workers"])


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    rows, made = result["workers"], result["made"]
    if ended := result.get("ended"):
        yield f"The measurement is not complete: {clean(ended)}"
    if not made["cuda"] and result.get("options"):
        yield "pin_memory was not measured: it needs a GPU, and torch sees none here."
    if rows[0]["epochs"] > 1:
        yield "An epoch is shorter than the measurement: several epochs were timed, without their first batches."
    if made["iterable"] and len(rows) > 1:
        yield (
            "Each worker of an IterableDataset gives all samples again, unless the dataset divides them by "
            "get_worker_info(): check that before you raise num_workers."
        )
    reads = [row["read_bytes"] for row in rows]
    if len(reads) > 1 and None not in reads and reads[0] >= _COLD_BYTES and max(reads[1:]) < _COLD * reads[0]:
        yield (
            f"The first setting read {units.decimal(reads[0])} from the disk, the others from the page cache: "
            "run it again to compare them."
        )
    if _skewed(result) and not result.get("slow_batches"):
        yield "MEAN is above P90 where a few batches take much longer than the rest."
    yield from _columns(result)


def _columns(result: Mapping[str, Any]) -> Iterator[str]:
    """What two columns hold."""
    rows, measured = result["workers"], _with_step(result)
    if result.get("step_s") is not None:
        how = "computed from MEAN and the step"
        if measured:
            how = f"measured for num_workers={', '.join(map(str, sorted(measured)))}"
            how += ", computed from MEAN and the step for fewer" if rows[0]["num_workers"] < min(measured) else ""
            how += "; more workers were not tried with the step" if rows[-1]["num_workers"] > max(measured) else ""
        yield f"DATA WAIT is the share of the training time spent waiting for a batch: {how}."
    if rows[0]["num_workers"] == 0:
        yield (
            "PUBLISHED is another loader's SPEEDUP: CPU-bound, batches of 64 images, 16 cores. If yours stays far "
            "below it, CPUs are not the limit: check storage and locks."
        )
