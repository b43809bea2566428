"""A rule about data that lie in a great many small files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import busy, cores
from gputop.diagnose.storage import advice, sources
from gputop.diagnose.storage.signs import moved, waits
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View


class Reads(NamedTuple):
    """How a trainer reads: bytes of a call, calls a second; None where only the device tells."""

    mean: float | None
    calls: float | None
    request: float | None  # bytes of what the device is asked for at once
    requests: float | None


@rule(
    "io-small-files",
    "Are the data in too many small files?",
    level=Level.CAUSE,
    state="input wait",
    short="WAIT",
    confirmed_by=("waits-for-data", "input-bound"),
    instead_of=("io-bound",),
    number="R24",
    rows=(23,),
    needs=(),
    partly=("read_chars_per_s", "read_calls_per_s"),
)
def io_small_files(view: View) -> Iterator[Finding]:
    """It waits for storage, and what it asks for is small: the number of requests is the limit, not the bytes."""
    for trainer in view.trainers():
        why = waits(view, trainer)
        reads = small(view, trainer) if why else None
        if why and reads is None and _unseen(view):
            view.knows(trainer, "read_chars", "read_calls")
        severity = view.by_share(trainer.lost)
        if why and reads is not None and severity is not None:
            yield view.found(
                trainer,
                severity,
                "waits for many small reads",
                evidence=(
                    _told(view, trainer, reads),
                    *why,
                    busy(view, trainer),
                    cores(view, trainer, "storage.saturation"),
                ),
                steps=tuple(_steps(view, trainer)),
                confidence=0.75 if reads.mean is not None else 0.5,
                lost_share=trainer.lost,
            )


def small(view: View, trainer: Trainer) -> Reads | None:
    """How it reads, where that is in small pieces.

    Small calls alone are none: read one after the other from a large file, the kernel asks for much at once.
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


def _unseen(view: View) -> bool:
    """Whether no device tells what it is asked for: then only the calls could."""
    source = sources.source(view)
    return source is None or source.request is None


def _told(view: View, trainer: Trainer, reads: Reads) -> Evidence:
    if reads.mean is not None:
        rate = moved(trainer.read_chars)
        text = f"a read is {reads.mean / 1000:.0f} kB on average, {reads.calls or 0:.0f} reads/s, {rate}"
        return Evidence(text=text, value=reads.mean, unit="B", limit=view.limit("read_bytes"))
    text = f"a request to the disk is {(reads.request or 0) / 1000:.0f} kB on average, {reads.requests or 0:.0f}/s"
    return Evidence(text=text, value=reads.request, unit="B", limit=view.limit("request_bytes"))


def _steps(view: View, trainer: Trainer) -> Iterator[Step]:
    yield Step(
        text="pack them into shards of about 1 GB each, once",
        command="tar --sort=name -cf shard-000.tar DATASET/part-000",
    )
    yield Step(text="or into one LMDB, Arrow or Parquet file, with an index to read at random")
    yield from advice.more_loaders(view, trainer)
    yield from advice.staged(view, sources.source(view))
    yield from advice.cache(view)
    yield advice.look(view)
