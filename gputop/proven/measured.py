"""Speed of a job over some time: medians of ten-second blocks with their spread, and gains."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Gpu, Job, Process, Role
from gputop.optional_sums import added, mean

KEPT_S = 150.0
BLOCK_S = 10.0
LEAST_GAIN = 0.05  # of the pace: less is noise, whatever the spread
METRICS = ("busy_percent", "step_s", "samples_per_s", "data_wait_percent")
_MOST = 400  # samples of a job
_PINS = "pt_data_pin"


@frozen_dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles over the blocks of a window."""

    median: float
    low: float
    high: float


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A window of one run. None: not measured."""

    seconds: float
    busy_percent: Spread | None = None
    step_s: Spread | None = None
    samples_per_s: Spread | None = None
    data_wait_percent: Spread | None = None

    @property
    def batch(self) -> float | None:
        """Samples per step, if both rates are known."""
        return self.step_s.median * self.samples_per_s.median if self.step_s and self.samples_per_s else None


class Gain(NamedTuple):
    """The speedup, and whether it exceeds the noise of both windows."""

    times: float
    certain: bool


class JobSample(NamedTuple):
    """A job at one sample: metrics in order, and its settings."""

    at_s: float
    values: tuple[float | None, ...]
    settings: dict[str, Any]


def sample(job: Job, ranks: Sequence[Process], frame: Frame) -> JobSample:
    """A job now: ranks run in step, so step times are averaged and samples/s added."""
    known = frame.by_identity
    loaders = sum(1 for one in job.members if one in known and known[one].role is Role.LOADER)
    first, pins = ranks[0], any(name == _PINS for name, _ in ranks[0].thread_names)
    settings: dict[str, Any] = {"num_workers": loaders / len(ranks), "busy threads": first.busy_threads}
    if first.omp_threads is not None:
        settings["OMP_NUM_THREADS"] = float(first.omp_threads)
    if loaders and first.thread_names:
        settings["pin_memory"] = "on" if pins else "off"
    metered = [one for one in ranks if one.step_s is not None]
    return JobSample(
        frame.mono_s,
        (
            _busy(ranks, frame),
            mean(one.step_s for one in metered),
            added(one.samples_per_s for one in metered),
            mean(one.data_wait_percent for one in metered),
        ),
        settings,
    )


def _busy(ranks: Sequence[Process], frame: Frame) -> float | None:
    """Utilization of its GPUs; only its own share where others compute, too."""
    mine, users = {one.identity for one in ranks}, {share.uuid for one in ranks for share in one.gpus}
    shared = {
        share.uuid
        for one in frame.processes
        if one.gpus and one.identity not in mine
        for share in one.gpus
        if share.uuid in users and share.kind != "graphics"
    }
    values: dict[str, float | None] = {}
    for share in (share for one in ranks for share in one.gpus if share.kind != "graphics"):
        gpu = frame.by_uuid.get(share.uuid)
        values[share.uuid] = share.busy_percent if share.uuid in shared else _sampled(gpu) if gpu else None
    return mean(values.values())


def _sampled(gpu: Gpu) -> float | None:
    """GPU busy over the driver's recent samples: single readings alias with periodic work."""
    return mean(value for _, value in gpu.busy_samples) if gpu.busy_samples else gpu.busy_percent


class JobTrack:
    """The last minutes of one job."""

    def __init__(self) -> None:
        self._samples: deque[JobSample] = deque(maxlen=_MOST)

    def add(self, one: JobSample) -> None:
        """Add a sample."""
        self._samples.append(one)
        while self._samples[0].at_s < one.at_s - KEPT_S:
            self._samples.popleft()

    def measured(self, since_s: float) -> tuple[Measured, int]:
        """Measurements since then, and their number of blocks."""
        rows = [one for one in self._samples if one.at_s >= since_s]
        blocks: dict[int, list[JobSample]] = {}
        for one in rows:
            blocks.setdefault(int((one.at_s - rows[0].at_s) / BLOCK_S), []).append(one)
        if len(blocks) > 1 and 2 * len(blocks[max(blocks)]) < len(blocks[0]):
            del blocks[max(blocks)]  # it has just begun
        spreads = {
            name: _spread([mean(one.values[place] for one in block) for block in blocks.values()])
            for place, name in enumerate(METRICS)
        }
        seconds = rows[-1].at_s - rows[0].at_s if rows else 0.0
        return Measured(seconds=round(seconds, 1), **spreads), len(blocks)

    def settings(self, since_s: float) -> dict[str, float | str]:
        """Its settings for most of that time."""
        found: dict[str, list[Any]] = {}
        for one in self._samples:
            for name, value in one.settings.items() if one.at_s >= since_s else ():
                if value is not None:
                    found.setdefault(name, []).append(value)
        return {name: _usual(values) for name, values in found.items()}


def _usual(values: Sequence[Any]) -> float | str:
    if isinstance(values[0], str):
        words: list[str] = sorted({*values})
        return max(words, key=values.count)
    return float(round(median(values)))


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = sorted(value for value in values if value is not None)
    if not known or 2 * len(known) < len(values):
        return None
    last = len(known) - 1
    return Spread(median(known), known[int(0.25 * last)], known[math.ceil(0.75 * last)])


def gain(before: Measured, after: Measured) -> Gain | None:
    """By samples/s, else by step time; None if neither was measured: a busier GPU may do less."""
    if before.samples_per_s and after.samples_per_s:
        old, new = before.samples_per_s, after.samples_per_s
    elif before.step_s and after.step_s:
        old, new = after.step_s, before.step_s
    else:
        return None
    if old.median <= 0 or new.median <= 0:
        return None
    times = new.median / old.median
    apart = new.low > old.high or new.high < old.low
    return Gain(times, apart and abs(times - 1) >= LEAST_GAIN)
