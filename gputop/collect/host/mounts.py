"""File systems that hold data: local disks, NFS, Lustre, FUSE; their size, and what NFS and Lustre move."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from math import inf

from gputop.collect import mountinfo
from gputop.collect.host.capacity import Capacity, Size, size_of
from gputop.collect.host.lustre import Lustre, file_system_of
from gputop.collect.host.nfs import NFS, Nfs, Traffic
from gputop.collect.kernel import Kernel, reason
from gputop.collect.mountinfo import Mounted
from gputop.model import Host, Missing, Mount
from gputop.safe.text import clean

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
_NO_TRAFFIC = Traffic(None, None, None, None, None, None)


class Mounts:
    """The mounts of our own namespace. A network mount is never asked on this thread: its server may be gone."""

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

    def __init__(self, kernel: Kernel, capacity: Capacity | None = None) -> None:
        self._kernel = kernel
        self._capacity = capacity or Capacity()
        self._nfs, self._lustre = Nfs(), Lustre(kernel)
        self._mounts: tuple[Mounted, ...] = ()
        self._local: dict[str, Size | OSError] = {}
        self._looked_s = -inf

    def read(self, now_s: float) -> Host:
        """Sizes as of the last 10 to 30 s, rates of NFS and Lustre since the last look."""
        if now_s - self._looked_s >= _MOUNTS_EVERY_S:
            self._mounts = data_mounts(mountinfo.parse(self._kernel.proc("self/mountinfo")))
            self._local = {mount.path: _ask(mount.path) for mount in self._mounts if not is_network(mount)}
            self._capacity.keep(frozenset(mount.path for mount in self._mounts))
            self._looked_s = now_s
        traffic = self._traffic(now_s)
        sizes = {mount.path: self._size(mount, now_s) for mount in self._mounts}
        return Host(
            mounts=tuple(_mount(mount, sizes[mount.path], traffic.get(mount.path)) for mount in self._mounts),
            missing=tuple(_missing(path, size) for path, size in sizes.items() if isinstance(size, OSError)),
        )

    def _traffic(self, now_s: float) -> dict[str, Traffic]:
        """Of NFS and Lustre, by path; others do not say."""
        found: dict[str, Traffic] = {}
        if any(mount.kind in NFS for mount in self._mounts):
            with suppress(OSError):
                found |= self._nfs.traffic(now_s, self._kernel.proc("self/mountstats"))
        if lustre := [mount for mount in self._mounts if mount.kind == "lustre"]:
            traffic = self._lustre.traffic(now_s)
            known = ((mount.path, traffic.get(file_system_of(mount.source))) for mount in lustre)
            found |= {path: rates for path, rates in known if rates}
        return found

    def _size(self, mount: Mounted, now_s: float) -> Size | OSError | None:
        if is_network(mount):
            return self._capacity.size(mount.path, now_s)
        return self._local.get(mount.path)


def is_network(mount: Mounted) -> bool:
    """Whether its data lie behind a server or a FUSE program, which may hang."""
    return mount.kind in NETWORK or mount.kind.startswith("fuse.")


def data_mounts(mounts: Iterable[Mounted]) -> tuple[Mounted, ...]:
    """The mounts worth showing, by path: each file system once, where most of it is seen, and always `/`."""
    top = {mount.path: mount for mount in mounts}  # what is mounted last on a path hides the rest
    served = tuple(f"{mount.path}/" for mount in top.values() if is_network(mount))
    best: dict[str, Mounted] = {}
    for mount in sorted(filter(_may_hold_data, top.values()), key=_rank):
        # the way to what is mounted below a server's leads through that server, which may be dead
        if mount.device not in best and (mount.path.startswith(served) or _is_folder(mount)):
            best[mount.device] = mount
    return tuple(sorted(best.values(), key=lambda mount: mount.path))


def _may_hold_data(mount: Mounted) -> bool:
    if mount.path == "/":
        return True
    if mount.kind in _FUSE_NOISE or _NOISE.match(mount.path):
        return False
    return is_network(mount) or mount.kind in LOCAL


def _is_folder(mount: Mounted) -> bool:
    """Whether it is none of the single files that container engines mount, such as the driver's programs."""
    if mount.path == "/" or is_network(mount):
        return True
    try:
        return stat.S_ISDIR(os.stat(mount.path).st_mode)
    except OSError:
        return True  # it cannot be told


def _rank(mount: Mounted) -> tuple[bool, int, int]:
    return mount.path != "/", len(mount.root), len(mount.path)


def _ask(path: str) -> Size | OSError:
    try:
        return size_of(path)
    except OSError as error:
        return error


def _mount(mount: Mounted, size: Size | OSError | None, traffic: Traffic | None) -> Mount:
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


def _missing(path: str, error: OSError) -> Missing:
    if isinstance(error, TimeoutError):
        return Missing(metric=f"mount:{clean(path)}", reason="stale", unlock="its server does not answer")
    return Missing(metric=f"mount:{clean(path)}", reason=reason(error))
