"""What the kernel functions that threads sleep in (`wchan`) say about their waits, over half a minute."""

from __future__ import annotations

from collections import Counter, deque
from enum import Enum
from functools import lru_cache

from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Process, Role

WINDOW_S = 30.0
_LEAST_SAMPLES = 5  # samples needed for a meaningful share
_NOTES = "wchan"  # key of the notes; no rule has this name


class Wait(Enum):
    """What a thread waits for in the kernel; file systems by their common names."""

    FUSE = "FUSE"
    NFS = "NFS"
    SMB = "SMB"
    CEPH = "Ceph"
    LUSTRE = "Lustre"
    NINE_P = "9p"
    AFS = "AFS"
    BEEGFS = "BeeGFS"
    ORANGEFS = "OrangeFS"
    PAGE = "a page from storage"  # of any file system, network or local
    SOCKET = "a socket"
    PIPE = "a pipe"
    CHILD = "a child process"


# prefixes of kernel functions for each, as in the kernel's source
_FUNCTIONS: dict[Wait, tuple[str, ...]] = {
    Wait.FUSE: ("request_wait_answer", "fuse_", "__fuse_", "virtio_fs_"),
    Wait.NFS: ("nfs_", "nfs3_", "nfs4_", "rpc_", "__rpc_", "xprt_"),
    Wait.SMB: ("cifs_", "smb2_", "smb3_", "smbd_", "compound_send_recv", "wait_for_response", "wait_for_free_credits"),
    Wait.CEPH: ("ceph_", "__ceph_", "netfs_"),
    Wait.LUSTRE: ("ptlrpc_", "cl_sync_io_wait", "cl_io_", "cl_lock_", "ldlm_", "osc_", "lov_", "vvp_", "ll_file_"),
    Wait.NINE_P: ("p9_", "v9fs_"),
    Wait.AFS: ("afs_", "rxrpc_"),
    Wait.BEEGFS: ("FhgfsOps", "beegfs_"),
    Wait.ORANGEFS: ("orangefs_", "wait_for_matching_downcall"),
    Wait.PAGE: (
        "folio_wait_", "wait_on_page_", "__lock_page", "__folio_lock", "io_schedule", "filemap_", "blkdev_",
        "submit_bio_wait", "iomap_dio", "do_blockdev_direct_IO",
    ),
    Wait.SOCKET: (
        "sk_wait_data", "tcp_recvmsg", "__skb_wait_for_more_packets", "unix_stream_", "unix_dgram_", "inet_csk_accept",
        "inet_stream_connect",
    ),
    Wait.PIPE: ("pipe_read", "pipe_wait", "anon_pipe_read", "fifo_"),
    Wait.CHILD: ("do_wait", "kernel_wait4"),
}  # fmt: skip
_IDLE_DAEMON = "fuse_dev_"  # an idle FUSE daemon
# prefixes of file system types in /proc/mounts whose clients sleep in these functions
MOUNTED_AS: dict[Wait, tuple[str, ...]] = {
    Wait.FUSE: ("fuse", "virtiofs", "glusterfs"),
    Wait.NFS: ("nfs",),
    Wait.SMB: ("cifs", "smb"),
    Wait.CEPH: ("ceph",),
    Wait.LUSTRE: ("lustre",),
    Wait.NINE_P: ("9p",),
    Wait.AFS: ("afs",),
    Wait.BEEGFS: ("beegfs", "fhgfs"),
    Wait.ORANGEFS: ("orangefs", "pvfs2"),
}


@lru_cache(maxsize=1024)
def wait_of(function: str | None) -> Wait | None:
    """What a thread waits for in this kernel function; None if it says nothing."""
    if not function or function.startswith(_IDLE_DAEMON):
        return None
    return next((one for one, names in _FUNCTIONS.items() if function.startswith(names)), None)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class SleepingThreads:
    """Where the reading threads sleep: shares of samples (0-1); empty if not visible, or with too few samples."""

    shares: dict[Wait, float]
    functions: dict[Wait, str]  # the most frequent function of each
    seen: bool  # whether any function is visible at all

    def most_frequent(self, *of: Wait) -> tuple[Wait, float] | None:
        """The most frequent of these waits, and its share of samples."""
        known = [(self.shares[one], one) for one in of if self.shares.get(one)]
        if not known:
            return None
        share, one = max(known, key=lambda pair: pair[0])
        return one, share


_Sample = tuple[float, int, Counter[str]]  # (time, number of processes, waits of those asleep)


def sleeping_threads(view: View, trainer: Trainer) -> SleepingThreads:
    """Sleep states of its loaders, or of its main thread if there are none. Call it at each evaluation."""
    return view.cached(("asleep", trainer.identity), lambda: _sleep_shares(view, trainer))


def _sleep_shares(view: View, trainer: Trainer) -> SleepingThreads:
    samples: deque[_Sample] = view.notes(trainer, of=_NOTES).setdefault("samples", deque())
    now_s = view.frame.mono_s
    readers: list[Process] = [one for one in trainer.tree if one.role is Role.LOADER] or [trainer.process]
    samples.append((now_s, len(readers), Counter(one.waiting_in for one in readers if one.waiting_in)))
    while samples[0][0] < now_s - min(WINDOW_S, max(1.0, trainer.phase_s)):
        samples.popleft()
    seen, functions = sum(count for _, count, _ in samples), sum((found for _, _, found in samples), Counter[str]())
    if len(samples) < _LEAST_SAMPLES or not seen:
        return SleepingThreads(shares={}, functions={}, seen=False)
    shares: Counter[Wait] = Counter()
    most: dict[Wait, str] = {}
    for function, count in functions.most_common():
        if (one := wait_of(function)) is not None:
            shares[one] += count
            most.setdefault(one, function)
    return SleepingThreads(
        shares={one: count / seen for one, count in shares.items()}, functions=most, seen=bool(functions)
    )
