"""What the measurement of a loader says: a table of workers, a table of settings, and the line to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputop import num_workers, units
from gputop.lab.loading import (
    AHEAD,
    ANY_ORDER,
    COPIED,
    LEAST_GAIN,
    PINNED,
    SAME,
    STAYS,
    Plan,
    faster_epochs,
    gains,
    helps,
    line,
    per_rank,
    waits,
    wanted_sooner,
)
from gputop.page import Do, Page, Point, Table
from gputop.safe.text import clean

# batches a second by workers of a loader that is bound by its CPU work, 64 images a batch, on a 16-core machine
TYPICAL = {0: 22.1, 2: 53.5, 4: 107.5, 8: 196.1, 12: 200.0}
_COLD = 0.5  # of what the first setting read, below which the others read from memory
_COLD_BYTES = 16 << 20
_NAMED = 5  # slow samples


def plan_of(result: Mapping[str, Any]) -> Plan:
    """The host that was measured."""
    return Plan(cpus=int(result["cpus"]), jobs=int(result["jobs"]))


def page(result: Mapping[str, Any]) -> Page:
    """All that was measured, whole or in part."""
    rows = result.get("workers") or []
    if not rows:
        return Page(title=f"{clean(result['factory'])}: nothing was measured", heading="What it says")
    done = "recommended" in result and not result.get("ended")
    return Page(
        title=_title(result),
        before=(_workers(result), *_options(result)),
        heading="What it says" if done else "What it says so far",
        words=tuple(_words(result)) if "recommended" in result else (),
        points=_points(result) if done else (),
        notes=tuple(_notes(result)),
    )


def _title(result: Mapping[str, Any]) -> str:
    made = result["made"]
    size = "its own batches" if made["batch_size"] is None else f"batches of {made['batch_size']}"
    cpus = units.cpus(result["cpus"])
    return f"{clean(result['factory'])}: {size}, {cpus} CPUs, torch {clean(made['torch'])}"


def _ms(seconds: float | None) -> str:
    return units.UNKNOWN if seconds is None else units.took(seconds)


def _rate(row: Mapping[str, Any]) -> str:
    rate = row["batches_per_s"]
    return f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"


def _factor(value: float) -> str:
    return f"{value:.1f}×" if value >= 0.95 else f"{value:.2g}×"


def _workers(result: Mapping[str, Any]) -> Table:
    rows, step_s = result["workers"], result.get("step_s")
    first = rows[0]
    typical = first["num_workers"] == 0
    head = ["", "BATCHES/s", "MEAN", "P50", "P90", "SLOWEST", "FIRST", "SPEEDUP"]
    head += ["TYPICAL"] if typical else []
    head += ["WAITS"] if step_s is not None else []
    cells = []
    for row in rows:
        count = row["num_workers"]
        cell = [str(count), _rate(row), *(_ms(row[key]) for key in ("mean_s", "p50_s", "p90_s", "slowest_s"))]
        cell += [_ms(row["first_s"]), _factor(row["batches_per_s"] / first["batches_per_s"])]
        if typical:
            cell.append(f"{TYPICAL[count] / TYPICAL[0]:.1f}×" if count in TYPICAL else units.UNKNOWN)
        if step_s is not None:
            cell.append(f"{100 * waits(row, step_s):.0f} %")
        cells.append(tuple(cell))
    return Table("num_workers", tuple(head), tuple(cells))


def _options(result: Mapping[str, Any]) -> Iterator[Table]:
    rows = result.get("options") or []
    if not rows:
        return
    count = result["recommended"]
    head = ("", "BATCHES/s", "MEAN", "P90", "SLOWEST", "2ND EPOCH")
    cells = [
        (row["setting"], _rate(row), *(_ms(row[key]) for key in ("mean_s", "p90_s", "slowest_s", "again_s")))
        for row in rows
    ]
    yield Table(f"with num_workers={count}, each alone", head, tuple(cells))


def _words(result: Mapping[str, Any]) -> Iterator[str]:
    """Whole sentences: the knee, what the loader as it was made loses, the step, the settings."""
    rows, count, step_s = result["workers"], result["recommended"], result.get("step_s")
    by_count = {row["num_workers"]: row for row in rows}
    best, own = by_count[count], by_count.get(result["made"]["workers"])
    yield _knee(result, rows, count)
    if own is not None and own is not best:
        factor = best["batches_per_s"] / own["batches_per_s"]
        if factor - 1 >= LEAST_GAIN:
            made = f"The loader as it is made, num_workers={own['num_workers']}, gives {_rate(own)}/s"
            yield f"{made}: {count} is {factor:.1f}× as fast."
    if step_s is not None:
        row = own or rows[0]
        yield (
            f"num_workers={row['num_workers']}: a batch every {_ms(row['mean_s'])}, the step {_ms(step_s)}: "
            f"waits {100 * waits(row, step_s):.0f} % of the time."
        )
        if with_step := result.get("with_step"):
            yield f"num_workers={count} with the step, measured: waits {100 * with_step['waits']:.0f} % of the time."
    yield from _effects(result)
    yield from _slow(result)


def _knee(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], count: int) -> str:
    of = "the training" if result.get("step_s") is not None else "the loader"
    after = next((row["num_workers"] for row in rows if row["num_workers"] > count), None)
    if len(rows) == 1:
        return f"Only num_workers={count} was measured."
    if not count:
        return f"num_workers=0 is the fastest for {of}: workers cost more than they save here."
    if after is not None:
        return f"The knee is num_workers={count}: {after} gains {of} less than {100 * LEAST_GAIN:.0f} %."
    if count >= result["cpus"]:
        return f"num_workers={count} is the fastest, and there are {units.cpus(result['cpus'])} CPUs: no more fit."
    return f"The knee is not reached: num_workers={count} is the fastest; try --workers {count},{2 * count}."


def _effects(result: Mapping[str, Any]) -> Iterator[str]:
    options = {row["setting"]: row for row in result.get("options") or ()}
    if SAME not in options:
        return
    faster = [name for name in (AHEAD, ANY_ORDER) if helps(options.get(name))]
    better = [f"{name} is {100 * options[name]['gain']:.0f} % faster, each time it was measured" for name in faster]
    if faster_epochs(options):
        stays, plain = options[STAYS]["again_s"], options[SAME]["again_s"]
        better.append(f"persistent_workers=True starts an epoch in {_ms(stays)}, not {_ms(plain)}")
    copied, pinned = options.get(COPIED), options.get(PINNED)
    if copied and pinned and gains(copied["batches_per_s"], pinned["batches_per_s"]):
        factor = pinned["batches_per_s"] / copied["batches_per_s"]
        better.append(f"pin_memory=True with non_blocking=True is {factor:.1f}× as fast to the GPU")
    noise = f"two equal runs differ by {100 * result['noise']:.0f} %"
    yield f"{'; '.join(better)}." if better else f"No other setting helps; {noise}."
    if faster and not wanted_sooner(result):
        yield "The step waits for no data, so faster batches gain nothing: prefetch_factor keeps its default, 2."
    elif ANY_ORDER in faster:
        yield "in_order=False changes the order of batches from run to run, so it is not in the line below."


def _slow(result: Mapping[str, Any]) -> Iterator[str]:
    """Slow samples by their index, or why they have no name."""
    batches, samples = result.get("slow_batches") or [], result.get("slow_samples")
    if not batches:
        return
    worst = max(batches, key=lambda one: one["s"])
    middle = _ms(result["workers"][0]["p50_s"])
    if samples:
        ordered = sorted(samples, key=lambda one: -one["s"])
        named = ", ".join(f"{one['index']} ({_ms(one['s'])})" for one in ordered[:_NAMED])
        yield f"Slow samples, by index: {named}; the median sample takes {_ms(samples[0]['median_s'])}."
        return
    yield f"Batch {worst['number']} takes {_ms(worst['s'])}, the median {middle}{_unnamed(result, samples)}."


def _unnamed(result: Mapping[str, Any], samples: Sequence[object] | None) -> str:
    if samples is not None:
        return "; none of its samples is slow when loaded alone"
    if result["made"]["iterable"]:
        return "; its samples have no index, as the dataset is an IterableDataset"
    return "" if result.get("ended") else "; its samples cannot be followed: the sampler gives no whole numbers"


def _points(result: Mapping[str, Any]) -> tuple[Point, ...]:
    plan, count = plan_of(result), result["recommended"]
    rank = per_rank(plan, count)
    text = "The DataLoader for this host"
    facts: tuple[str, ...] = ()
    if rank != count:
        text = f"The DataLoader for each of {plan.jobs} ranks on this host"
        facts = (f"num_workers={count} for one rank alone", f"{plan.cpus} CPUs for {plan.jobs} ranks: {rank} each")
    steps: list[str | Do] = [Do("Create the loader as", line(result, rank))]
    if "pin_memory=True" in line(result, rank):
        steps.append("Copy batches with .to(device, non_blocking=True): the other half of pin_memory.")
    return (Point(severity="info", text=text, facts=facts, steps=tuple(steps)),)


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    rows, made = result["workers"], result["made"]
    if ended := result.get("ended"):
        yield f"The measurement is not complete: {clean(ended)}"
    if not made["cuda"] and result.get("options"):
        yield "pin_memory was not measured: torch sees no CUDA device here."
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
    start = num_workers.first(result["cpus"] / result["jobs"])
    if not result.get("ended") and start != (rank := per_rank(plan_of(result), result["recommended"])):
        yield (
            f"gputop doctor starts with num_workers={start}, by the number of CPUs alone. What was measured here "
            f"counts: {rank}."
        )
    if rows[0]["num_workers"] == 0:
        yield "TYPICAL is the speedup in a published measurement, on a host with more CPUs than workers."
    if result.get("step_s") is not None:
        yield "WAITS is the share of a training's time that it waits for a batch, computed from MEAN and the step."
