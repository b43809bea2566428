"""A rule about data that are read for the first time: the page cache fills, and reads become fewer by themselves."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.storage.signs import moved, waits
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.history import COARSE_S
from gputop.units import ago, size

_THIRD = 3


@rule(
    "cold-cache",
    "Are the data only read for the first time?",
    level=Level.NEVER,
    state="cold cache",
    short="COLD",
    number="R26",
    rows=(23,),
    needs=("memory_cached_bytes", "memory_available_bytes", "memory_total_bytes", "read_bytes_per_s"),
)
def cold_cache(view: View) -> Iterator[Finding]:
    """It waits for storage, but what it reads stays in memory: the first epoch says nothing about the next."""
    for trainer in view.trainers():
        if not waits(view, trainer):
            continue
        if not view.knows(
            view.frame.host, "memory_cached_bytes", "memory_available_bytes", "memory_total_bytes", "read_bytes_per_s"
        ):
            continue
        why = tuple(_fallen(view, trainer)) or tuple(_filling(view, trainer))
        if why and _room(view):
            yield view.found(
                trainer,
                "info",
                "may read its data for the first time: what it reads stays in memory",
                evidence=why,
                steps=(
                    Step(text="wait for one epoch before you judge: what memory holds is not read again"),
                    Step(text="or read all of it beforehand", command="vmtouch -t DATASET"),
                    Step(text="or copy it to a local disk once, and keep it there"),
                ),
                confidence=0.6,
            )


def _room(view: View) -> bool:
    """Whether memory could take more."""
    available, total = view.frame.host.memory_available_bytes, view.frame.host.memory_total_bytes
    return bool(total) and view.above((available or 0) / (total or 1), "available")


def _cached(view: View, seconds: float) -> tuple[float, float, float] | None:
    """Page cache at the beginning and at the end of what is known of the last seconds, and how many these are."""

    def work() -> tuple[float, float, float] | None:
        known = view.history.known("host", "memory_cached_bytes", seconds)
        return (known[0], known[-1], len(known) - 1.0) if len(known) > 1 else None

    return view.once(("cached", seconds), work)


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
        text = f"the page cache grew from {size(before)} to {size(now)} in {ago(known_s)}, at {moved(read)} of reads"
        yield Evidence(text=text, value=kept, limit=view.limit("kept"))


def _fallen(view: View, trainer: Trainer) -> Iterator[Evidence]:
    """Later: it still fills, and fewer and fewer reads of this job reach the storage."""
    seconds = min(view.limit("window_s"), trainer.context_s or 0.0)
    grown = _cached(view, seconds) if seconds >= view.limit("kept_s") else None
    if grown is None or grown[1] <= grown[0]:
        return
    # the kernel counts what a file server gives for nobody
    reads = _reads(view, trainer, seconds) or _reads(view, "host", seconds)
    if 2 * COARSE_S * len(reads) < seconds:  # too little of it is known
        return
    third = len(reads) // _THIRD
    before, now, known_s = grown
    first, last = sum(reads[:third]) / third, sum(reads[-third:]) / third
    if now - before < view.limit("grown") * known_s * sum(reads) / len(reads):
        return
    if first and view.below(last / first, "fallen"):
        text = f"reads fell from {moved(first)} to {moved(last)} in {ago(seconds)}"
        yield Evidence(text=text, value=last, unit="B/s", limit=first * view.limit("fallen"))
        yield Evidence(text=f"while the page cache grew from {size(before)} to {size(now)}", value=now)


def _reads(view: View, thing: Trainer | str, seconds: float) -> list[float]:
    """Bytes a second from storage, each the mean of a coarse slot that lies in these seconds; none where all are 0."""
    past = view.past(thing, "read_bytes_per_s", seconds - 1.5 * COARSE_S)
    known = [mean for mean in past if mean is not None]
    return known if any(known) else []
