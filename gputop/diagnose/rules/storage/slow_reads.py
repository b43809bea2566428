"""Rules on slow reads: from any storage, and from network and FUSE file systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from shlex import quote

from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.storage import advice, sources
from gputop.diagnose.rules.storage.sources import (
    WINDOW_S,
    Link,
    NetworkMount,
    blocked,
    either,
    idles,
    moved,
    remember,
    served,
    signs,
    unknown,
    waiters,
)
from gputop.diagnose.starvation import busy_evidence, cores_evidence, storage_idle, waiting_threads
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.diagnose.wchan import MOUNTED_AS, Wait, sleeping_threads
from gputop.frozen_dataclass import frozen_dataclass
from gputop.labels import amount
from gputop.model import Mount


@rule(
    "io-bound",
    "Does slow storage starve the GPUs?",
    level=Level.CAUSE,
    state="I/O-bound",
    short="I/O",
    confirmed_by=("waits-for-data", "input-bound"),
    needs=("busy_percent", "cpu_percent", "allowed_cpus"),
    partly=("blocked_percent", "io_wait_percent", "read_bytes_per_s", "read_chars_per_s", "io_pressure"),
)
def io_bound(view: View) -> Iterator[Finding]:
    """GPU and CPUs have little to do, and two signs show that it waits for storage, one of them its own.

    For small files or a file server, the more specific rules report it.
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
            states = tuple(_swap_evidence(view, trainer))
            yield view.found(
                trainer,
                severity,
                f"I/O-bound, {_local_storage(view, trainer)}",
                evidence=(
                    *found.own[:1],
                    *found.around,
                    *found.own[1:],
                    *states,
                    busy_evidence(view, trainer),
                    cores_evidence(view, trainer, "storage.saturation"),
                ),
                steps=tuple(_state_steps(view) if states else _storage_steps(view, trainer)),
                confidence=view.confidence(0.75, view.mean("host", "io_pressure"), trainer.read_bytes),
                lost_share=trainer.lost,
            )
        elif found.own and (missing := unknown(view, trainer)):
            view.abstain(trainer, *missing)


def _local_storage(view: View, trainer: Trainer) -> str:
    """The disk that delivers what its job reads, if there is one: it is where to look."""
    drive, reads = sources.main_drive(view), sources.job_reads(view, trainer)
    if (
        drive is None
        or not drive.read
        or reads is None
        or not view.above(drive.read / max(reads, 1.0), "storage.share")
    ):
        return "local storage"
    return f"local disk {drive.name}"


def _swap_evidence(view: View, trainer: Trainer) -> Iterator[Evidence]:
    """Evidence of swapped tensors: writes too large beside its own reads for a data set."""
    reads, loaders = trainer.read_bytes or 0.0, trainer.loaders
    own = view.mean(trainer.process, "read_bytes_per_s", WINDOW_S) if loaders else reads
    writes, least = view.mean(trainer, "write_bytes_per_s", WINDOW_S) or 0.0, view.limit("io-bound.states_bytes_per_s")
    if min(reads, writes) < least or (own or 0.0) < reads / 2 or writes < view.limit("io-bound.both_ways") * reads:
        return
    text = f"writes {moved(writes)} and reads {moved(reads)}, typical of NVMe offload"
    yield Evidence(
        text=text, value=writes, unit="B/s", limit=view.limit("io-bound.both_ways") * reads, sense="flagged_from"
    )


def _state_steps(view: View) -> Iterator[Step]:
    """For weights and optimizer states that do not fit into memory; a data set plays no role."""
    yield Step(text="Offload what fits to CPU memory instead of NVMe (offload_optimizer.device: cpu)")
    yield Step(text="Offload less: optimizer states only, no weights; or shard across more GPUs")
    yield Step(text="Stripe more drives: their bandwidth adds up")
    yield advice.look(view)


