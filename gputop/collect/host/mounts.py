"""File systems that hold data: local disks, NFS, Lustre, FUSE; their size, and what NFS and Lustre move."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import inf
from typing import NamedTuple

from gputop.collect import filesystems
from gputop.collect.blocking_reads import BackgroundReader, PendingAnswers
from gputop.collect.filesystems import Mounted, Size, size_of, unescape
from gputop.collect.kernel_files import Kernel, reason
from gputop.collect.rates import Growth, Ledger, total
from gputop.model import Host, Missing, Mount
from gputop.safe.text import clean

NFS = frozenset({"nfs", "nfs4"})  # of clients: `nfsd`, which a server has too, holds no data
_DEVICE = re.compile(rb"device (.*) mounted on (.*) with fstype (\S+)(?: statvers=\S+)?")
_READ_BYTES, _WRITE_BYTES = 4, 5  # of `bytes:`, the ones the server was asked for: the cache's are left out
_OPERATIONS, _SENT, _QUEUE_MS, _RTT_MS = 0, 1, 5, 6  # of each line of per-op statistics
_MILLISECOND = 0.001


class NfsTraffic(NamedTuple):
    """The rates of one NFS mount."""

    read_bytes_per_s: float | None
    write_bytes_per_s: float | None
    reads_per_s: float | None
    read_rtt_s: float | None
    read_queue_s: float | None
    retransmits_per_s: float | None


class Counts(NamedTuple):
    """The counters of one NFS mount."""

    read_bytes: int
    write_bytes: int
    reads: int
    read_queue_ms: int
    read_rtt_ms: int
    retransmits: int


class Nfs:
    """The last sample of the NFS mounts of this mount namespace."""

    def __init__(self) -> None:
        self._counters: Ledger[str] = Ledger()

    def traffic(self, now_s: float, mountstats: bytes) -> dict[str, NfsTraffic]:
        """Rates since the last sample, by mount path."""
        grown = self._counters.grown(now_s, dict(nfs_counts(mountstats)))
        return {path: _traffic(growth) for path, growth in grown.items()}


def nfs_counts(mountstats: bytes) -> Iterator[tuple[str, Counts]]:
    """The counters of every NFS mount, by its path; a part of the text that is not as documented is left out."""
    for part in re.split(rb"^(?=device )", mountstats, flags=re.MULTILINE):
        head, _, body = part.partition(b"\n")
        device = _DEVICE.fullmatch(head)
        if device and device[3].decode("ascii", "replace") in NFS:
            try:
                yield unescape(device[2]), _nfs_counts(body)
            except (ValueError, IndexError, KeyError):
                continue


def _nfs_counts(body: bytes) -> Counts:
    rows: dict[bytes, list[int]] = {}
    general, _, operations = body.partition(b"per-op statistics")
    for line in operations.splitlines():
        name, colon, numbers = line.strip().partition(b":")
        if colon:
            rows[name] = [int(number) for number in numbers.split()]
    bytes_line = next((line for line in general.splitlines() if line.lstrip().startswith(b"bytes:")), b"")
    moved = [int(number) for number in bytes_line.split()[1:]]
    read = rows[b"READ"]
    return Counts(
        read_bytes=moved[_READ_BYTES],
        write_bytes=moved[_WRITE_BYTES],
        reads=read[_OPERATIONS],
        read_queue_ms=read[_QUEUE_MS],
        read_rtt_ms=read[_RTT_MS],
        retransmits=sum(max(0, row[_SENT] - row[_OPERATIONS]) for row in rows.values()),
    )


def _traffic(growth: Growth) -> NfsTraffic:
    read_bytes, write_bytes, reads, queue, rtt, retransmits = range(len(Counts._fields))
    rtt_ms, queue_ms = growth.mean(rtt, reads), growth.mean(queue, reads)
    return NfsTraffic(
        read_bytes_per_s=growth.per_s(read_bytes),
        write_bytes_per_s=growth.per_s(write_bytes),
        reads_per_s=growth.per_s(reads),
        read_rtt_s=None if rtt_ms is None else rtt_ms * _MILLISECOND,
        read_queue_s=None if queue_ms is None else queue_ms * _MILLISECOND,
        retransmits_per_s=growth.per_s(retransmits),
    )


_EVERY_S = 5.0
_MANY, _MORE_RARELY_S = 64, 20.0  # targets: the kernel adds up each one's statistics over all CPUs
_LAYERS = ("osc", "mdc")  # object servers; metadata servers, which keep small files
_TARGET = re.compile(r"(.+)-(?:OST|MDT)[0-9a-f]{4}-(?:osc|mdc)-[0-9a-f]+")  # scratch-OST000a-osc-ffff9d0c5e3b7800
_ROW = re.compile(rb"^(read_bytes|write_bytes|ost_read) +(\d+) samples \[\w+\] \d+ \d+ (\d+)", re.MULTILINE)
_LUSTRE_READ_BYTES, _LUSTRE_WRITE_BYTES, _READS, _READ_US = range(4)
_MICROSECOND = 1e-6


class _Target(NamedTuple):
    """One server's part of a file system."""

    file_system: str
    in_proc: bool  # else below /sys, where newer versions show it to root only
    file: str

    def text(self, kernel: Kernel) -> bytes:
        return kernel.proc(self.file) if self.in_proc else kernel.sys(self.file)


