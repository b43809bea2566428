"""File systems that hold data: local disks, NFS, Lustre, FUSE; their size, and what NFS and Lustre move."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf

from gputop.collect import mountinfo
from gputop.collect.host.capacity import Size, size_of
from gputop.collect.host.lustre import Lustre, file_system_of
from gputop.collect.host.nfs import NFS, Nfs, Traffic
from gputop.collect.kernel import Kernel, reason
from gputop.collect.mountinfo import Mounted
from gputop.collect.questions import Questions
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
_FOLDERS_EVERY_S = 60.0
_NO_TRAFFIC = Traffic(None, None, None, None, None, None)


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
        sizes: Questions[Size] | None = None,
        folders: Questions[bool] | None = None,
    ) -> None:
        self._kernel = kernel
        self._sizes = sizes or Questions(size_of)
        self._folders = folders or Questions(is_folder, every_s=_FOLDERS_EVERY_S)
        self._nfs, self._lustre = Nfs(), lustre or Lustre(kernel)
        self._mounts: tuple[Mounted, ...] = ()
        self._looked_s = -inf

    def read(self, now_s: float) -> Host:
        """Sizes as of the last 30 s, rates of NFS and Lustre since the last look."""
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
        mounts = tuple(mountinfo.parse(self._kernel.proc("self/mountinfo")))
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


def is_network(mount: Mounted) -> bool:
    """Whether its data lie behind a server or a FUSE program, which may hang."""
    return mount.kind in NETWORK or mount.kind.startswith("fuse.")


def is_folder(path: str) -> bool:
    """Whether a mount is none of the single files that container engines mount, such as the driver's programs."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return True  # it cannot be told


def data_mounts(mounts: Iterable[Mounted], folder: Callable[[str], bool] = is_folder) -> tuple[Mounted, ...]:
    """The mounts worth showing, by path: each file system once, where most of it is seen, and always `/`.

    `folder` tells of the path of a local file system whether it is one.
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


def _missing(mount: Mounted, error: OSError) -> Missing:
    metric = f"mount:{clean(mount.path)}"
    if isinstance(error, TimeoutError):
        who = "server" if is_network(mount) else "disk or FUSE program"
        return Missing(metric=metric, reason="stale", unlock=f"its {who} does not answer")
    return Missing(metric=metric, reason=reason(error))
