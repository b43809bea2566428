"""Mounts: those that hold data, each once; NFS rates; a dead server blocks nobody."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.collect import filesystems
from gputop.collect.blocking_reads import MOST, PendingAnswers
from gputop.collect.filesystems import Size
from gputop.collect.host.mounts import Mounts, data_mounts, nfs_counts
from gputop.collect.kernel_files import Kernel
from gputop.model import Missing
from tests.host_tree import Server, server
from tests.kernel_trees import write_tree

NFS_MOUNT = "80 27 0:55 / /data/sets\\040a rw,relatime shared:40 - nfs4 filer:/export/sets rw,vers=4.2\n"
MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device filer:/export/sets mounted on /data/sets\\040a with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys
\tage:\t86400
\tcaps:\tcaps=0xfffbc0bf,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27
\tbytes:\t500 600 0 0 104857600 2097152 25600 512
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 1 2 0 11 4242 4242 0 4242 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 1000 1003 0 160000 104857600 50 2000 2100 0
\t       WRITE: 20 22 0 2100000 3200 1 90 92 0
\t     GETATTR: 40 40 0 9000 9000 1 20 25 0

device /dev/sda1 mounted on / with fstype ext4
"""
HOST = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw
28 27 259:1 / /boot/efi rw - vfat /dev/nvme0n1p1 rw
29 27 0:22 / /dev/shm rw - tmpfs tmpfs rw
30 27 0:40 / /home rw - nfs4 filer:/home rw
31 27 0:41 / /lustre rw - lustre 10.0.0.1@o2ib:/fs rw
32 27 0:42 / /mnt/bucket rw - fuse.gcsfuse bucket rw
33 27 0:43 / /var/lib/lxcfs rw - fuse.lxcfs lxcfs rw
34 27 0:44 / /var/lib/docker/overlay2/ab/merged rw - overlay overlay rw,lowerdir=/x
35 27 259:3 / /scratch rw - xfs /dev/nvme1n1 rw
36 27 259:3 /alice /home/alice/scratch rw - xfs /dev/nvme1n1 rw
37 27 0:45 / /net rw - autofs /etc/auto.net rw
38 27 7:0 / /snap/core/1 ro - squashfs /dev/loop0 ro
"""
CONTAINER = """\
500 400 0:99 / / rw,relatime - overlay overlay rw,lowerdir=/x,upperdir=/y
501 500 0:100 / /proc rw - proc proc rw
502 500 259:2 /var/lib/docker/containers/ab/hosts /etc/hosts rw - ext4 /dev/nvme0n1p2 rw
503 500 259:2 /srv/datasets /datasets ro - ext4 /dev/nvme0n1p2 rw
504 500 0:101 / /dev/shm rw - tmpfs shm rw,size=65536k
"""
BTRFS = """\
27 1 0:30 /@ / rw - btrfs /dev/sda2 rw,subvol=/@
28 27 0:30 /@home /home rw - btrfs /dev/sda2 rw,subvol=/@home
"""
PART_AND_WHOLE = """\
27 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw
28 27 259:3 /alice /a rw - xfs /dev/nvme1n1 rw
29 27 259:3 / /mnt/scratch rw - xfs /dev/nvme1n1 rw
"""
OVERMOUNTED = """\
20 1 0:2 / / rw - rootfs rootfs rw
27 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw
28 27 0:40 / /data rw - nfs filer:/old rw
29 28 0:41 / /data rw - nfs filer:/new rw
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HOST, {"/": "ext4", "/home": "nfs4", "/lustre": "lustre", "/mnt/bucket": "fuse.gcsfuse", "/scratch": "xfs"}),
        (CONTAINER, {"/": "overlay", "/datasets": "ext4"}),
        (BTRFS, {"/": "btrfs"}),
        (PART_AND_WHOLE, {"/": "ext4", "/mnt/scratch": "xfs"}),
        (OVERMOUNTED, {"/": "ext4", "/data": "nfs"}),
    ],
    ids=["host", "container", "btrfs", "part and whole", "mounted over"],
)
def test_only_what_holds_data_each_once(text: str, expected: dict[str, str]) -> None:
    found = data_mounts(filesystems.parse_mountinfo(text.encode()))
    assert {mount.path: mount.kind for mount in found} == expected


