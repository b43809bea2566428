"""Data sources: disks, file servers and links, and signs that a trainer waits for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gputop.diagnose.finding import Evidence
from gputop.diagnose.starvation import is_starved
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass
from gputop.labels import amount
from gputop.model import Missing, Mount

WINDOW_S = 30.0
_LONG_S = 900.0  # in which a disk shows its peak rate
_CALM = 0.1  # share of that time with the least load


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class StorageSource:
    """A disk or a mount; means over half a minute, bytes/s and reads/s, None if unknown."""

    name: str
    read: float | None
    reads: float | None

    @property
    def request(self) -> float | None:
        """Mean request size in bytes."""
        return self.read / self.reads if self.read is not None and self.reads else None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Drive(StorageSource):
    """A disk."""

    busy: float | None  # percent
    await_s: float | None
    usual_s: float | None  # request time under light load
    best: float | None  # highest rate seen, in bytes/s
    parallel: bool = False  # flash that serves many requests at once: 100 % busy is not saturated

    @property
    def in_flight(self) -> float | None:
        """Mean reads in flight, by Little's law: rate × time per read."""
        return self.reads * self.await_s if self.reads is not None and self.await_s is not None else None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class NetworkMount(StorageSource):
    """A mount of a network file system."""

    file_system: str
    device: str
    rtt_s: float | None
    queue_s: float | None
    resent: float | None  # requests/s


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A network interface."""

    name: str
    receive: float  # bytes/s
    speed: float


def main_drive(view: View) -> Drive | None:
    """The disk with the highest read rate."""
    return view.cached("drive", partial(_drive, view))


def _drive(view: View) -> Drive | None:
    disks = [(view.mean(f"disk {one.name}", "read_bytes_per_s", WINDOW_S), one) for one in view.frame.host.disks]
    read, disk = max(disks, key=lambda one: one[0] or 0.0, default=(None, None))
    if disk is None:
        return None
    key = f"disk {disk.name}"
    return Drive(
        name=disk.name,
        parallel=disk.rotational is False or disk.name.startswith("nvme"),
        read=read,
        reads=view.mean(key, "reads_per_s", WINDOW_S),
        busy=view.mean(key, "busy_percent", WINDOW_S),
        await_s=view.mean(key, "await_s", WINDOW_S),
        usual_s=_calm(view.history.known(key, "await_s", _LONG_S)),
        best=max(view.history.known(key, "read_bytes_per_s", _LONG_S), default=None),
    )


def _calm(values: Sequence[float]) -> float | None:
    return sorted(values)[int(_CALM * len(values))] if values else None


def saturated(view: View, disk: Drive | None) -> bool:
    """Whether a disk is saturated: its queue is full, or requests take much longer than under light load."""
    if disk is None:
        return False
    times = disk.await_s / disk.usual_s if disk.await_s is not None and disk.usual_s else None
    slow = view.above(times, "storage.await_times") and view.above(disk.await_s, "storage.await_least_s")
    return slow or full(view, disk)


def full(view: View, disk: Drive | None) -> bool:
    """Whether a disk is busy with requests, so that more of them would only queue.

    iostat's %util only shows that some request was in flight. A disk that serves many at once is full only with a deep
    queue [iostat(1)]; unknown without the queue length.
    """
    if disk is None or not view.above(disk.busy, "storage.disk_percent"):
        return False
    return not disk.parallel or view.above(disk.in_flight, "storage.in_flight")


def server(view: View) -> NetworkMount | None:
    """The network mount with the highest read rate, of those with counters."""
    return view.cached("server", partial(_server, view))


def _server(view: View) -> NetworkMount | None:
    mounts = [one for one in view.frame.host.mounts if one.network and one.read_bytes_per_s is not None]
    reads = {one.path: view.mean(f"mount {one.path}", "read_bytes_per_s", WINDOW_S) for one in mounts}
    mount: Mount | None = max(mounts, key=lambda one: reads[one.path] or 0.0, default=None)
    if mount is None:
        return None
    key = f"mount {mount.path}"
    return NetworkMount(
        name=mount.path,
        file_system=mount.file_system,
        device=mount.device,
        read=reads[mount.path],
        reads=view.mean(key, "reads_per_s", WINDOW_S),
        rtt_s=view.mean(key, "read_rtt_s", WINDOW_S),
        queue_s=view.mean(key, "read_queue_s", WINDOW_S),
        resent=view.mean(key, "retransmits_per_s", WINDOW_S),
    )


def link(view: View) -> Link | None:
    """The network interface that receives the largest share of its capacity."""
    return view.cached("link", partial(_link, view))


def _link(view: View) -> Link | None:
    found = []
    for one in view.frame.host.networks:
        if one.speed_bytes_per_s:
            receive = view.mean(f"net {one.name}", "receive_bytes_per_s", WINDOW_S)
            if receive:
                found.append(Link(name=one.name, receive=receive, speed=one.speed_bytes_per_s))
    return max(found, key=lambda one: one.receive / one.speed, default=None)


def silent_mounts(view: View) -> tuple[Mount, ...]:
    """Network file systems without read counters: Ceph, FUSE, SMB."""
    mounts = view.frame.host.mounts
    return tuple(one for one in mounts if one.network and one.read_bytes_per_s is None and one.path != "/")


def any_served(view: View) -> bool:
    """Whether any process reads from a counting file server, or much arrives where a silent one is mounted."""
    known = server(view)
    if known is not None and (known.read or 0.0) >= view.limit("network-fs-bound.least_bytes_per_s"):
        return True
    received = view.mean("host", "receive_bytes_per_s", WINDOW_S) or 0.0
    return bool(silent_mounts(view)) and received >= view.limit("starved.receives_bytes_per_s")


def source(view: View) -> StorageSource | None:
    """The disk or file server with the highest read rate."""
    known = [one for one in (main_drive(view), server(view)) if one is not None and one.read is not None]
    return max(known, key=lambda one: one.read or 0.0, default=None)


def job_reads(view: View, trainer: Trainer) -> float | None:
    """Bytes/s that a trainer's whole job reads from storage, without the page cache."""
    return _of_job(view, trainer, "read_bytes")