def _storage_steps(view: View, trainer: Trainer) -> Iterator[Step]:
    drive = sources.main_drive(view)
    yield from advice.staged(view, sources.source(view))
    yield advice.SHARDS
    if not sources.full(view, drive):
        yield from advice.more_loaders(view, trainer)
    yield advice.SMALLER
    yield from advice.cache(view)
    yield advice.look(view)


_TABLE = "network-fs-bound"
_SOME = 0.1  # of samples: below, the reason for page waits is unknown

# cache options of FUSE programs, by their type in /proc/mounts
_CACHES = {
    "s3fs": "s3fs BUCKET {path} -o use_cache={folder}",
    "gcsfuse": "gcsfuse --cache-dir={folder} --file-cache-max-size-mb=-1 BUCKET {path}",
    "mountpoint-s3": "mount-s3 --cache {folder} BUCKET {path}",
    "rclone": "rclone mount REMOTE:BUCKET {path} --vfs-cache-mode full --cache-dir {folder}",
    "juicefs": "juicefs mount --cache-dir {folder} META-URL {path}",
    "blobfuse2": "blobfuse2 mount {path} --file-cache --tmp-path={folder}",
}


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """What readers wait for, and the share of their time."""

    wait: Wait | None  # None: a page of a file, with its origin found only by elimination
    function: str
    share: float  # of each reader's time, 0-1
    mounts: tuple[Mount, ...]  # candidates; empty if mounted out of sight, as in a container

    @property
    def mount(self) -> Mount | None:
        """The mount, if there is only one candidate."""
        return self.mounts[0] if len(self.mounts) == 1 else None

    @property
    def name(self) -> str:
        """`/bucket`, or the kind of file system."""
        if self.mount is not None:
            return self.mount.path
        return f"{self.wait.value} file system" if self.wait else "network file system"


def latency(view: View, trainer: Trainer) -> Latency | None:
    """The file system that a trainer's readers wait for; None if there is none, or only briefly."""
    seen = sleeping_threads(view, trainer)
    most = seen.most_frequent(*MOUNTED_AS)
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
    """Readers wait for pages that no local disk and no counting server delivers, and one mount is left."""
    share = max(pages, blocked(view, trainer) or 0.0)
    mounts = sources.silent_mounts(view)
    takes = sources.job_takes(view, trainer)
    if not mounts or not _no_disk(view) or not storage_idle(view) or not view.above(share, "storage.blocked"):
        return None
    if not view.above(takes, f"{_TABLE}.least_bytes_per_s"):
        return None
    return Latency(wait=None, function=function or "", share=share, mounts=_named_mounts(trainer, mounts))


def _no_disk(view: View) -> bool:
    """Whether no local disk is read so much that pages may come from it."""
    drive = sources.main_drive(view)
    if drive is None or drive.read is None:
        return storage_idle(view)
    rests = drive.busy is None or drive.busy < view.limit("storage.best_busy_percent")
    return rests and drive.read < view.limit(f"{_TABLE}.least_bytes_per_s")


def _mounted(view: View, trainer: Trainer, wait: Wait) -> tuple[Mount, ...]:
    kinds = MOUNTED_AS[wait]
    return _named_mounts(trainer, [one for one in view.frame.host.mounts if one.file_system.startswith(kinds)])


