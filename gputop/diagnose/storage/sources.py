"""What data come from: the disk, the file server and the link that are read from most, worked out once a tick."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gputop.declare import record
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Mount

WINDOW_S = 30.0
_LONG_S = 900.0  # in which a disk shows what it is capable of
_CALM = 0.1  # share of that time in which it has least to do


@record(frozen=True, slots=True, kw_only=True)
class Source:
    """A disk or a mount; means over half a minute, bytes and reads a second, None where unknown."""

    name: str
    read: float | None
    reads: float | None

    @property
    def request(self) -> float | None:
        """Mean bytes of what it is asked for at once."""
        return self.read / self.reads if self.read is not None and self.reads else None


@record(frozen=True, slots=True, kw_only=True)
class Drive(Source):
    """A disk."""

    busy: float | None  # percent
    await_s: float | None
    usual_s: float | None  # what a request takes when there is little to do
    best: float | None  # most bytes a second it was seen to give
    parallel: bool = False  # flash that serves many requests at once: busy all the time is not saturated

    @property
    def in_flight(self) -> float | None:
        """Reads in flight, mean: by Little's law their rate times the time of one."""
        return self.reads * self.await_s if self.reads is not None and self.await_s is not None else None


@record(frozen=True, slots=True, kw_only=True)
class Server(Source):
    """A mount of a network file system."""

    file_system: str
    device: str
    rtt_s: float | None
    queue_s: float | None
    resent: float | None  # requests a second


@record(frozen=True, slots=True, kw_only=True)
class Link:
    """A network interface."""

    name: str
    receive: float  # bytes a second
    speed: float


def drive(view: View) -> Drive | None:
    """The disk that is read from most."""
    return view.once("drive", partial(_drive, view))


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
    """Whether a disk can take no more: its queue is full, or requests take much longer than when it is calm."""
    if disk is None:
        return False
    times = disk.await_s / disk.usual_s if disk.await_s is not None and disk.usual_s else None
    slow = view.above(times, "storage.await_times") and view.above(disk.await_s, "storage.await_least_s")
    return slow or full(view, disk)


def full(view: View, disk: Drive | None) -> bool:
    """Whether requests keep a disk busy, so that more of them at a time would only wait.

    iostat's %util says only that some request was in flight. A disk that serves many at once is full when its queue is
    deep as well [iostat(1)]; nobody can tell where the queue is not known.
    """
    if disk is None or not view.above(disk.busy, "storage.disk_percent"):
        return False
    return not disk.parallel or view.above(disk.in_flight, "storage.in_flight")


def server(view: View) -> Server | None:
    """The mount of a network file system that is read from most, of those that tell."""
    return view.once("server", partial(_server, view))


def _server(view: View) -> Server | None:
    mounts = [one for one in view.frame.host.mounts if one.network and one.read_bytes_per_s is not None]
    reads = {one.path: view.mean(f"mount {one.path}", "read_bytes_per_s", WINDOW_S) for one in mounts}
    mount: Mount | None = max(mounts, key=lambda one: reads[one.path] or 0.0, default=None)
    if mount is None:
        return None
    key = f"mount {mount.path}"
    return Server(
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
    """The network interface that receives the largest share of what it could."""
    return view.once("link", partial(_link, view))


def _link(view: View) -> Link | None:
    found = []
    for one in view.frame.host.networks:
        if one.speed_bytes_per_s:
            receive = view.mean(f"net {one.name}", "receive_bytes_per_s", WINDOW_S)
            if receive:
                found.append(Link(name=one.name, receive=receive, speed=one.speed_bytes_per_s))
    return max(found, key=lambda one: one.receive / one.speed, default=None)


def silent_mounts(view: View) -> tuple[Mount, ...]:
    """Mounts of network file systems that do not count what is read from them: Ceph, FUSE, SMB."""
    mounts = view.frame.host.mounts
    return tuple(one for one in mounts if one.network and one.read_bytes_per_s is None and one.path != "/")


def served(view: View) -> bool:
    """Whether somebody reads from a file server that counts, or much comes in where one is mounted that does not."""
    known = server(view)
    if known is not None and (known.read or 0.0) >= view.limit("network-fs-bound.least_bytes_per_s"):
        return True
    received = view.mean("host", "receive_bytes_per_s", WINDOW_S) or 0.0
    return bool(silent_mounts(view)) and received >= view.limit("starved.receives_bytes_per_s")


def source(view: View) -> Source | None:
    """Where most comes from: the disk or the file server."""
    known = [one for one in (drive(view), server(view)) if one is not None and one.read is not None]
    return max(known, key=lambda one: one.read or 0.0, default=None)


def job_reads(view: View, trainer: Trainer) -> float | None:
    """Bytes a second that the whole job of a trainer reads from storage, page cache excluded."""
    return _of_job(view, trainer, "read_bytes")


def job_chars(view: View, trainer: Trainer) -> float | None:
    """The same through system calls, page cache included."""
    return _of_job(view, trainer, "read_chars")


def job_takes(view: View, trainer: Trainer) -> float | None:
    """The same less what its processes send each other, as `curl` does to who started it."""
    return _of_job(view, trainer, "taken")


def _of_job(view: View, trainer: Trainer, name: str) -> float | None:
    def work() -> float | None:
        known = [getattr(one, name) for one in view.mates(trainer)]
        return None if None in known else sum(known)

    return view.once((name, trainer.process.job or trainer.identity), work)