def job_chars(view: View, trainer: Trainer) -> float | None:
    """The same through system calls, with the page cache."""
    return _of_job(view, trainer, "read_chars")


def job_takes(view: View, trainer: Trainer) -> float | None:
    """The same without data its processes send each other, as `curl` does to its parent."""
    return _of_job(view, trainer, "input_rate")


def _of_job(view: View, trainer: Trainer, name: str) -> float | None:
    def work() -> float | None:
        known = [getattr(one, name) for one in view.mates(trainer)]
        return None if None in known else sum(known)

    return view.cached((name, trainer.process.job or trainer.identity), work)


_SERVED_LOOKS = 2.5  # two and a little more
_ENOUGH = 2
_IN_DRIVER = ("nv", "_nv", "uvm", "os_acquire", "rm_")  # kernel functions of the GPU driver: not storage
_NO_PRESSURE = "storage pressure needs a kernel with PSI: boot with psi=1"


class Signs(NamedTuple):
    """Signs of waiting for storage. One of its own is required: a busy disk does not show for which process."""

    own: tuple[Evidence, ...]
    around: tuple[Evidence, ...]

    @property
    def enough(self) -> bool:
        """Whether they suffice for a verdict."""
        return bool(self.own) and len(self.own) + len(self.around) >= _ENOUGH


def idles(view: View, trainer: Trainer) -> bool:
    """Whether GPU and CPUs both have little to do, and neither writing nor swapping is the cause."""
    if view.by_share(trainer.lost) is None or not is_starved(view, trainer):
        return False
    if not view.below(trainer.saturation, "storage.saturation") or blocked_in_driver(trainer):
        return False
    return not _writes(view, trainer) and not view.cached("swaps", partial(_swaps, view))


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
    """Whether it is blocked in a GPU driver call; loaders make none."""
    return not trainer.loaders and (trainer.process.waiting_in or "").startswith(_IN_DRIVER)


def blocked(view: View, trainer: Trainer) -> float | None:
    """Share of time that readers are blocked: the loaders, or the trainer without any."""
    if trainer.loaders:
        return trainer.loader_blocked
    percent = view.mean(trainer.process, "blocked_percent", WINDOW_S)
    return None if percent is None else percent / 100


def delayed(view: View, trainer: Trainer) -> float | None:
    """The same from the kernel's delay accounting, where enabled."""
    if trainer.loaders:
        return trainer.loader_delayed
    percent = view.mean(trainer.process, "io_wait_percent", WINDOW_S)
    return None if percent is None else percent / 100


def waiters(trainer: Trainer) -> str:
    """The readers that wait, as text."""
    verb = "wait" if trainer.loaders > 1 else "waits"
    return f"{amount(trainer.loaders, 'worker') if trainer.loaders else 'main thread'} {verb}"


def signs(view: View, trainer: Trainer) -> Signs:
    """All signs."""
    return Signs(tuple(_own_signs(view, trainer)), tuple(_host_signs(view)))


def remember(view: View, trainer: Trainer, why: tuple[Evidence, ...]) -> None:
    """Record for later rules of this evaluation that a trainer waits for storage, with the evidence."""
    view.cached(("storage", trainer.identity), lambda: why)


def served(view: View, trainer: Trainer, yes: bool = False) -> bool:
    """Whether a file server was the cause at the last evaluation, or is now (`yes`): disks are skipped then."""
    notes, now_s = view.notes(trainer, of="network-fs-bound"), view.frame.mono_s
    if yes:
        notes["served_s"] = now_s
    last_s: float = notes.get("served_s", -math.inf)
    return now_s - last_s <= _SERVED_LOOKS * view.stands_for_s


