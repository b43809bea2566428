"""Rules on read patterns: first reads beside a cold page cache, and many small files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.storage import advice, sources
from gputop.diagnose.rules.storage.sources import moved, waits
from gputop.diagnose.starvation import busy_evidence, cores_evidence
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.history import COARSE_S
from gputop.units import ago_text, size

_THIRD = 3


@rule(
    "cold-cache",
    "Is the page cache still cold?",
    level=Level.NEVER,
    state="cold cache",
    short="COLD",
    needs=("memory_cached_bytes", "memory_available_bytes", "memory_total_bytes", "read_bytes_per_s"),
)
def cold_cache(view: View) -> Iterator[Finding]:
    """It waits for storage, but its data stay in memory: the next epoch will be faster than the first."""
    for trainer in view.trainers():
        if not waits(view, trainer):
            continue
        if not view.knows(
            view.frame.host, "memory_cached_bytes", "memory_available_bytes", "memory_total_bytes", "read_bytes_per_s"
        ):
            continue
        why = tuple(_fewer_reads(view, trainer)) or tuple(_filling(view, trainer))
        if why and _memory_to_spare(view):
            yield view.found(
                trainer,
                "info",
                "cold page cache, probably the first epoch",
                evidence=why,
                steps=(
                    Step(text="Wait one epoch: data in the page cache is not read again"),
                    Step(text="Or warm the page cache beforehand", command="vmtouch -t DATASET"),
                    Step(text="Or copy it to a local disk once"),
                ),
                confidence=0.6,
            )


def _memory_to_spare(view: View) -> bool:
    """Whether memory could cache more."""
    available, total = view.frame.host.memory_available_bytes, view.frame.host.memory_total_bytes
    return bool(total) and view.above((available or 0) / (total or 1), "available")


def _cached(view: View, seconds: float) -> tuple[float, float, float] | None:
    """Page cache at the start and end of the known part of the window, and its length in seconds."""

    def work() -> tuple[float, float, float] | None:
        known = view.history.known("host", "memory_cached_bytes", seconds)
        return (known[0], known[-1], len(known) - 1.0) if len(known) > 1 else None

    return view.cached(("cached", seconds), work)


def _filling(view: View, trainer: Trainer) -> Iterator[Evidence]:
    """In the first minutes of a job: most of what is read is kept."""
    if trainer.context_s is None or trainer.context_s > view.limit("window_s"):
        return
    seconds = min(view.limit("kept_s"), trainer.context_s)
    grown, read = _cached(view, seconds), view.history.mean("host", "read_bytes_per_s", seconds)
    if grown is None or not read:
        return
    before, now, known_s = grown
    kept = (now - before) / (read * known_s)
    if view.above(kept, "kept"):
        text = f"page cache grew from {size(before)} to {size(now)} in {ago_text(known_s)}"
        share = min(100.0, 100 * kept)  # other programs read too
        text = f"{text}: {share:.0f} % of what was read, {moved(read)}"
        yield Evidence(text=text, value=share, unit="%", limit=100 * view.limit("kept"), sense="flagged_from")


def _fewer_reads(view: View, trainer: Trainer) -> Iterator[Evidence]:
    """Later: the cache still grows, and fewer of the job's reads reach storage."""
    seconds = min(view.limit("window_s"), trainer.context_s or 0.0)
    grown = _cached(view, seconds) if seconds >= view.limit("kept_s") else None
    if grown is None or grown[1] <= grown[0]:
        return
    # the kernel attributes file server reads to no process
    reads = _reads(view, trainer, seconds) or _reads(view, "host", seconds)
    if 2 * COARSE_S * len(reads) < seconds:  # too little of it is known
        return
    third = len(reads) // _THIRD
    before, now, known_s = grown
    first, last = sum(reads[:third]) / third, sum(reads[-third:]) / third
    if now - before < view.limit("grown") * known_s * sum(reads) / len(reads):
        return
    if first and view.below(last / first, "fallen"):
        text = f"reads fell from {moved(first)} to {moved(last)} in {ago_text(seconds)}"
        limit = first * view.limit("fallen")
        yield Evidence(text=text, value=last, unit="B/s", limit=limit, sense="flagged_below")
        yield Evidence(text=f"page cache grew from {size(before)} to {size(now)}", value=now)


