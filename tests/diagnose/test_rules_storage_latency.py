"""File systems that count nothing: where readers sleep in the kernel names the mount, and says that reads take long."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.diagnose import Finding
from gputop.diagnose.wchan import MOUNTED_AS, Wait, wait_of
from gputop.model import Disk, Mount, Network
from tests.diagnose.test_rules_feed import changed, few
from tests.diagnose.test_rules_feed_unseen import unexplained
from tests.diagnose.test_rules_storage import HUNGRY, IDLE, SCRATCH
from tests.rule_cases import Machine, found

BUCKET = Mount(path="/mnt/bucket", device="s3fs", file_system="fuse.s3fs", network=True)
OTHER = Mount(path="/mnt/models", device="models", file_system="fuse.gcsfuse", network=True)
CEPH = Mount(path="/ceph", device="mon:/", file_system="ceph", network=True)
NFS = Mount(
    path="/data", device="nas:/data", file_system="nfs4", network=True, read_bytes_per_s=12e6, reads_per_s=400.0,
    read_rtt_s=0.006, read_queue_s=0.0005, retransmits_per_s=0.0,
)  # fmt: skip
LINK = Network(name="eth0", speed_bytes_per_s=3.125e9, receive_bytes_per_s=14e6)
REST = Disk(name="nvme0n1", read_bytes_per_s=1e4, reads_per_s=2.0, busy_percent=1.0, await_s=0.0001)


def sleeping(function: str | None, *mounts: Mount, loaders: int = 8, **changes: dict[str, Any]) -> Machine:
    """Readers that sleep there for most of the time, and read little; the link is far from full."""
    asleep = {
        "waiting_in": lambda t: function if int(t) % 10 < 8 else None,
        "cpu_percent": 8.0,
        "read_chars_per_s": 1.6e6,
        "read_calls_per_s": 12.0,
        "io_wait_percent": 0.0,
    }
    host = {"mounts": (*mounts, SCRATCH), "networks": (LINK,), "disks": (REST,), "read_bytes_per_s": 1e4}
    host["receive_bytes_per_s"] = 14e6
    own = {"waiting_in": "futex_do_wait"} if loaders else asleep
    machine = Machine(gpu=dict(HUNGRY), trainer={**IDLE, **own}, loader=asleep, host=host, loaders=loaders)
    return changed(machine, changes)


def told(machine: Machine) -> Finding | None:
    said = machine.verdict(100)
    primary = next((one for one in said.findings if one.primary), None)
    return primary if primary and "network-fs-bound" in (primary.rule, *primary.causes) else None


@pytest.mark.parametrize(
    ("machine", "headline"),
    [
        (sleeping("request_wait_answer", BUCKET), "I/O-bound, high read latency on /mnt/bucket"),
        (sleeping("request_wait_answer", BUCKET, loaders=0), "I/O-bound, high read latency on /mnt/bucket"),
        (sleeping("fuse_simple_request", BUCKET, CEPH), "I/O-bound, high read latency on /mnt/bucket"),
        (sleeping("__ceph_do_getattr", BUCKET, CEPH), "I/O-bound, high read latency on /ceph"),
        (sleeping("wait_for_response", replace(BUCKET, path="/smb", file_system="cifs")),
         "I/O-bound, high read latency on /smb"),
        (sleeping("p9_client_rpc", replace(BUCKET, path="/host", file_system="9p")),
         "I/O-bound, high read latency on /host"),
        (sleeping("request_wait_answer"), "I/O-bound, high read latency on FUSE file system"),  # in a container
        (sleeping("request_wait_answer", BUCKET, OTHER), "I/O-bound, high read latency on FUSE file system"),
        (sleeping("request_wait_answer", BUCKET, OTHER,
                  trainer={"command": ("python", "train.py", "--data=/mnt/bucket/imagenet")}),
         "I/O-bound, high read latency on /mnt/bucket"),
        # a round trip that is short enough for others, of who reads in turns
        (sleeping("rpc_wait_bit_killable", NFS, loader={"blocked_percent": 80.0}),
         "I/O-bound, high read latency on /data"),
        # pages of a file: no disk and no server that counts gives them
        (sleeping("folio_wait_bit_common", CEPH, loader={"blocked_percent": 75.0}),
         "I/O-bound, high read latency on /ceph"),
    ],
)  # fmt: skip
def test_the_mount_is_named_that_readers_sleep_for(machine: Machine, headline: str) -> None:
    finding = told(machine)
    assert finding is not None
    assert finding.headline == headline


@pytest.mark.parametrize(
    "machine",
    [
        sleeping("futex_do_wait", BUCKET),
        sleeping("fuse_dev_do_read", BUCKET),
        sleeping("request_wait_answer", BUCKET, gpu={"busy_percent": 85.0}),
        sleeping("request_wait_answer", BUCKET, loader={"waiting_in": lambda t: "request_wait_answer" * (t % 10 < 2)}),
        sleeping("folio_wait_bit_common", loader={"blocked_percent": 75.0}),  # nothing of the kind is mounted
        sleeping("folio_wait_bit_common", BUCKET, loader={"blocked_percent": 75.0, "read_chars_per_s": 0.0}),
        sleeping("folio_wait_bit_common", BUCKET, loader={"blocked_percent": 75.0},
                 host={"disks": (replace(REST, read_bytes_per_s=300e6, busy_percent=90.0),)}),
    ],
)  # fmt: skip
def test_it_is_not_named_for_less(machine: Machine) -> None:
    assert found(machine.verdict(100), "network-fs-bound") is None


def test_the_evidence_says_that_it_is_latency_and_the_steps_hide_it() -> None:
    finding = told(sleeping("request_wait_answer", BUCKET))
    assert finding is not None
    texts = [item.text for item in finding.evidence]
    assert texts[0] == "8 workers asleep in request_wait_answer (FUSE) 75 % of the time"
    assert texts[1] == "reads 13 MB/s from /mnt/bucket (fuse.s3fs), 133 kB per read"
    assert texts[2] == "about 62.5 ms per read, 96 reads/s, latency-bound"
    assert texts[3] == "eth0 receives 0 % of 25 Gb/s, bandwidth is not the limit"
    commands = [step.command for step in finding.steps]
    assert "num_workers=16" in (commands[0] or "")
    assert "rsync -a /mnt/bucket/DATASET/ /scratch/DATASET/" in commands
    assert "s3fs BUCKET /mnt/bucket -o use_cache=/scratch/cache" in commands


def test_where_readers_sleep_is_the_clue_of_a_cause_that_is_unknown() -> None:
    machine = unexplained(trainer={"waiting_in": "sk_wait_data"}, host={"receive_bytes_per_s": 1e6})
    finding = found(machine.verdict(150), "starved-cause-unknown")
    assert finding is not None
    clue = "main thread asleep in sk_wait_data (a socket) 100 % of the time"
    assert finding.headline == f"GPU starved, cause unknown; not ruled out: {clue}"
    assert finding.evidence[1].text == f"not ruled out: {clue}"
    assert found(few().verdict(150), "starved-cause-unknown") is None


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("request_wait_answer", Wait.FUSE), ("fuse_get_req", Wait.FUSE), ("fuse_dev_do_read", None),
        ("rpc_wait_bit_killable", Wait.NFS), ("nfs_wait_bit_killable", Wait.NFS), ("nfs4_do_close", Wait.NFS),
        ("cifs_readpages", Wait.SMB), ("wait_for_response", Wait.SMB), ("ceph_read_iter", Wait.CEPH),
        ("ptlrpc_set_wait", Wait.LUSTRE), ("cl_sync_io_wait", Wait.LUSTRE), ("p9_client_rpc", Wait.NINE_P),
        ("folio_wait_bit_common", Wait.PAGE), ("io_schedule", Wait.PAGE), ("sk_wait_data", Wait.SOCKET),
        ("pipe_read", Wait.PIPE), ("anon_pipe_read", Wait.PIPE), ("do_wait", Wait.CHILD),
        ("futex_wait_queue", None), ("futex_do_wait", None), ("poll_schedule_timeout", None), ("ep_poll", None),
        ("hrtimer_nanosleep", None), ("do_nanosleep", None), ("nv_ioctl", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_what_a_kernel_function_waits_for(function: str | None, kind: Wait | None) -> None:
    assert wait_of(function) is kind
    assert kind in MOUNTED_AS or kind in (None, Wait.PAGE, Wait.SOCKET, Wait.PIPE, Wait.CHILD)


def test_a_real_process_that_reads_a_pipe_sleeps_where_the_table_says() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin is not None
        assert cat.stdout is not None
        cat.stdin.write(b"x")
        cat.stdin.flush()
        assert cat.stdout.read(1) == b"x"  # it runs, and will wait for more
        state = ""
        while state != "S":
            state = Path(f"/proc/{cat.pid}/stat").read_text().rpartition(") ")[2][:1]
        function = Path(f"/proc/{cat.pid}/wchan").read_text()
        cat.stdin.close()
    if function in ("", "0"):
        pytest.skip("this kernel does not show where a process sleeps")
    assert wait_of(function) is Wait.PIPE
