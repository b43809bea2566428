"""DataLoader throughput by workers and settings, and the recommended DataLoader line."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gputop import num_workers
from gputop.frozen_dataclass import frozen_dataclass

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
    enough, best = knee(result["workers"], result["step_s"]), dict[str, Any]()
    for row in (each for each in result["workers"] if each["num_workers"] >= enough):
        count = row["num_workers"]
        answer = ask(f"num_workers={count} with the step", {**_request(count, plan.batches), "step": True})
        wait_s, step_s = sum(answer["times"]), sum(answer["steps"])
        cycle, row["waits"] = (wait_s + step_s) / len(answer["times"]), wait_s / (wait_s + step_s)
        if best and best["cycle_s"] / cycle - 1 < LEAST_GAIN:
            break
        best = {"num_workers": count, "cycle_s": cycle, "waits": row["waits"]}
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


def plan_of(result: Mapping[str, Any]) -> LoaderPlan:
    """The plan of a stored result."""
    return LoaderPlan(cpus=int(result["cpus"]), jobs=int(result["jobs"]))