class Lustre(BackgroundReader):
    """The last sample of the targets of all mounted Lustre file systems; a reader beside that of the mounts.

    Its files are the file system's own code, which may hang with a server.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self._counters: Ledger[_Target] = Ledger()
        self._traffic: dict[str, NfsTraffic] = {}
        self._next_s = -inf

    def traffic(self, now_s: float) -> dict[str, NfsTraffic]:
        """Rates by the name of the file system, as of the last 5 s; nothing where they are not for us to read."""
        return {} if self.late(now_s) else self._traffic

    def look(self, now_s: float) -> None:
        """Look again when it is time."""
        if now_s < self._next_s:
            return
        table = {target: _lustre_counts(text) for target, text in self._texts().items()}
        self._next_s = now_s + (_MORE_RARELY_S if len(table) > _MANY else _EVERY_S)
        grown = self._counters.grown(now_s, table)
        self._traffic = {
            name: _sum([grown.get(target) for target in table if target.file_system == name])
            for name in {target.file_system for target in table}
        }

    def _texts(self) -> dict[_Target, bytes]:
        """Of the file systems of which every target can be read: a sum without one would be wrong."""
        texts, hidden = {}, set()
        for target in self._targets():
            try:
                texts[target] = target.text(self._kernel)
            except OSError:
                hidden.add(target.file_system)
        return {target: text for target, text in texts.items() if target.file_system not in hidden}

    def _targets(self) -> Iterator[_Target]:
        for layer in _LAYERS:
            for in_proc, folder, names in (
                (True, f"fs/lustre/{layer}", self._kernel.proc_names),
                (False, f"kernel/debug/lustre/{layer}", self._kernel.names),
            ):
                for name in names(folder):
                    if match := _TARGET.fullmatch(name):
                        yield _Target(match[1], in_proc, f"{folder}/{name}/stats")


def file_system_of(source: str) -> str:
    """The name of the file system in what was mounted: `10.0.0.1@o2ib:/scratch/projects` is scratch."""
    return source.rpartition(":/")[2].partition("/")[0]


def _lustre_counts(text: bytes) -> tuple[int, int, int, int]:
    """Bytes read and written, reads, and the microseconds they took; a row is there after its first event."""
    rows = {name: (int(count), int(summed)) for name, count, summed in _ROW.findall(text)}
    none = (0, 0)
    return (rows.get(b"read_bytes", none)[1], rows.get(b"write_bytes", none)[1], *rows.get(b"ost_read", none))


def _sum(grown: Iterable[Growth | None]) -> NfsTraffic:
    parts = list(grown)
    known = [growth for growth in parts if growth is not None]
    if len(known) < len(parts):
        return NfsTraffic(None, None, None, None, None, None)
    reads, waited_us = total(growth.by[_READS] for growth in known), total(growth.by[_READ_US] for growth in known)
    return NfsTraffic(
        read_bytes_per_s=total(growth.per_s(_LUSTRE_READ_BYTES) for growth in known),
        write_bytes_per_s=total(growth.per_s(_LUSTRE_WRITE_BYTES) for growth in known),
        reads_per_s=total(growth.per_s(_READS) for growth in known),
        read_rtt_s=waited_us / reads * _MICROSECOND if reads and waited_us is not None else None,
        read_queue_s=None,
        retransmits_per_s=None,
    )


LOCAL = frozenset({
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "jfs", "msdos", "ntfs", "ntfs3",
    "ocfs2", "reiserfs", "ufs", "vfat", "xfs", "zfs",
})  # fmt: skip
NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fhgfs", "fuse", "glusterfs", "gpfs", "lustre", "orangefs", "panfs", "pvfs2",
    "smb3", "virtiofs", "wekafs", *NFS,
})  # fmt: skip
_FUSE_NOISE = frozenset({"fuse.fuse-overlayfs", "fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "fuse.snapfuse"})
# where systems and container engines mount what no training reads
_NOISE = re.compile(r"/(boot|dev|etc|proc|run|snap|sys|var/lib/(containers|docker|kubelet|snapd))(/|$)")
_MOUNTS_EVERY_S = 10.0
_FOLDERS_EVERY_S = 60.0
_NO_TRAFFIC = NfsTraffic(None, None, None, None, None, None)


class Mounts:
    """The mounts of our own namespace. None is asked on this thread: its server, disk or FUSE program may be dead."""

    fills = (
        "mounts",
        "mount.total_bytes",
        "mount.free_bytes",
        "mount.read_bytes_per_s",
        "mount.write_bytes_per_s",
        "mount.reads_per_s",
        "mount.read_rtt_s",
        "mount.read_queue_s",
        "mount.retransmits_per_s",
    )
    every_s = 0.0

    def __init__(
        self,
        kernel: Kernel,
        lustre: Lustre | None = None,
        sizes: PendingAnswers[Size] | None = None,
        folders: PendingAnswers[bool] | None = None,
    ) -> None:
        self._kernel = kernel
        self._sizes = sizes or PendingAnswers(size_of)
        self._folders = folders or PendingAnswers(is_folder, every_s=_FOLDERS_EVERY_S)
        self._nfs, self._lustre = Nfs(), lustre or Lustre(kernel)
        self._mounts: tuple[Mounted, ...] = ()
        self._looked_s = -inf

    def read(self, now_s: float) -> Host:
        """Sizes as of the last 30 s, rates of NFS and Lustre since the last sample."""
        if now_s - self._looked_s >= _MOUNTS_EVERY_S:
            self._mounts = self._found(now_s)
            self._sizes.keep(frozenset(mount.path for mount in self._mounts))
            self._looked_s = now_s
        self._sizes.ask([mount.path for mount in self._mounts], now_s)
        traffic = self._traffic(now_s)
        sizes = {mount.path: self._sizes.answer(mount.path, now_s) for mount in self._mounts}
        return Host(
            mounts=tuple(_mount(mount, sizes[mount.path], traffic.get(mount.path)) for mount in self._mounts),
            missing=tuple(
                _missing(mount, error)
                for mount in self._mounts
                if (error := self._trouble(mount, sizes[mount.path], now_s))
            ),
        )

    def hang(self, now_s: float) -> list[tuple[str, float]]:
        """Paths of mounts that do not answer, and since when."""
        return self._sizes.hang(now_s)

    def _found(self, now_s: float) -> tuple[Mounted, ...]:
        mounts = tuple(filesystems.parse_mountinfo(self._kernel.proc("self/mountinfo")))
        asked: list[str] = []

        def note(path: str) -> bool:
            asked.append(path)
            return False

        data_mounts(mounts, note)
        self._folders.keep(frozenset(asked))
        self._folders.ask(asked, now_s)
        return data_mounts(mounts, lambda path: self._folders.answer(path, now_s) is not False)

    def _trouble(self, mount: Mounted, size: Size | OSError | None, now_s: float) -> OSError | None:
        if isinstance(size, OSError):
            return size
        stale = mount.kind == "lustre" and self._lustre.late(now_s)
        return TimeoutError(mount.path) if stale else None

    def _traffic(self, now_s: float) -> dict[str, NfsTraffic]:
        """Of NFS and Lustre, by path; others do not say."""
        found: dict[str, NfsTraffic] = {}
        if any(mount.kind in NFS for mount in self._mounts):
            with suppress(OSError):
                found |= self._nfs.traffic(now_s, self._kernel.proc("self/mountstats"))
        if lustre := [mount for mount in self._mounts if mount.kind == "lustre"]:
            traffic = self._lustre.traffic(now_s)
            known = ((mount.path, traffic.get(file_system_of(mount.source))) for mount in lustre)
            found |= {path: rates for path, rates in known if rates}
        return found


def is_network(mount: Mounted) -> bool:
    """Whether its data lie behind a server or a FUSE program, which may hang."""
    return mount.kind in NETWORK or mount.kind.startswith("fuse.")


def is_folder(path: str) -> bool:
    """Whether a mount is none of the single files that container engines mount, such as the driver's programs."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return True  # it is unknown