def _named_mounts(trainer: Trainer, mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    """The mounts named on its command line, if any: data are usually given as a path."""
    named = [one for one in mounts if any(f"{one.path}/" in f"{word}/" for word in trainer.process.command)]
    return tuple(named or mounts)


def evidence(view: View, trainer: Trainer, found: Latency) -> Iterator[Evidence]:
    """Where readers sleep, how much they read, the time per read, and that the link is not the cause."""
    readers = trainer.loaders or 1
    reader = amount(trainer.loaders, "worker") if trainer.loaders else "main thread"
    what = f" ({found.wait.value})" if found.wait else ""
    where = f"{'asleep' if found.wait else 'blocked'} in {found.function}{what}" if found.function else "blocked"
    limit = 100 * view.limit(f"{_TABLE}.asleep")
    yield Evidence(
        text=f"{reader} {where} {100 * found.share:.0f} % of the time",
        value=100 * found.share,
        unit="%",
        limit=limit,
        sense="healthy_to",
    )
    chars, calls = trainer.input_rate, trainer.read_calls
    if chars is not None:
        mounts = " or ".join(f"{one.path} ({one.file_system})" for one in found.mounts[:3])
        size = f", {chars / calls / 1e3:.0f} kB per read" if calls else ""
        yield Evidence(text=f"reads {moved(chars)}{f' from {mounts}' if mounts else ''}{size}", value=chars, unit="B/s")
    if calls and calls >= 1:
        each = 1000 * readers * found.share / calls
        yield Evidence(text=f"about {each:.1f} ms per read, {calls:.0f} reads/s, latency-bound", value=each, unit="ms")
    link = sources.link(view)
    if link is not None:
        part = 100 * link.receive / link.speed
        text = f"{link.name} receives {part:.0f} % of {8 * link.speed / 1e9:g} Gb/s, bandwidth is not the limit"
        limit = 100 * view.limit(f"{_TABLE}.link")
        yield Evidence(text=text, value=part, unit="%", limit=limit, sense="flagged_from")


def steps(view: View, trainer: Trainer, found: Latency) -> Iterator[Step]:
    """More reads in flight, fewer reads, or reads from a nearer place."""
    mount = found.mount
    yield from advice.more_loaders(view, trainer)
    yield from advice.staged_from(view, mount.path if mount else None)
    if mount is not None and (cached := _cached(view, mount)):
        yield cached
    yield advice.SHARDS
    yield Step(text="Read in parallel within each worker: a thread pool in __getitems__, or asynchronous requests")


def _cached(view: View, mount: Mount) -> Step | None:
    kind = next((one for one in _CACHES if one in f"{mount.file_system} {mount.device}"), None)
    if kind is None:
        return None
    room = advice.local_room(view)
    folder = f"{room.rstrip('/')}/cache" if room else "/local/cache"
    command = _CACHES[kind].format(path=quote(mount.path), folder=quote(folder))
    return Step(text=f"Remount {kind} with a file cache on a local disk", command=command)


@rule(
    "network-fs-bound",
    "Does a network file system starve the GPUs?",
    level=Level.CAUSE,
    state="I/O-bound",
    short="I/O",
    confirmed_by=("waits-for-data", "input-bound"),
    instead_of=("io-bound",),
    needs=("busy_percent", "cpu_percent", "allowed_cpus"),
    partly=("read_chars_per_s",),
)
def network_fs_bound(view: View) -> Iterator[Finding]:
    """GPU and CPUs are mostly idle, the job reads from a file server, and that or its network path is slow."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "cores", "allowed") or not idles(view, trainer):
            continue
        slow, severity = latency(view, trainer), view.by_share(trainer.lost)
        why = _server_evidence(view, trainer)
        if not why and slow is not None and severity is not None:
            yield _latency_finding(view, trainer, slow, severity)
            continue
        if not why and _reads_there(view) and not view.knows(trainer, "read_chars"):
            continue
        if why and severity is not None:
            remember(view, trainer, why)
            served(view, trainer, yes=True)
            server = sources.server(view)
            server = server if server and _reads_from(view, trainer, server) else None
            mounted = server is not None or _from_mounts(view, trainer)
            unnamed = _uncounted_name(slow) if mounted else "data read over the network"
            yield view.found(
                trainer,
                severity if mounted or severity != "crit" else "warn",
                f"I/O-bound, {f'{server.name} ({server.file_system})' if server else unnamed}",
                evidence=(*why, busy_evidence(view, trainer), cores_evidence(view, trainer, "storage.saturation")),
                steps=view.cached(
                    ("steps of a file server", server, mounted), partial(_server_steps, view, server, mounted)
                ),
                confidence=view.confidence(0.75 if mounted else 0.6, blocked(view, trainer), trainer.read_chars),
                lost_share=trainer.lost,
            )


def _uncounted_name(slow: Latency | None) -> str:
    """Name of a file system without counters: its path, if its client is seen to keep readers waiting."""
    return slow.name if slow is not None and slow.wait is not None else "network file system"


def _latency_finding(view: View, trainer: Trainer, slow: Latency, severity: Severity) -> Finding:
    """Each read takes long, while neither the link nor a counter of the file system shows why."""
    why = tuple(evidence(view, trainer, slow))
    remember(view, trainer, why)
    served(view, trainer, yes=True)
    sure = slow.wait is not None
    return view.found(
        trainer,
        severity if sure or severity != "crit" else "warn",
        f"I/O-bound, high read latency on {slow.name}",
        evidence=(*why, busy_evidence(view, trainer), cores_evidence(view, trainer, "storage.saturation")),
        steps=tuple(steps(view, trainer, slow)),
        confidence=view.confidence(0.75 if sure and slow.mounts else 0.6, trainer.read_chars),
        lost_share=trainer.lost,
    )


def _server_evidence(view: View, trainer: Trainer) -> tuple[Evidence, ...]:
    """Why an idle trainer waits for a file server; empty if it does not."""
    server, link = sources.server(view), _full_link(view)
    if server is not None and _reads_from(view, trainer, server):
        troubles = tuple(_problem_evidence(view, server, link))
        return (*troubles, *_waiting(view, trainer)) if troubles and _waits(view, trainer, server) else ()
    if link is None or not sources.silent_mounts(view) or not _waits(view, trainer, None):
        return ()
    chars = sources.job_chars(view, trainer)
    if chars is None or not view.above(chars / link.receive, "network-fs-bound.share"):
        return ()
    mounts = ", ".join(f"{one.path} ({one.file_system})" for one in sources.silent_mounts(view)[:2])
    if _from_mounts(view, trainer):
        chars = sources.job_takes(view, trainer) or chars
        text = f"reads {moved(chars)} from {mounts}, no further statistics"
    else:
        text = f"data arrive over {link.name}, from a file server or object store; no statistics for {mounts}"
    return (Evidence(text=text, value=chars, unit="B/s"), _of_link(view, link), *_waiting(view, trainer))


def _from_mounts(view: View, trainer: Trainer) -> bool:
    """Whether its input comes from mounts without counters: too much data for a pipe.

    A child such as curl can fetch data from anywhere, and passes it on through a pipe.
    """
    link, takes = sources.link(view), sources.job_takes(view, trainer)
    return link is not None and takes is not None and view.above(takes / link.receive, "network-fs-bound.share")


def _reads_there(view: View) -> bool:
    server = sources.server(view)
    return server is not None and view.above(server.read, "network-fs-bound.least_bytes_per_s")


def _reads_from(view: View, trainer: Trainer, server: NetworkMount) -> bool:
    """Whether this job is the reader of that server, and reads more from it than from any disk."""
    if not server.read or not view.above(server.read, "network-fs-bound.least_bytes_per_s"):
        return False
    chars = sources.job_takes(view, trainer)
    if chars is None:
        return _nothing_else(view, trainer)
    local = sources.main_drive(view)
    mine = sources.job_reads(view, trainer) or 0.0
    elsewhere = local is not None and (local.read or 0.0) > server.read and mine >= 0.5 * (local.read or 0.0)
    return view.above(chars / server.read, "network-fs-bound.share") and not elsewhere


def _nothing_else(view: View, trainer: Trainer) -> bool:
    """With hidden reads: whether it is blocked, and nothing else can block it."""
    disk = sources.main_drive(view)
    if disk is None or disk.read is None or disk.busy is None or sources.silent_mounts(view):
        return False
    reads, busy_percent = view.limit("starved.reads_bytes_per_s"), view.limit("storage.best_busy_percent")
    rests = disk.read < reads and disk.busy < busy_percent
    return rests and view.above(blocked(view, trainer), "storage.blocked")


def _waits(view: View, trainer: Trainer, server: NetworkMount | None) -> bool:
    """Whether its readers are blocked, or have no CPU work: only NFS waits have a state of their own."""
    if view.above(blocked(view, trainer), "storage.blocked"):
        return True
    share = trainer.loader_cpu if trainer.loaders else trainer.main
    ready = waiting_threads(trainer.loader_wait if trainer.loaders else trainer.main_wait, share)
    asleep = view.below(share, "network-fs-bound.cpu") and ready < view.limit("network-fs-bound.run_wait")
    return asleep and not (server is not None and server.file_system.startswith("nfs"))


def _waiting(view: View, trainer: Trainer) -> Iterator[Evidence]:
    share = blocked(view, trainer)
    if share is not None:
        limit = 100 * view.limit("storage.blocked")
        text = f"{waiters(trainer)} for storage {100 * share:.0f} % of the time"
        yield Evidence(text=text, value=100 * share, unit="%", limit=limit, sense="healthy_to")


def _problem_evidence(view: View, server: NetworkMount, link: Link | None) -> Iterator[Evidence]:
    """What is slow, the server first."""
    where = f"{server.name} ({server.file_system})"
    delivers = f"{where} delivers {moved(server.read)}, "
    rtt, queue = server.rtt_s, server.queue_s
    if rtt is not None and view.above(rtt, "network-fs-bound.rtt_s"):
        limit = 1000 * view.limit("network-fs-bound.rtt_s")
        text, delivers = f"{delivers}{1000 * rtt:.0f} ms per read", ""
        yield Evidence(text=text, value=1000 * rtt, unit="ms", limit=limit, sense="healthy_to")
    if queue is not None and queue >= (rtt or 0.0) and view.above(queue, "network-fs-bound.queue_s"):
        limit = 1000 * view.limit("network-fs-bound.queue_s")
        text = f"{delivers}requests queue {1000 * queue:.0f} ms on this host before transmission"
        yield Evidence(text=text, value=1000 * queue, unit="ms", limit=limit, sense="healthy_to")
    if server.resent is not None and view.above(server.resent, "network-fs-bound.resent_per_s"):
        limit = view.limit("network-fs-bound.resent_per_s")
        yield Evidence(
            text=f"{where} retransmits {server.resent:.1f} requests/s",
            value=server.resent,
            unit="1/s",
            limit=limit,
            sense="healthy_to",
        )
    if link is not None:
        yield _of_link(view, link)


def _full_link(view: View) -> Link | None:
    link = sources.link(view)
    return link if link is not None and view.above(link.receive / link.speed, "network-fs-bound.link") else None


def _of_link(view: View, link: Link) -> Evidence:
    part = 100 * link.receive / link.speed
    text = f"{link.name} receives {part:.0f} % of {8 * link.speed / 1e9:.0f} Gb/s"
    limit = 100 * view.limit("network-fs-bound.link")
    return Evidence(text=text, value=part, unit="%", limit=limit, sense="flagged_from")


def _server_steps(view: View, server: NetworkMount | None, mounted: bool) -> tuple[Step, ...]:
    """`mounted`: files are read; streams already use shards."""
    steps = [*advice.staged(view, server)]
    if server is not None and server.file_system.startswith("nfs"):
        device, name = quote(server.device), quote(server.name)
        # all mounts of a server share the first one's connections, and it is not mounted twice at the same place
        more = Step(
            text="Remount with more connections and larger reads, once no process uses any mount of this server",
            command=f"sudo umount {name} && sudo mount -o nconnect=8,rsize=1048576 {device} {name}",
            needs_root=True,
        )
        keep = Step(text="Cache reads on the client: mount option fsc, with cachefilesd running")
        steps += [more, keep]
    return (*steps, *((advice.SHARDS,) if mounted else ()), advice.SMALLER, *(advice.cache(view) if mounted else ()))
