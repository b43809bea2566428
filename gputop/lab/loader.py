"""DataLoader throughput by workers and settings, and the recommended DataLoader line."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gputop import num_workers, units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.phrases import percent
from gputop.report import Do, Page, Point, ReportTable
from gputop.safe.text import clean

WORKERS = (0, 2, 4, 8, 12)
BATCHES = 50
BATCH_SIZE = 64  # of a Dataset without a loader
LEAST_GAIN = 0.05  # gain below which more workers are not worth their memory
STEP_BATCHES = 20  # for the time of a step
SLOW_SAMPLE = 5.0  # times the median of a sample
SLOW_SHARE = 0.25  # share of its batch from which a sample is slow

SAME, AHEAD, STAYS = "no change", f"prefetch_factor={num_workers.PREFETCH}", "persistent_workers=True"
ANY_ORDER, COPIED, PINNED = "in_order=False", "copied to the GPU", "copied, pin_memory=True"

Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]  # maps a title and a request to the child's answer


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class LoaderPlan:
    """What to measure; `workers` is None for the default counts, within the CPUs."""

    cpus: int
    jobs: int = 1  # that share them
    workers: tuple[int, ...] | None = None
    batches: int = BATCHES
    own: int | None = None  # workers of the running training

    @property
    def counts(self) -> list[int]:
        """Numbers of workers in measuring order."""
        if self.workers is not None:
            return sorted(set(self.workers))
        return sorted({min(count, self.cpus) for count in WORKERS} | ({self.own} if self.own is not None else set()))


def sweep(ask: Ask, plan: LoaderPlan, result: dict[str, Any]) -> None:
    """Measure the whole plan; an exception from `ask` leaves earlier results in `result`."""
    rows: list[dict[str, Any]] = result.setdefault("workers", [])
    slowest: list[Mapping[str, Any]] = []
    pending = plan.counts
    while pending:
        count = pending.pop(0)
        answer = ask(f"num_workers={count}", _request(count, plan.batches))
        if not rows:
            made = result["made"] = dict(answer["ready"])
            slowest = answer["slow"]
            own = int(made["workers"])
            if plan.workers is None and own not in (count, *pending):
                insort(pending, own)
        rows.append({"num_workers": count, **_timed(answer)})
    count = _with_step(ask, plan, result) if result["made"]["step"] else knee(rows)
    result["recommended"] = count
    _time_options(ask, plan, count, result)
    _name_slow_samples(ask, result, slowest)


def knee(rows: Sequence[Mapping[str, Any]], step_s: float | None = None) -> int:
    """The first number of workers after which the next one gains less than 5 %; with a step, for training.

    One worker loads no faster than none, so the search begins with the first positive counts; 0 is the result only if
    it is faster than what is found.
    """
    best = next((row for row in rows if row["num_workers"]), rows[0])
    for row in rows[rows.index(best) + 1 :]:
        if cycle_s(best, step_s) / max(cycle_s(row, step_s), 1e-9) - 1 < LEAST_GAIN:
            break
        best = row
    alone = cycle_s(rows[0], step_s) * (1 + LEAST_GAIN) < cycle_s(best, step_s)
    return 0 if alone and not rows[0]["num_workers"] else int(best["num_workers"])


def cycle_s(row: Mapping[str, Any], step_s: float | None) -> float:
    """Seconds per batch: without workers loading and step add up, with workers they overlap."""
    load_s = float(row["mean_s"])
    if step_s is None:
        return load_s
    return max(load_s, step_s) if row["num_workers"] else load_s + step_s


def wait_share(row: Mapping[str, Any], step_s: float) -> float:
    """Share of time the model waits for a batch."""
    return 1 - step_s / max(cycle_s(row, step_s), 1e-9)


def per_rank(plan: LoaderPlan, count: int) -> int:
    """The recommended workers, limited by the CPUs that several ranks share."""
    return num_workers.fitting(count, plan.cpus / plan.jobs) if count and plan.jobs > 1 else count


def is_gain(before: float, after: float) -> bool:
    """Whether a rate is higher by at least 5 %."""
    return after / before - 1 >= LEAST_GAIN


def _request(count: int, batches: int, **options: Any) -> dict[str, Any]:
    return {"mode": "batches", "workers": count, "batches": batches, "options": options}


def _timed(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of one setting."""
    times = answer["times"]
    return {
        "batches": len(times),
        "mean_s": sum(times) / len(times),
        "p50_s": percentile(times, 0.5),
        "p90_s": percentile(times, 0.9),
        "slowest_s": max(times),
        "first_s": answer["first_s"],
        "batches_per_s": len(times) / max(sum(times), 1e-9),
        "epochs": answer["epochs"],
        "read_bytes": answer["read_bytes"],
        "again_s": answer["again_s"],
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value with this share of values below it, interpolated."""
    ranked = sorted(values)
    at = share * (len(ranked) - 1)
    low = int(at)
    return ranked[low] + (ranked[min(low + 1, len(ranked) - 1)] - ranked[low]) * (at - low)


def _with_step(ask: Ask, plan: LoaderPlan, result: dict[str, Any]) -> int:
    """The time of a step, then loader and step together from the knee on, until more workers gain nothing."""
    answer = ask("the step", {**_request(0, STEP_BATCHES), "step": True})
    result["step_s"] = percentile(answer["steps"], 0.5)
    counts = [int(row["num_workers"]) for row in result["workers"]]
    best: dict[str, Any] = {}
    for count in counts[counts.index(knee(result["workers"], result["step_s"])) :]:
        answer = ask(f"num_workers={count} with the step", {**_request(count, plan.batches), "step": True})
        wait_s, step_s = sum(answer["times"]), sum(answer["steps"])
        cycle = (wait_s + step_s) / len(answer["times"])
        if best and best["cycle_s"] / cycle - 1 < LEAST_GAIN:
            break
        best = {"num_workers": count, "cycle_s": cycle, "waits": wait_s / (wait_s + step_s)}
        if best["waits"] < LEAST_GAIN:
            break
    result["with_step"] = best
    return int(best["num_workers"])


def _time_options(ask: Ask, plan: LoaderPlan, count: int, result: dict[str, Any]) -> None:
    """Each other setting alone; `noise` is the difference between equal runs."""
    options: list[dict[str, Any]] = result.setdefault("options", [])
    made = result["made"]

    def measured(title: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"setting": title, **_timed(ask(title, request))}

    if count:
        plain = {**_request(count, plan.batches), "epochs": True}
        rates = [next(row["batches_per_s"] for row in result["workers"] if row["num_workers"] == count)]
        options.append(measured(SAME, plain))
        rates.append(options[0]["batches_per_s"])
        result["noise"] = _spread(rates)
        for title, request in _each_option(plan, count, in_order=made["has_in_order"]):
            row = measured(title, request)
            if is_gain(max(rates), row["batches_per_s"]):  # may be chance: repeat both, and keep the worse one
                row = min(row, measured(title, request), key=_batches_per_s)
                rates.append(measured(SAME, plain)["batches_per_s"])
                result["noise"] = _spread(rates)
            options.append({**row, "gain": row["batches_per_s"] / max(rates) - 1})
    if made["cuda"]:
        for title, pinned in ((COPIED, False), (PINNED, True)):
            options.append(measured(title, {**_request(count, plan.batches, pin_memory=pinned), "copy": True}))


def _each_option(plan: LoaderPlan, count: int, *, in_order: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each setting that needs workers, with its request."""
    yield AHEAD, _request(count, plan.batches, prefetch_factor=num_workers.PREFETCH)
    yield STAYS, {**_request(count, plan.batches, persistent_workers=True), "epochs": True}
    if in_order:
        yield ANY_ORDER, _request(count, plan.batches, in_order=False)


def _batches_per_s(row: Mapping[str, Any]) -> float:
    return float(row["batches_per_s"])


def _spread(rates: Sequence[float]) -> float:
    return max(rates) / min(rates) - 1


def _name_slow_samples(ask: Ask, result: dict[str, Any], slowest: Sequence[Mapping[str, Any]]) -> None:
    """The slow batches of the first setting, and which of their samples are slow alone."""
    result["slow_batches"] = [dict(one) for one in slowest]
    followed = [one["indices"] for one in slowest if one["indices"]]
    if not followed or result["made"]["iterable"]:
        return
    request = {**_request(0, 1), "mode": "samples", "indices": followed}
    batches = ask("slow samples", request)["samples"]
    middle = percentile([took_s for batch in batches for _, took_s in batch], 0.5)
    result["slow_samples"] = [
        {"index": index, "s": took_s, "median_s": middle}
        for batch in batches
        for index, took_s in batch
        if took_s >= SLOW_SAMPLE * middle and took_s >= SLOW_SHARE * sum(one for _, one in batch)
    ]


def line(result: Mapping[str, Any], count: int) -> str:
    """The DataLoader(...) line for this host."""
    made, options = result["made"], {row["setting"]: row for row in result.get("options", ())}
    parts = ["dataset"]
    if made["own_batches"]:
        parts.append("batch_sampler=batch_sampler")
    else:
        parts.append(f"batch_size={made['batch_size']}")
        parts += ["sampler=sampler"] if made["own_sampler"] else ["shuffle=True"] if made["shuffle"] else []
        parts += ["drop_last=True"] if made["drop_last"] else []
    parts += ["collate_fn=collate_fn"] if made["own_collate"] else []
    parts.append(f"num_workers={count}")
    before, pinned = options.get(COPIED), options.get(PINNED)
    if before and pinned and not is_gain(pinned["batches_per_s"], before["batches_per_s"]):
        parts.append("pin_memory=True")
    if count:
        parts += [AHEAD] if is_faster(options.get(AHEAD)) and faster_batches_help(result) else []
        parts += [STAYS] if faster_epochs(options) else []
    return f"DataLoader({', '.join(parts)})"


def is_faster(row: Mapping[str, Any] | None) -> bool:
    """Whether a setting was faster than every equal run without it, each time."""
    return row is not None and row.get("gain", 0.0) >= LEAST_GAIN


def faster_batches_help(result: Mapping[str, Any]) -> bool:
    """Whether faster batches help: not if the step was measured and waits for none."""
    with_step = result.get("with_step")
    return not with_step or float(with_step["waits"]) >= LEAST_GAIN


def faster_epochs(options: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether persistent workers deliver the first batch of a second epoch sooner."""
    plain, stays = options.get(SAME), options.get(STAYS)
    if not plain or not stays or plain["again_s"] is None or stays["again_s"] is None:
        return False
    return float(stays["again_s"]) * (1 + LEAST_GAIN) < float(plain["again_s"])


# batches/s by workers of a CPU-bound loader, 64 images per batch, on a 16-core machine
REFERENCE = {0: 22.1, 2: 53.5, 4: 107.5, 8: 196.1, 12: 200.0}
_COLD = 0.5  # of the first setting's reads: below, the others read from the page cache
_COLD_BYTES = 16 << 20
_NAMED = 5  # slow samples


def plan_of(result: Mapping[str, Any]) -> LoaderPlan:
    """The plan of a stored result."""
    return LoaderPlan(cpus=int(result["cpus"]), jobs=int(result["jobs"]))


def page(result: Mapping[str, Any]) -> Page:
    """The report on all measurements, complete or partial."""
    rows = result.get("workers") or []
    if not rows:
        return Page(title=f"{clean(result['factory'])}: nothing was measured", heading="Findings")
    done = "recommended" in result and not result.get("ended")
    return Page(
        title=_title(result),
        before=(_workers(result), *_option_tables(result)),
        heading="Findings" if done else "Findings so far",
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


def _rate_text(row: Mapping[str, Any]) -> str:
    rate = row["batches_per_s"]
    return f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"


def _factor(value: float) -> str:
    return f"{value:.1f}×" if value >= 0.95 else f"{value:.2g}×"


def _workers(result: Mapping[str, Any]) -> ReportTable:
    rows, step_s = result["workers"], result.get("step_s")
    first = rows[0]
    referred = first["num_workers"] == 0
    head = ["", "BATCHES/s", "MEAN", "P50", "P90", "SLOWEST", "FIRST BATCH", "SPEEDUP"]
    head += ["REFERENCE"] if referred else []
    head += ["DATA WAIT"] if step_s is not None else []
    cells = []
    for row in rows:
        count = row["num_workers"]
        cell = [str(count), _rate_text(row), *(_ms(row[key]) for key in ("mean_s", "p50_s", "p90_s", "slowest_s"))]
        cell += [_ms(row["first_s"]), _factor(row["batches_per_s"] / first["batches_per_s"])]
        if referred:
            cell.append(f"{REFERENCE[count] / REFERENCE[0]:.1f}×" if count in REFERENCE else units.UNKNOWN)
        if step_s is not None:
            cell.append(percent(wait_share(row, step_s)))
        cells.append(tuple(cell))
    return ReportTable("num_workers", tuple(head), tuple(cells))


def _option_tables(result: Mapping[str, Any]) -> Iterator[ReportTable]:
    rows = result.get("options") or []
    if not rows:
        return
    count = result["recommended"]
    head = ("", "BATCHES/s", "MEAN", "P90", "SLOWEST", "NEXT EPOCH")
    cells = [
        (row["setting"], _rate_text(row), *(_ms(row[key]) for key in ("mean_s", "p90_s", "slowest_s", "again_s")))
        for row in rows
    ]
    yield ReportTable(f"num_workers={count}, one change at a time", head, tuple(cells))


def _words(result: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on the number of workers, the present loader, the wait for data, and the settings."""
    rows, count, step_s = result["workers"], result["recommended"], result.get("step_s")
    by_count = {row["num_workers"]: row for row in rows}
    best, own = by_count[count], by_count.get(result["made"]["workers"])
    yield _enough(result, rows, best)
    if with_step := result.get("with_step"):
        computed = percent(wait_share(best, step_s or 0.0))
        yield (
            f"Loader and step together with num_workers={count}: training waits for data "
            f"{percent(with_step['waits'])} of the time (measured; the table's {computed} is computed from mean times)."
        )
    if own is not None and own is not best:
        yield from _present(own, best, step_s)
    yield from _effects(result)
    yield from _slow(result)


def _enough(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> str:
    """Why this number of workers."""
    count, step_s, with_step = best["num_workers"], result.get("step_s"), result.get("with_step")
    after = next((row["num_workers"] for row in rows if row["num_workers"] > count), None)
    of = "load batches" if step_s is None else "train"
    if with_step and with_step["waits"] < LEAST_GAIN:
        step = f"a training step takes {_ms(step_s)} (median of {STEP_BATCHES} steps run here)"
        gain = percent(1 / (1 - with_step["waits"]) - 1)
        return (
            f"num_workers={count} is enough: a batch every {_ms(best['mean_s'])}, while {step}. "
            f"More workers would speed up training by at most {gain}."
        )
    if len(rows) == 1:
        return f"Only num_workers={count} was measured."
    if not count:
        return f"num_workers=0 is the fastest way to {of} here: workers cost more than they save."
    if after is not None:
        return f"num_workers={count} is enough: {after} would {of} less than {percent(LEAST_GAIN)} faster."
    if count >= result["cpus"]:
        return f"num_workers={count} is the fastest measured; there are no more than {units.cpus(result['cpus'])} CPUs."
    return f"num_workers={count} is the fastest measured; more may be faster still: try --workers {count},{2 * count}."


def _present(own: Mapping[str, Any], best: Mapping[str, Any], step_s: float | None) -> Iterator[str]:
    """How the loader fares as the function makes it."""
    factor = best["batches_per_s"] / own["batches_per_s"]
    if factor - 1 < LEAST_GAIN:
        return
    waits = ""
    if step_s is not None:
        waits = f"; training waits for data {percent(wait_share(own, step_s))} of the time (computed)"
    yield (
        f"Your loader now has num_workers={own['num_workers']}, {_rate_text(own)} batches/s{waits}. "
        f"num_workers={best['num_workers']} loads {factor:.1f}× as fast."
    )


def _effects(result: Mapping[str, Any]) -> Iterator[str]:
    options = {row["setting"]: row for row in result.get("options") or ()}
    if SAME not in options:
        return
    faster = [name for name in (AHEAD, ANY_ORDER) if is_faster(options.get(name))]
    better = [f"{name} is {100 * options[name]['gain']:.0f} % faster, each time it was measured" for name in faster]
    if faster_epochs(options):
        stays, plain = options[STAYS]["again_s"], options[SAME]["again_s"]
        better.append(f"persistent_workers=True starts the next epoch in {_ms(stays)} instead of {_ms(plain)}")
    copied, pinned = options.get(COPIED), options.get(PINNED)
    if copied and pinned and is_gain(copied["batches_per_s"], pinned["batches_per_s"]):
        factor = pinned["batches_per_s"] / copied["batches_per_s"]
        better.append(f"pin_memory=True with non_blocking=True copies to the GPU {factor:.1f}× as fast")
    noise = f"two equal runs differ by {100 * result['noise']:.0f} %"
    yield f"{'; '.join(better)}." if better else f"No other setting helps; {noise}."
    if faster and not faster_batches_help(result):
        yield "The step rarely waits for data, so faster batches gain nothing: prefetch_factor keeps its default, 2."
    elif ANY_ORDER in faster:
        yield "in_order=False changes the order of batches from run to run, so it is not in the line below."


def _slow(result: Mapping[str, Any]) -> Iterator[str]:
    """Slow samples by index, or why they are not identified."""
    batches, samples = result.get("slow_batches") or [], result.get("slow_samples")
    if not batches:
        return
    worst = max(batches, key=lambda one: one["s"])
    middle = _ms(result["workers"][0]["p50_s"])
    if samples:
        yield _named(samples, next(row for row in result["workers"] if row["num_workers"] == result["recommended"]))
        return
    yield f"Batch {worst['number']} took {_ms(worst['s'])}, the median batch {middle}{_unnamed(result, samples)}."


def _named(samples: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> str:
    """The slow samples, and what of them the recommended setting shows."""
    ordered = sorted(samples, key=lambda one: -one["s"])
    named = ", ".join(f"{one['index']} ({_ms(one['s'])})" for one in ordered[:_NAMED])
    text = f"Slow samples by index, loaded alone: {named}; the median sample takes {_ms(samples[0]['median_s'])}."
    if ordered[0]["s"] <= best["slowest_s"] or not best["num_workers"]:
        return f"{text} A slow sample delays its batch and those behind it."
    slowest = _ms(best["slowest_s"])
    return (
        f"{text} Other workers can hide it: with num_workers={best['num_workers']} no timed batch took over {slowest}."
    )


def _unnamed(result: Mapping[str, Any], samples: Sequence[object] | None) -> str:
    if samples is not None:
        return "; none of its samples is slow when loaded alone"
    if result["made"]["iterable"]:
        return "; its samples have no index, as the dataset is an IterableDataset"
    return "" if result.get("ended") else "; its samples cannot be followed: the sampler gives no whole numbers"


def _points(result: Mapping[str, Any]) -> tuple[Point, ...]:
    plan, count = plan_of(result), result["recommended"]
    rank = per_rank(plan, count)
    text = "recommended DataLoader for this host"
    facts: tuple[str, ...] = ()
    if rank != count:
        text = f"recommended DataLoader for each of {plan.jobs} ranks on this host"
        facts = (f"num_workers={count} for one rank alone", f"{plan.cpus} CPUs for {plan.jobs} ranks: {rank} each")
    steps: list[str | Do] = [Do("Create the loader as", line(result, rank))]
    if "pin_memory=True" in line(result, rank):
        steps.append("Copy batches with .to(device, non_blocking=True): the other half of pin_memory.")
    if slow := result.get("slow_samples"):
        worst = max(slow, key=lambda one: one["s"])["index"]
        steps.append(f"Look at the slow samples, first dataset[{worst}]: shrink, re-encode or cache them.")
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
    if rows[0]["num_workers"] == 0:
        yield (
            "REFERENCE is the speedup in a published measurement, to compare with: a CPU-bound loader, batches of 64 "
            "images, 16 CPU cores. If SPEEDUP stays far below it, CPUs are not the limit: check storage and locks."
        )
    if result.get("step_s") is not None:
        yield "DATA WAIT is the share of the training time spent waiting for a batch, computed from MEAN and the step."
