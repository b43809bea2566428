"""Places that are nearly full, and large ones of which little is left: what is said of them, and what is advised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.diagnose import Finding
from gputop.model import Disk, Mount
from tests.judged import Machine, found

LUSTRE = Mount(path="/lustre", device="mds@o2ib:/x", file_system="lustre", network=True, total_bytes=10**15)


def saved_to(mount: Mount, free: float) -> Finding | None:
    """Checkpoints of 200 MB that go there."""

    def writes(t: float) -> float:
        return 5e7 if t % 40 < 4 else 900.0

    def mounts(t: float) -> tuple[Mount, ...]:
        return (replace(mount, free_bytes=int(free), write_bytes_per_s=writes(t)),)

    machine = Machine(
        gpu={"busy_percent": lambda t: 0.0 if t % 40 < 4 else 97.0},
        trainer={"write_chars_per_s": writes},
        host={"mounts": mounts},
    )
    return found(machine.verdict(60, 1), "shm-nearly-full")


def test_a_large_file_system_is_not_full_while_thousands_of_checkpoints_fit() -> None:
    assert saved_to(LUSTRE, 4e13) is None
    told = saved_to(LUSTRE, 3.5e9)
    assert told is not None
    assert (told.severity, told.headline) == ("warn", "has room for 17 more checkpoints in /lustre")


@pytest.mark.parametrize(("kind", "command"), [("lustre", "lfs quota -h /lustre"), ("nfs4", "df -h /lustre")])
def test_nobody_is_told_to_look_at_every_file_of_a_server(kind: str, command: str) -> None:
    told = saved_to(replace(LUSTRE, file_system=kind), 1e8)
    assert told is not None
    assert (told.severity, told.headline) == ("crit", "has next to no room left for its checkpoints in /lustre")
    assert told.steps[0].command == command


def test_a_disk_of_this_machine_is_looked_through() -> None:
    local = Mount(path="/data", device="/dev/nvme1n1p1", file_system="xfs", total_bytes=10**12, free_bytes=10**8)
    machine = Machine(
        gpu={"busy_percent": lambda t: 0.0 if t % 40 < 4 else 97.0},
        trainer={"write_chars_per_s": lambda t: 5e7 if t % 40 < 4 else 900.0},
        host={
            "mounts": (local,),
            "disks": lambda t: (Disk(name="nvme1n1", write_bytes_per_s=5e7 if t % 40 < 4 else 0.0),),
        },
    )
    told = found(machine.verdict(60, 1), "shm-nearly-full")
    assert told is not None
    assert told.steps[0].command == "du -xh --max-depth=2 /data | sort -h | tail"