def either(view: View) -> bool:
    """Whether a process may wait for a file server, as no disk is at its limit."""
    return any_served(view) and not saturated(view, main_drive(view))


def waits(view: View, trainer: Trainer) -> tuple[Evidence, ...]:
    """Evidence recorded by an earlier rule of this evaluation; empty if there is none."""
    nothing: tuple[Evidence, ...] = ()
    return view.cached(("storage", trainer.identity), lambda: nothing)


def unknown(view: View, trainer: Trainer) -> tuple[Missing, ...]:
    """The signs that are not visible."""
    found = [one for one in trainer.missing if one.metric in ("io_wait_percent", "read_bytes_per_s")]
    if view.mean("host", "io_pressure", WINDOW_S) is None:
        found.append(Missing(metric="io_pressure", reason="absent", unlock=_NO_PRESSURE))
    return tuple(dict.fromkeys(found))


def _own_signs(view: View, trainer: Trainer) -> Iterator[Evidence]:
    share, counted = blocked(view, trainer), delayed(view, trainer)
    if share is not None and view.above(share, "storage.blocked"):
        limit = 100 * view.limit("storage.blocked")
        text = f"{waiters(trainer)} for storage {100 * share:.0f} % of the time"
        yield Evidence(text=text, value=100 * share, unit="%", limit=limit, sense="healthy_to")
    if counted is not None and view.above(counted, "storage.delayed"):
        limit = 100 * view.limit("storage.delayed")
        text = f"block I/O delay {100 * counted:.0f} % of the time"
        yield Evidence(text=text, value=100 * counted, unit="%", limit=limit, sense="healthy_to")
    faults = view.mean(trainer, "major_faults_per_s", WINDOW_S)
    if faults is not None and view.above(faults, "storage.faults_per_s"):
        text, limit = f"major page faults {faults:.0f}/s", view.limit("storage.faults_per_s")
        yield Evidence(text=text, value=faults, unit="1/s", limit=limit, sense="healthy_to")
    yield from _saturates_disk(view, trainer, share)


def _saturates_disk(view: View, trainer: Trainer, share: float | None) -> Iterator[Evidence]:
    """It is the reader of a saturated disk; loaders that never wait contradict that."""
    reads, total = job_reads(view, trainer), view.mean("host", "read_bytes_per_s", WINDOW_S)
    part = reads / total if reads is not None and total else None
    idle = share is not None and share < view.limit("storage.hardly_blocked")
    if part is not None and not idle and view.above(part, "storage.share") and saturated(view, main_drive(view)):
        part = min(1.0, part)
        yield Evidence(text=f"{100 * part:.0f} % of storage reads are from this job", value=100 * part, unit="%")


def _host_signs(view: View) -> Iterator[Evidence]:
    drive = main_drive(view)
    if drive is not None:
        yield from _disk_signs(view, drive)
    some, full = view.mean("host", "io_pressure", WINDOW_S), view.mean("host", "io_pressure_full", WINDOW_S)
    if some is not None and view.above(some, "storage.pressure_percent"):
        limit = view.limit("storage.pressure_percent")
        yield Evidence(text=f"PSI io some {some:.0f} %", value=some, unit="%", limit=limit, sense="healthy_to")
    elif full is not None and view.above(full, "storage.full_pressure_percent"):
        limit = view.limit("storage.full_pressure_percent")
        yield Evidence(text=f"PSI io full {full:.0f} %", value=full, unit="%", limit=limit, sense="healthy_to")


def _disk_signs(view: View, drive: Drive) -> Iterator[Evidence]:
    if saturated(view, drive):
        request = f", {1000 * drive.await_s:.1f} ms per request" if drive.await_s is not None else ""
        queue = f", {drive.in_flight:.0f} reads in flight" if drive.parallel and drive.in_flight else ""
        text = f"{drive.name} reads {moved(drive.read)}, {drive.busy or 0:.0f} % busy{queue}{request}"
        yield Evidence(
            text=text, value=drive.busy, unit="%", limit=view.limit("storage.disk_percent"), sense="healthy_to"
        )
    worked = (drive.busy or 0.0) >= view.limit("storage.best_busy_percent")
    if worked and drive.read is not None and drive.best and drive.best >= view.limit("storage.best_bytes_per_s"):
        part = drive.read / drive.best
        if view.above(part, "storage.best"):
            text = f"{drive.name} reads {moved(drive.read)}, {100 * part:.0f} % of its peak so far"
            limit = 100 * view.limit("storage.best")
            yield Evidence(text=text, value=100 * part, unit="%", limit=limit, sense="flagged_above")


def moved(bytes_per_s: float | None) -> str:
    """A rate as text."""
    rate = bytes_per_s or 0.0
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.{0 if rate >= 1e7 else 1}f} MB/s"
