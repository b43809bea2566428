"""A rule about data that come from a file server, or through a file system that behaves like one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from shlex import quote

from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import busy, cores, waiting
from gputop.diagnose.storage import advice, latency, sources
from gputop.diagnose.storage.latency import Latency
from gputop.diagnose.storage.signs import blocked, idles, moved, remember, served, waiters
from gputop.diagnose.storage.sources import Link, Server
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View


@rule(
    "network-fs-bound",
    "Does a file server starve the GPUs?",
    level=Level.CAUSE,
    state="input wait",
    short="WAIT",
    confirmed_by=("waits-for-data", "input-bound"),
    instead_of=("io-bound",),
    number="R25",
    rows=(23,),
    needs=("busy_percent", "cpu_percent", "allowed_cpus"),
    partly=("read_chars_per_s",),
)
def network_fs_bound(view: View) -> Iterator[Finding]:
    """GPU and CPU have little to do, the job is who reads from a file server, and that or the way to it is slow."""
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "cores", "allowed") or not idles(view, trainer):
            continue
        slow, severity = latency.latency(view, trainer), view.by_share(trainer.lost)
        why = _served(view, trainer)
        if not why and slow is not None and severity is not None:
            yield _slow(view, trainer, slow, severity)
            continue
        if not why and _reads_there(view) and not view.knows(trainer, "read_chars"):
            continue
        if why and severity is not None:
            remember(view, trainer, why)
            served(view, trainer, yes=True)
            server = sources.server(view)
            server = server if server and _from(view, trainer, server) else None
            mounted = server is not None or _from_mounts(view, trainer)
            unnamed = _unnamed(slow) if mounted else "data that come over the network"
            yield view.found(
                trainer,
                severity if mounted or severity != "crit" else "warn",
                f"waits for {server.name if server else unnamed}",
                evidence=(*why, busy(view, trainer), cores(view, trainer, "storage.saturation")),
                steps=view.once(("steps of a file server", server, mounted), partial(_steps, view, server, mounted)),
                confidence=view.confidence(0.75 if mounted else 0.6, blocked(view, trainer), trainer.read_chars),
                lost_share=trainer.lost,
            )


def _unnamed(slow: Latency | None) -> str:
    """A file system that counts nothing: by its path where its client is seen to keep readers waiting."""
    return slow.name if slow is not None and slow.wait is not None else "a network file system"


def _slow(view: View, trainer: Trainer, slow: Latency, severity: Severity) -> Finding:
    """Each read takes long, though neither the link nor a counter of the file system says so."""
    why = tuple(latency.evidence(view, trainer, slow))
    remember(view, trainer, why)
    served(view, trainer, yes=True)
    sure = slow.wait is not None
    return view.found(
        trainer,
        severity if sure or severity != "crit" else "warn",
        f"waits for {slow.name}: latency-bound reads",
        evidence=(*why, busy(view, trainer), cores(view, trainer, "storage.saturation")),
        steps=tuple(latency.steps(view, trainer, slow)),
        confidence=view.confidence(0.75 if sure and slow.mounts else 0.6, trainer.read_chars),
        lost_share=trainer.lost,
    )


def _served(view: View, trainer: Trainer) -> tuple[Evidence, ...]:
    """Why a file server is what an idle trainer waits for; nothing where it is not."""
    server, link = sources.server(view), _full_link(view)
    if server is not None and _from(view, trainer, server):
        troubles = tuple(_troubles(view, server, link))
        return (*troubles, *_waiting(view, trainer)) if troubles and _waits(view, trainer, server) else ()
    if link is None or not sources.silent_mounts(view) or not _waits(view, trainer, None):
        return ()
    chars = sources.job_chars(view, trainer)
    if chars is None or not view.above(chars / link.receive, "network-fs-bound.share"):
        return ()
    mounts = ", ".join(f"{one.path} ({one.file_system})" for one in sources.silent_mounts(view)[:2])
    if _from_mounts(view, trainer):
        chars = sources.job_takes(view, trainer) or chars
        text = f"it reads {moved(chars)} from {mounts}, which tells no more"
    else:
        text = f"its data come over {link.name}, from a file server or an object store; {mounts} does not tell"
    return (Evidence(text=text, value=chars, unit="B/s"), _of_link(view, link), *_waiting(view, trainer))


def _from_mounts(view: View, trainer: Trainer) -> bool:
    """Whether what comes in is from mounts that do not count: it reads so much that nobody sends it through a pipe.

    A program such as curl, which it has started, gets data from anywhere, and hands them over that way.
    """
    link, takes = sources.link(view), sources.job_takes(view, trainer)
    return link is not None and takes is not None and view.above(takes / link.receive, "network-fs-bound.share")


def _reads_there(view: View) -> bool:
    server = sources.server(view)
    return server is not None and view.above(server.read, "network-fs-bound.least_bytes_per_s")


def _from(view: View, trainer: Trainer, server: Server) -> bool:
    """Whether it is this job that reads from there, and more than from any disk."""
    if not server.read or not view.above(server.read, "network-fs-bound.least_bytes_per_s"):
        return False
    chars = sources.job_takes(view, trainer)
    if chars is None:
        return _nothing_else(view, trainer)
    local = sources.drive(view)
    mine = sources.job_reads(view, trainer) or 0.0
    elsewhere = local is not None and (local.read or 0.0) > server.read and mine >= 0.5 * (local.read or 0.0)
    return view.above(chars / server.read, "network-fs-bound.share") and not elsewhere


def _nothing_else(view: View, trainer: Trainer) -> bool:
    """Where what it reads is hidden: whether it is blocked, and there is nothing else to be blocked by."""
    disk = sources.drive(view)
    if disk is None or disk.read is None or disk.busy is None or sources.silent_mounts(view):
        return False
    reads, busy_percent = view.limit("starved.reads_bytes_per_s"), view.limit("storage.best_busy_percent")
    rests = disk.read < reads and disk.busy < busy_percent
    return rests and view.above(blocked(view, trainer), "storage.blocked")


def _waits(view: View, trainer: Trainer, server: Server | None) -> bool:
    """Whether who reads is blocked, or has no work for a CPU: all but NFS let it wait in a state like any other."""
    if view.above(blocked(view, trainer), "storage.blocked"):
        return True
    share = trainer.loader_cpu if trainer.loaders else trainer.main
    ready = waiting(trainer.loader_wait if trainer.loaders else trainer.main_wait, share)
    asleep = view.below(share, "network-fs-bound.cpu") and ready < view.limit("network-fs-bound.run_wait")
    return asleep and not (server is not None and server.file_system.startswith("nfs"))


def _waiting(view: View, trainer: Trainer) -> Iterator[Evidence]:
    share = blocked(view, trainer)
    if share is not None:
        limit = 100 * view.limit("storage.blocked")
        text = f"{waiters(trainer)} for storage {100 * share:.0f} % of the time"
        yield Evidence(text=text, value=100 * share, unit="%", limit=limit)


def _troubles(view: View, server: Server, link: Link | None) -> Iterator[Evidence]:
    """What is slow, the server first."""
    where = f"{server.name} ({server.file_system})"
    rtt, queue = server.rtt_s, server.queue_s
    if rtt is not None and view.above(rtt, "network-fs-bound.rtt_s"):
        limit = 1000 * view.limit("network-fs-bound.rtt_s")
        text = f"{where} gives {moved(server.read)}, a read takes {1000 * rtt:.0f} ms"
        yield Evidence(text=text, value=1000 * rtt, unit="ms", limit=limit)
    if queue is not None and queue >= (rtt or 0.0) and view.above(queue, "network-fs-bound.queue_s"):
        limit = 1000 * view.limit("network-fs-bound.queue_s")
        text = f"{where} gives {moved(server.read)}, reads wait {1000 * queue:.0f} ms before they are sent"
        yield Evidence(text=text, value=1000 * queue, unit="ms", limit=limit)
    if server.resent is not None and view.above(server.resent, "network-fs-bound.resent_per_s"):
        limit = view.limit("network-fs-bound.resent_per_s")
        yield Evidence(
            text=f"{server.resent:.1f} requests to {where} a second are sent again",
            value=server.resent,
            unit="1/s",
            limit=limit,
        )
    if link is not None:
        yield _of_link(view, link)


def _full_link(view: View) -> Link | None:
    link = sources.link(view)
    return link if link is not None and view.above(link.receive / link.speed, "network-fs-bound.link") else None


def _of_link(view: View, link: Link) -> Evidence:
    part = 100 * link.receive / link.speed
    text = f"{link.name} receives {part:.0f} % of its {8 * link.speed / 1e9:.0f} Gb/s"
    return Evidence(text=text, value=part, unit="%", limit=100 * view.limit("network-fs-bound.link"))


def _steps(view: View, server: Server | None, mounted: bool) -> tuple[Step, ...]:
    """`mounted`: whether files are what is read; streams have their shards already."""
    steps = [*advice.staged(view, server)]
    if server is not None and server.file_system.startswith("nfs"):
        device, name = quote(server.device), quote(server.name)
        # all mounts of a server share the connections of the first, and it is not mounted twice in the same place
        more = Step(
            text="more connections to the server, and larger reads: mount it anew once nobody uses any mount of it",
            command=f"sudo umount {name} && sudo mount -o nconnect=8,rsize=1048576 {device} {name}",
            needs_root=True,
        )
        keep = Step(text="let the client keep what it has read: the mount option fsc, with cachefilesd running")
        steps += [more, keep]
    return (*steps, *((advice.SHARDS,) if mounted else ()), advice.SMALLER, *(advice.cache(view) if mounted else ()))
