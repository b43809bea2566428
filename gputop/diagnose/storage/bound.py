"""A rule about storage that keeps a GPU waiting, whatever kind it is."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import busy, cores
from gputop.diagnose.storage import advice, sources
from gputop.diagnose.storage.signs import either, idles, moved, remember, served, signs, unknown
from gputop.diagnose.storage.sources import WINDOW_S
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View


@rule(
    "io-bound",
    "Does storage starve the GPUs?",
    level=Level.CAUSE,
    state="input wait",
    short="WAIT",
    confirmed_by=("waits-for-data", "input-bound"),
    number="R23",
    rows=(23, 32),
    needs=("busy_percent", "cpu_percent", "allowed_cpus"),
    partly=("blocked_percent", "io_wait_percent", "read_bytes_per_s", "read_chars_per_s", "io_pressure"),
)
def io_bound(view: View) -> Iterator[Finding]:
    """GPU and CPU both have little to do, and two signs say that it waits for storage, one of them its own.

    Where small files or a file server are why, the rules for these take its place.
    """
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "cores", "allowed") or not idles(view, trainer):
            continue
        if served(view, trainer) or (trainer.loaders and not view.knows(trainer, "loader_blocked")):
            continue
        if either(view) and not view.knows(trainer, "read_chars"):
            continue
        found = signs(view, trainer)
        severity = view.by_share(trainer.lost)
        if found.enough and severity is not None:
            remember(view, trainer, (*found.own, *found.around))
            states = tuple(_swapped(view, trainer))
            yield view.found(
                trainer,
                severity,
                "waits for its storage",
                evidence=(
                    *found.own,
                    *found.around,
                    *states,
                    busy(view, trainer),
                    cores(view, trainer, "storage.saturation"),
                ),
                steps=tuple(_of_states(view) if states else _steps(view, trainer)),
                confidence=view.confidence(0.75, view.mean("host", "io_pressure"), trainer.read_bytes),
                lost_share=trainer.lost,
            )
        elif found.own and (missing := unknown(view, trainer)):
            view.abstain(trainer, *missing)


def _swapped(view: View, trainer: Trainer) -> Iterator[Evidence]:
    """What it writes, where that is so much beside what the process itself reads that no data set explains it."""
    reads, loaders = trainer.read_bytes or 0.0, trainer.loaders
    own = view.mean(trainer.process, "read_bytes_per_s", WINDOW_S) if loaders else reads
    writes, least = view.mean(trainer, "write_bytes_per_s", WINDOW_S) or 0.0, view.limit("io-bound.states_bytes_per_s")
    if min(reads, writes) < least or (own or 0.0) < reads / 2 or writes < view.limit("io-bound.both_ways") * reads:
        return
    text = f"it writes {moved(writes)} beside the {moved(reads)} that it reads, as where states are swapped"
    yield Evidence(text=text, value=writes, unit="B/s", limit=view.limit("io-bound.both_ways") * reads)


def _of_states(view: View) -> Iterator[Step]:
    """For weights and optimizer states that do not fit into memory; a data set has no part in it."""
    yield Step(text="states are swapped to NVMe: offload to CPU memory what fits there (offload_optimizer.device: cpu)")
    yield Step(text="offload fewer of them: optimizer states only, no weights; or share them among more GPUs")
    yield Step(text="more drives, striped: they add up")
    yield advice.look(view)


def _steps(view: View, trainer: Trainer) -> Iterator[Step]:
    drive = sources.drive(view)
    yield from advice.staged(view, sources.source(view))
    yield advice.SHARDS
    if not sources.full(view, drive):
        yield from advice.more_loaders(view, trainer)
    yield advice.SMALLER
    yield from advice.cache(view)
    yield advice.look(view)