def data_mounts(mounts: Iterable[Mounted], folder: Callable[[str], bool] = is_folder) -> tuple[Mounted, ...]:
    """The mounts worth showing, by path: each file system once, where most of it is seen, and always `/`.

    `folder` says of the path of a local file system whether it is one.
    """
    top = {mount.path: mount for mount in mounts}  # what is mounted last on a path hides the rest
    served = tuple(f"{mount.path}/" for mount in top.values() if is_network(mount))
    best: dict[str, Mounted] = {}
    for mount in sorted(filter(_may_hold_data, top.values()), key=_rank):
        # the way to what is mounted below a server's leads through that server, which may be dead
        if mount.device in best:
            continue
        if mount.path == "/" or is_network(mount) or mount.path.startswith(served) or folder(mount.path):
            best[mount.device] = mount
    return tuple(sorted(best.values(), key=lambda mount: mount.path))


def _may_hold_data(mount: Mounted) -> bool:
    if mount.path == "/":
        return True
    if mount.kind in _FUSE_NOISE or _NOISE.match(mount.path):
        return False
    return is_network(mount) or mount.kind in LOCAL


def _rank(mount: Mounted) -> tuple[bool, int, int]:
    return mount.path != "/", len(mount.root), len(mount.path)


def _mount(mount: Mounted, size: Size | OSError | None, traffic: NfsTraffic | None) -> Mount:
    known = size if isinstance(size, Size) else None
    rates = traffic or _NO_TRAFFIC
    return Mount(
        path=clean(mount.path),
        device=clean(mount.source),
        file_system=clean(mount.kind),
        network=is_network(mount),
        total_bytes=known.total if known else None,
        free_bytes=known.free if known else None,
        **rates._asdict(),
    )


def _missing(mount: Mounted, error: OSError) -> Missing:
    metric = f"mount:{clean(mount.path)}"
    if isinstance(error, TimeoutError):
        peer = "server" if is_network(mount) else "disk or FUSE program"
        return Missing(metric=metric, reason="stale", unlock=f"its {peer} does not answer")
    return Missing(metric=metric, reason=reason(error))
