"""Whether a trainer waits for storage: signs of its own processes, and signs around them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from gputop.diagnose.finding import Evidence
from gputop.diagnose.starved import starved
from gputop.diagnose.storage import sources
from gputop.diagnose.storage.sources import WINDOW_S
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Missing
from gputop.words import amount

_SERVED_LOOKS = 2.5  # two, and some more
_ENOUGH = 2
_IN_DRIVER = ("nv", "_nv", "uvm", "os_acquire", "rm_")  # kernel functions of the GPU driver: no storage at all
_NO_PRESSURE = "pressure of storage needs a kernel with PSI: boot with psi=1"


class Signs(NamedTuple):
    """What speaks for storage. One sign of its own is needed: that a disk is busy does not say for whom."""

    own: tuple[Evidence, ...]
    around: tuple[Evidence, ...]

    @property
    def enough(self) -> bool:
        """Whether they are a verdict."""
        return bool(self.own) and len(self.own) + len(self.around) >= _ENOUGH


def idles(view: View, trainer: Trainer) -> bool:
    """Whether GPU and CPUs both have little to do, and neither writing nor swapping is why."""
    if view.by_share(trainer.lost) is None or not starved(view, trainer):
        return False
    if not view.below(trainer.saturation, "storage.saturation") or blocked_in_driver(trainer):
        return False
    return not _writes(view, trainer) and not view.once("swaps", partial(_swaps, view))


def _writes(view: View, trainer: Trainer) -> bool:
    """A checkpoint: it blocks its writer, and keeps the disk busy too."""
    written = view.mean(trainer, "write_bytes_per_s", WINDOW_S) or 0.0
    return written >= view.limit("storage.writes_bytes_per_s") and written > (trainer.read_bytes or 0.0)


def _swaps(view: View) -> bool:
    pages = (view.mean("host", "swap_in_per_s", WINDOW_S) or 0.0) + (
        view.mean("host", "swap_out_per_s", WINDOW_S) or 0.0
    )
    return pages >= view.limit("storage.swap_per_s")


def blocked_in_driver(trainer: Trainer) -> bool:
    """Whether what blocks it is a call of the GPU driver; loaders make none."""
    return not trainer.loaders and (trainer.process.waiting_in or "").startswith(_IN_DRIVER)


def blocked(view: View, trainer: Trainer) -> float | None:
    """Share of time that who reads is blocked: the loaders, or the trainer without any."""
    if trainer.loaders:
        return trainer.loader_blocked
    percent = view.mean(trainer.process, "blocked_percent", WINDOW_S)
    return None if percent is None else percent / 100


def delayed(view: View, trainer: Trainer) -> float | None:
    """The same, as the kernel counts it where it does."""
    if trainer.loaders:
        return trainer.loader_delayed
    percent = view.mean(trainer.process, "io_wait_percent", WINDOW_S)
    return None if percent is None else percent / 100


def waiters(trainer: Trainer) -> str:
    """Who reads, and waits."""
    verb = "wait" if trainer.loaders > 1 else "waits"
    return f"{amount(trainer.loaders, 'loader') if trainer.loaders else 'it'} {verb}"


def signs(view: View, trainer: Trainer) -> Signs:
    """All there are."""
    return Signs(tuple(_own(view, trainer)), tuple(_around(view)))


def remember(view: View, trainer: Trainer, why: tuple[Evidence, ...]) -> None:
    """Tell the rules that come later in this tick that a trainer waits for storage, and why that is so."""
    view.once(("storage", trainer.identity), lambda: why)


def served(view: View, trainer: Trainer, yes: bool = False) -> bool:
    """Whether a file server was why at the last look, or is now: then what a disk would show is not worked out."""
    notes, now_s = view.notes(trainer, of="network-fs-bound"), view.frame.mono_s
    if yes:
        notes["served_s"] = now_s
    last_s: float = notes.get("served_s", -math.inf)
    return now_s - last_s <= _SERVED_LOOKS * view.stands_for_s


def either(view: View) -> bool:
    """Whether a file server may be what somebody waits for, as no disk is at its limit."""
    return sources.served(view) and not sources.saturated(view, sources.drive(view))


def waits(view: View, trainer: Trainer) -> tuple[Evidence, ...]:
    """Why one of the rules before this one said so; nothing where none did."""
    nothing: tuple[Evidence, ...] = ()
    return view.once(("storage", trainer.identity), lambda: nothing)


def unknown(view: View, trainer: Trainer) -> tuple[Missing, ...]:
    """The signs that cannot be seen."""
    found = [one for one in trainer.missing if one.metric in ("io_wait_percent", "read_bytes_per_s")]
    if view.mean("host", "io_pressure", WINDOW_S) is None:
        found.append(Missing(metric="io_pressure", reason="absent", unlock=_NO_PRESSURE))
    return tuple(dict.fromkeys(found))


def _own(view: View, trainer: Trainer) -> Iterator[Evidence]:
    share, counted = blocked(view, trainer), delayed(view, trainer)
    if share is not None and view.above(share, "storage.blocked"):
        limit = 100 * view.limit("storage.blocked")
        text = f"{waiters(trainer)} for storage {100 * share:.0f} % of the time"
        yield Evidence(text=text, value=100 * share, unit="%", limit=limit)
    if counted is not None and view.above(counted, "storage.delayed"):
        limit = 100 * view.limit("storage.delayed")
        text = f"the kernel counts {100 * counted:.0f} % of that time as waiting for blocks"
        yield Evidence(text=text, value=100 * counted, unit="%", limit=limit)
    faults = view.mean(trainer, "major_faults_per_s", WINDOW_S)
    if faults is not None and view.above(faults, "storage.faults_per_s"):
        text = f"{faults:.0f} page faults a second are served from storage"
        yield Evidence(text=text, value=faults, unit="1/s", limit=view.limit("storage.faults_per_s"))
    yield from _fills(view, trainer, share)


def _fills(view: View, trainer: Trainer, share: float | None) -> Iterator[Evidence]:
    """It is the one that reads from a disk that can no more; loaders that never wait contradict that."""
    reads, total = sources.job_reads(view, trainer), view.mean("host", "read_bytes_per_s", WINDOW_S)
    part = reads / total if reads is not None and total else None
    idle = share is not None and share < view.limit("storage.hardly_blocked")
    if (
        part is not None
        and not idle
        and view.above(part, "storage.share")
        and sources.saturated(view, sources.drive(view))
    ):
        part = min(1.0, part)
        yield Evidence(text=f"{100 * part:.0f} % of what is read from storage is for it", value=100 * part, unit="%")


def _around(view: View) -> Iterator[Evidence]:
    some, full = view.mean("host", "io_pressure", WINDOW_S), view.mean("host", "io_pressure_full", WINDOW_S)
    if some is not None and view.above(some, "storage.pressure_percent"):
        limit = view.limit("storage.pressure_percent")
        yield Evidence(text=f"io pressure {some:.0f} %", value=some, unit="%", limit=limit)
    elif full is not None and view.above(full, "storage.full_pressure_percent"):
        limit = view.limit("storage.full_pressure_percent")
        yield Evidence(text=f"every task waits for storage {full:.0f} % of the time", value=full, unit="%", limit=limit)
    drive = sources.drive(view)
    if drive is None:
        return
    if sources.saturated(view, drive):
        request = f", {1000 * drive.await_s:.1f} ms a request" if drive.await_s is not None else ""
        queue = f", {drive.in_flight:.0f} reads in flight" if drive.parallel and drive.in_flight else ""
        text = f"{drive.name} reads {moved(drive.read)}, {drive.busy or 0:.0f} % busy{queue}{request}"
        yield Evidence(text=text, value=drive.busy, unit="%", limit=view.limit("storage.disk_percent"))
    worked = (drive.busy or 0.0) >= view.limit("storage.best_busy_percent")
    if worked and drive.read is not None and drive.best and drive.best >= view.limit("storage.best_bytes_per_s"):
        part = drive.read / drive.best
        if view.above(part, "storage.best"):
            text = f"{drive.name} gives {100 * part:.0f} % of the {moved(drive.best)} it gave at best"
            yield Evidence(text=text, value=drive.read, unit="B/s", limit=drive.best)


def moved(bytes_per_s: float | None) -> str:
    """A rate in words."""
    rate = bytes_per_s or 0.0
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.{0 if rate >= 1e7 else 1}f} MB/s"