def test_a_single_file_of_the_driver_is_not_where_the_data_are(tmp_path: Path) -> None:
    write_tree(tmp_path, {"smi": "", "datasets/a": ""})
    text = "".join(
        f"{number} 1 259:2 {root} {path} rw - ext4 /dev/nvme0n1p2 rw\n"
        for number, (root, path) in enumerate(
            (("/usr/bin/smi", tmp_path / "smi"), ("/srv/x/datasets", tmp_path / "datasets"))
        )
    )
    found = data_mounts(filesystems.parse_mountinfo(text.encode()))
    assert [mount.path for mount in found] == [str(tmp_path / "datasets")]
    assert data_mounts(filesystems.parse_mountinfo(text.split("\n")[0].encode())) == (), "and it is no mount of its own"


def test_what_is_mounted_last_is_what_is_seen() -> None:
    (_, data) = data_mounts(filesystems.parse_mountinfo(OVERMOUNTED.encode()))
    assert data.source == "filer:/new"


def test_the_way_to_a_mount_below_a_server_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "22 1 259:1 / / rw - ext4 /dev/a rw\n"
        "23 22 0:40 / /home rw - nfs4 filer:/home rw\n"
        "24 23 259:1 /scratch /home/u/scratch rw - ext4 /dev/a rw\n"
        "25 23 259:2 / /home/u/disk rw - xfs /dev/b rw\n"
        "26 22 259:3 / /local rw - xfs /dev/c rw\n"
    )
    asked: list[str] = []
    ask = os.stat
    monkeypatch.setattr(os, "stat", lambda path: asked.append(path) or ask("/"))
    found = data_mounts(filesystems.parse_mountinfo(text.encode()))
    monkeypatch.undo()
    assert [mount.path for mount in found] == ["/", "/home", "/home/u/disk", "/local"]
    assert asked == ["/local"]


def test_names_of_mounts_are_clean(tmp_path: Path) -> None:
    evil = "90 27 8:17 / /mnt/\\033]0;x\\007\\012y rw - xfs /dev/\x1b[2J rw\n"
    box = Server(tmp_path, {**server(), "proc/self/mountinfo": evil})
    (mount,) = box.look().mounts
    assert mount.path.isprintable()
    assert mount.device.isprintable()
    assert mount.path == "/mnt/␛]0;x␇·y"


def test_a_path_with_a_carriage_return_is_one_path() -> None:
    evil = b"91 27 0:60 / /home/eve/x\r92\\04027 rw - fuse.evil eve rw\n"
    assert [mount.path for mount in filesystems.parse_mountinfo(evil)] == ["/home/eve/x\r92 27"]


def test_nfs_rates_round_trips_and_retransmissions(tmp_path: Path) -> None:
    box = Server(tmp_path, {**server(), "proc/self/mountinfo": NFS_MOUNT, "proc/self/mountstats": MOUNTSTATS})
    (mount,) = box.look().mounts
    assert (mount.path, mount.device, mount.file_system, mount.network) == (
        "/data/sets a",
        "filer:/export/sets",
        "nfs4",
        True,
    )
    assert mount.read_bytes_per_s is None
    moved = MOUNTSTATS.replace("104857600 2097152 25600", "146800640 4194304 25600").replace(
        "READ: 1000 1003 0 160000 104857600 50 2000", "READ: 1040 1047 0 166400 146800640 90 2400"
    )
    host = box.look(2.0, self_mountstats=moved)
    (mount,) = host.mounts
    assert (mount.read_bytes_per_s, mount.write_bytes_per_s) == (20 << 20, 1 << 20)
    assert (mount.reads_per_s, mount.read_rtt_s, mount.read_queue_s, mount.retransmits_per_s) == (20, 0.01, 0.001, 2)
    # the sums of the host hold disks and NFS
    assert (host.read_bytes_per_s, host.write_bytes_per_s) == (20 << 20, 1 << 20)
    idle = box.look(1.0).mounts[0]
    assert (idle.read_bytes_per_s, idle.read_rtt_s) == (0, None)


SERVES = """\
device nfsd mounted on /proc/fs/nfsd with fstype nfsd
device sunrpc mounted on /run/rpc_pipefs with fstype rpc_pipefs
"""