def _reads(view: View, thing: Trainer | str, seconds: float) -> list[float]:
    """Bytes/s from storage as coarse means over these seconds; empty if all are 0."""
    past = view.past(thing, "read_bytes_per_s", seconds - 1.5 * COARSE_S)
    known = [mean for mean in past if mean is not None]
    return known if any(known) else []


class Reads(NamedTuple):
    """Read pattern of a trainer: bytes per call, calls/s; None if only the device is known."""

    mean: float | None
    calls: float | None
    request: float | None  # bytes per device request
    requests: float | None


@rule(
    "io-small-files",
    "Is the dataset in too many small files?",
    level=Level.CAUSE,
    state="I/O-bound",
    short="I/O",
    confirmed_by=("waits-for-data", "input-bound"),
    instead_of=("io-bound",),
    needs=(),
    partly=("read_chars_per_s", "read_calls_per_s"),
)
def io_small_files(view: View) -> Iterator[Finding]:
    """It waits for storage and its requests are small: the number of requests is the limit, not the bytes."""
    for trainer in view.trainers():
        why = waits(view, trainer)
        reads = small(view, trainer) if why else None
        if why and reads is None and _no_device_reports(view):
            view.knows(trainer, "read_chars", "read_calls")
        severity = view.by_share(trainer.lost)
        if why and reads is not None and severity is not None:
            yield view.found(
                trainer,
                severity,
                "I/O-bound, small random reads",
                evidence=(
                    _reads_evidence(view, trainer, reads),
                    *why,
                    busy_evidence(view, trainer),
                    cores_evidence(view, trainer, "storage.saturation"),
                ),
                steps=tuple(_steps(view, trainer)),
                confidence=0.75 if reads.mean is not None else 0.5,
                lost_share=trainer.lost,
            )


def small(view: View, trainer: Trainer) -> Reads | None:
    """Its read pattern, if small.

    Small calls alone are not: for sequential reads of a large file the kernel requests much at once.
    """
    source = sources.source(view)
    request, requests = (source.request, source.reads) if source else (None, None)
    mean = trainer.read_chars / trainer.read_calls if trainer.read_chars and trainer.read_calls else None
    tiny = view.below(request, "io-small-files.request_bytes")
    many = view.above(requests, "io-small-files.requests_per_s")
    if mean is None:
        found = tiny and many
    else:
        called = view.above(trainer.read_calls, "io-small-files.calls_per_s") and (tiny or request is None)
        found = view.below(mean, "io-small-files.read_bytes") and (called or (tiny and many))
    return Reads(mean, trainer.read_calls if mean else None, request, requests) if found else None


def _no_device_reports(view: View) -> bool:
    """Whether no device reports its request sizes: only the calls show them then."""
    source = sources.source(view)
    return source is None or source.request is None


def _reads_evidence(view: View, trainer: Trainer, reads: Reads) -> Evidence:
    if reads.mean is not None:
        rate = moved(trainer.read_chars)
        text = f"mean read {reads.mean / 1000:.0f} kB, {reads.calls or 0:.0f} reads/s, {rate}"
        return Evidence(text=text, value=reads.mean, unit="B", limit=view.limit("read_bytes"), sense="healthy_from")
    text = f"mean disk request {(reads.request or 0) / 1000:.0f} kB, {reads.requests or 0:.0f}/s"
    return Evidence(text=text, value=reads.request, unit="B", limit=view.limit("request_bytes"), sense="healthy_from")


def _steps(view: View, trainer: Trainer) -> Iterator[Step]:
    yield Step(
        text="Pack the files once into shards of about 1 GB each",
        command="tar --sort=name -cf shard-000.tar DATASET/part-000",
    )
    yield Step(text="Or pack them into one LMDB, Arrow or Parquet file with an index for random access")
    yield from advice.more_loaders(view, trainer)
    yield from advice.staged(view, sources.source(view))
    yield from advice.cache(view)
    yield advice.look(view)
