"""Readers that wait for a file system one read at a time, as the kernel shows where they sleep.

FUSE, Ceph and SMB count nothing that a rule could hold against a limit, and the link is far from full: every read just
takes long. NFS and Lustre count, and a round trip that is short enough for others is too long for who reads in turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from gputop.declare import record
from gputop.diagnose.finding import Evidence, Step
from gputop.diagnose.starved import nobody_reads
from gputop.diagnose.storage import advice, sources
from gputop.diagnose.storage.signs import blocked, moved
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.diagnose.wchan import MOUNTED_AS, Wait, asleep
from gputop.model import Mount
from gputop.words import amount

_TABLE = "network-fs-bound"
_SOME = 0.1  # of looks: less says nothing of what pages are waited for

# how programs of FUSE are told to keep what they have read; by how they are called in /proc/mounts
_CACHES = {
    "s3fs": "s3fs BUCKET {path} -o use_cache={folder}",
    "gcsfuse": "gcsfuse --cache-dir={folder} --file-cache-max-size-mb=-1 BUCKET {path}",
    "mountpoint-s3": "mount-s3 --cache {folder} BUCKET {path}",
    "rclone": "rclone mount REMOTE:BUCKET {path} --vfs-cache-mode full --cache-dir {folder}",
    "juicefs": "juicefs mount --cache-dir {folder} META-URL {path}",
    "blobfuse2": "blobfuse2 mount {path} --file-cache --tmp-path={folder}",
}


@record(frozen=True, slots=True, kw_only=True)
class Latency:
    """What readers wait for, and how much of their time."""

    wait: Wait | None  # None: a page of a file, from where by elimination only
    function: str
    share: float  # of the time of each reader, 0-1
    mounts: tuple[Mount, ...]  # those it may be; none where it is mounted out of sight, as in a container

    @property
    def mount(self) -> Mount | None:
        """The one it is, if there is one only."""
        return self.mounts[0] if len(self.mounts) == 1 else None

    @property
    def name(self) -> str:
        """`/bucket`, or which kind of file system it is."""
        if self.mount is not None:
            return self.mount.path
        return f"a file system of {self.wait.value}" if self.wait else "a network file system"


def latency(view: View, trainer: Trainer) -> Latency | None:
    """What file system the readers of a trainer are seen to wait for; None where none is, or it is not for long."""
    seen = asleep(view, trainer)
    most = seen.most(*MOUNTED_AS)
    pages = seen.shares.get(Wait.PAGE, 0.0) if _no_disk(view) else 0.0
    if most is not None and most[1] >= _SOME:
        wait, share = most
        mounts = _mounted(view, trainer, wait)
        counted = bool(mounts) and all(one.read_bytes_per_s is not None for one in mounts)
        if view.above(share + pages, f"{_TABLE}.{'asleep_counted' if counted else 'asleep'}"):
            return Latency(wait=wait, function=seen.functions[wait], share=min(1.0, share + pages), mounts=mounts)
        return None
    return _by_elimination(view, trainer, seen.functions.get(Wait.PAGE), pages)


def _by_elimination(view: View, trainer: Trainer, function: str | None, pages: float) -> Latency | None:
    """Readers wait for pages that no local disk and no server that counts gives, and one mount is left."""
    share = max(pages, blocked(view, trainer) or 0.0)
    mounts = sources.silent_mounts(view)
    takes = sources.job_takes(view, trainer)
    if not mounts or not _no_disk(view) or not nobody_reads(view) or not view.above(share, "storage.blocked"):
        return None
    if not view.above(takes, f"{_TABLE}.least_bytes_per_s"):
        return None
    return Latency(wait=None, function=function or "", share=share, mounts=_named(trainer, mounts))


def _no_disk(view: View) -> bool:
    """Whether no local disk is read from so much that it may be what a page comes from."""
    drive = sources.drive(view)
    if drive is None or drive.read is None:
        return nobody_reads(view)
    rests = drive.busy is None or drive.busy < view.limit("storage.best_busy_percent")
    return rests and drive.read < view.limit(f"{_TABLE}.least_bytes_per_s")


def _mounted(view: View, trainer: Trainer, wait: Wait) -> tuple[Mount, ...]:
    kinds = MOUNTED_AS[wait]
    return _named(trainer, [one for one in view.frame.host.mounts if one.file_system.startswith(kinds)])


def _named(trainer: Trainer, mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    """Those that its command line names, if it names any: data are mostly given as a path."""
    named = [one for one in mounts if any(f"{one.path}/" in f"{word}/" for word in trainer.process.command)]
    return tuple(named or mounts)


def evidence(view: View, trainer: Trainer, found: Latency) -> Iterator[Evidence]:
    """Where they sleep, what they read meanwhile, how long a read takes, and that the link is not why."""
    readers = trainer.loaders or 1
    who = amount(trainer.loaders, "loader") if trainer.loaders else "the main thread"
    what = f" ({found.wait.value})" if found.wait else ""
    where = f"{'asleep' if found.wait else 'blocked'} in {found.function}{what}" if found.function else "blocked"
    limit = 100 * view.limit(f"{_TABLE}.asleep")
    yield Evidence(
        text=f"{who} {where} {100 * found.share:.0f} % of the time (normally < {limit:.0f} %)",
        value=100 * found.share,
        unit="%",
        limit=limit,
    )
    chars, calls = trainer.taken, trainer.read_calls
    if chars is not None:
        mounts = " or ".join(f"{one.path} ({one.file_system})" for one in found.mounts[:3])
        size = f", {chars / calls / 1e3:.0f} kB a read" if calls else ""
        yield Evidence(text=f"reads {moved(chars)}{f' from {mounts}' if mounts else ''}{size}", value=chars, unit="B/s")
    if calls and calls >= 1:
        each = 1000 * readers * found.share / calls
        yield Evidence(text=f"about {each:.1f} ms a read, {calls:.0f} reads/s: latency-bound", value=each, unit="ms")
    link = sources.link(view)
    if link is not None:
        part = 100 * link.receive / link.speed
        text = f"{link.name} receives {part:.0f} % of its {8 * link.speed / 1e9:g} Gb/s: bandwidth is not the limit"
        yield Evidence(text=text, value=part, unit="%", limit=100 * view.limit(f"{_TABLE}.link"))


def steps(view: View, trainer: Trainer, found: Latency) -> Iterator[Step]:
    """Have more reads in flight, read less often, or read from nearer."""
    mount = found.mount
    yield from advice.more_loaders(view, trainer)
    yield from advice.staged_from(view, mount.path if mount else None)
    if mount is not None and (cached := _cached(view, mount)):
        yield cached
    yield advice.SHARDS
    yield Step(text="Read in parallel within a loader: a thread pool in __getitems__, or asynchronous requests")


def _cached(view: View, mount: Mount) -> Step | None:
    kind = next((one for one in _CACHES if one in f"{mount.file_system} {mount.device}"), None)
    if kind is None:
        return None
    room = advice.local_room(view)
    folder = f"{room.rstrip('/')}/cache" if room else "/local/cache"
    command = _CACHES[kind].format(path=quote(mount.path), folder=quote(folder))
    return Step(text=f"Let {kind} keep what was read on a local disk: remount it with a file cache", command=command)