def test_a_client_that_serves_nfs_too_has_its_rates_and_the_rest_of_the_host(tmp_path: Path) -> None:
    box = Server(tmp_path, {**server(), "proc/self/mountinfo": NFS_MOUNT, "proc/self/mountstats": SERVES + MOUNTSTATS})
    box.look()
    host = box.look(2.0)
    assert [(mount.path, mount.read_bytes_per_s) for mount in host.mounts] == [("/data/sets a", 0)]
    assert host.memory_total_bytes
    text = "device filer:/x mounted on /x with fstype nfs statvers=1.1\n\tage:\t1\n"
    assert dict(nfs_counts(text.encode())) == {}, "a part without counters is left out"


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_dead_file_server_blocks_nobody_and_is_asked_once(tmp_path: Path) -> None:
    answers, asked = threading.Event(), []

    def ask(path: str) -> Size:
        asked.append(path)
        answers.wait(30)
        return Size(1000, 400)

    write_tree(tmp_path, {"self/mountinfo": NFS_MOUNT})
    mounts = Mounts(Kernel(str(tmp_path)), sizes=PendingAnswers(ask))
    for now_s in (0.0, 1.0):  # at first it is only not known yet
        host = mounts.read(now_s)
        assert (host.mounts[0].total_bytes, host.missing) == (None, ())
    stale = Missing(metric="mount:/data/sets a", reason="stale", unlock="its server does not answer")
    for now_s in (2.0, 100.0, 4000.0):
        host = mounts.read(now_s)
        assert (host.mounts[0].total_bytes, host.missing) == (None, (stale,))
    assert asked == ["/data/sets a"]
    answers.set()
    until(lambda: mounts.read(4001.0).mounts[0].total_bytes == 1000)
    host = mounts.read(4001.0)
    assert (host.mounts[0].free_bytes, host.missing) == (400, ())


def test_a_network_mount_that_answers_is_asked_again_in_time(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(path: str) -> Size:
        asked.append(path)
        if len(asked) > 1:
            raise PermissionError(13, "Permission denied")
        return Size(10, 5)

    write_tree(tmp_path, {"self/mountinfo": NFS_MOUNT})
    mounts = Mounts(Kernel(str(tmp_path)), sizes=PendingAnswers(ask, every_s=30))
    until(lambda: mounts.read(0.0).mounts[0].total_bytes == 10)
    assert mounts.read(29.0).mounts[0].total_bytes == 10
    until(lambda: bool(mounts.read(31.0).missing))
    assert mounts.read(32.0).missing == (Missing(metric="mount:/data/sets a", reason="denied"),)
    assert len(asked) == 2


def test_p21_without_a_thread_a_size_is_unknown_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sizes = PendingAnswers(lambda path: Size(1, 1))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        sizes.ask(["/a"], 0.0)
    assert isinstance(sizes.answer("/a", 0.0), BlockingIOError)
    sizes.ask(["/a"], 31.0)
    until(lambda: sizes.answer("/a", 31.0) == Size(1, 1))


def test_a_mount_that_is_gone_is_forgotten() -> None:
    asked: list[str] = []

    def ask(path: str) -> Size:
        asked.append(path)
        return Size(1, 1)

    sizes = PendingAnswers(ask)
    for kept, times in ((["/a"], 1), ([], 1), (["/a"], 2)):
        sizes.ask(["/a"], 0.0)
        until(lambda: sizes.answer("/a", 0.0) is not None)
        assert len(asked) == times
        sizes.keep(kept)


def test_never_more_questions_wait_than_there_may_be_threads() -> None:
    answers, asked = threading.Event(), []

    def ask(path: str) -> Size:
        asked.append(path)
        answers.wait(30)
        return Size(1, 1)

    sizes, paths = PendingAnswers(ask), [f"/net/{number}" for number in range(2 * MOST)]
    for now_s in (0.0, 100.0, 200.0):
        sizes.ask(paths, now_s)
    assert len(asked) == MOST
    assert [path for path, _ in sizes.hang(200.0)] == paths[:MOST]
    assert all(isinstance(sizes.answer(path, 200.0), TimeoutError) for path in paths)
    answers.set()
    until(lambda: not sizes.hang(200.0))


def test_our_own_root_has_the_size_statvfs_says() -> None:
    (root,) = (mount for mount in Mounts(Kernel()).read(0.0).mounts if mount.path == "/")
    size = os.statvfs("/")
    assert root.total_bytes == size.f_blocks * size.f_frsize
