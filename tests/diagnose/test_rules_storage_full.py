"""Places that are nearly full, and large ones of which little is left: what is said of them, and what is advised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose import Finding
from gputop.model import Disk, Mount
from tests.rule_cases import Machine, after, found, refused

GIB = 2**30
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
    assert (told.severity, told.headline) == ("warn", "disk nearly full, space for 17 more checkpoints in /lustre")


@pytest.mark.parametrize(("kind", "command"), [("lustre", "lfs quota -h /lustre"), ("nfs4", "df -h /lustre")])
def test_nobody_is_told_to_look_at_every_file_of_a_server(kind: str, command: str) -> None:
    told = saved_to(replace(LUSTRE, file_system=kind), 1e8)
    assert told is not None
    assert (told.severity, told.headline) == ("crit", "disk full, no space for checkpoints in /lustre")
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


def filled(used: float, total: float = 504, loaders: int = 0, **trainer: Any) -> Finding | None:
    """So many GiB in use of the machine's own /dev/shm."""
    host = {"shm_total_bytes": int(total * GIB), "shm_used_bytes": int(used * GIB), "memory_total_bytes": 1008 * GIB}
    return found(Machine(host=host, loaders=loaders, trainer=trainer).verdict(60), "shm-nearly-full")


@pytest.mark.parametrize("loaders", [0, 4])
def test_a_large_shm_with_room_left_is_told_as_what_it_is(loaders: int) -> None:
    told = filled(420, loaders=loaders)
    assert told is not None
    assert (told.severity, told.primary) == ("info", False)
    assert told.headline == "/dev/shm 83 % full, 84.0G left"
    assert told.evidence[0].text == f"/dev/shm 83 % used: 420G of 504G{', 4 workers' if loaders else ''}"
    assert [step.command for step in told.steps] == ["ls -lS /dev/shm"]


@pytest.mark.parametrize(
    ("loaders", "trainer", "severity"),
    [
        (1, {}, "crit"),
        (0, {}, "info"),  # nobody hands over batches there
        (1, {"container": "abc", "shm_total_bytes": GIB, "shm_used_bytes": 0}, "crit"),  # it shares the machine's
        (1, {"container": "abc", "shm_total_bytes": 8 * GIB, "shm_used_bytes": 0}, "info"),  # it has its own
        (1, {"container": "abc", **refused("shm_total_bytes", "shm_used_bytes")}, "info"),
    ],
)
def test_it_is_the_loaders_there_that_may_die(loaders: int, trainer: dict[str, Any], severity: str) -> None:
    told = filled(0.95, 1, loaders, **trainer)
    assert told is not None
    assert told.severity == severity
    assert ("workers may crash" in told.headline) == (severity == "crit")
    assert (told.evidence[0].text == "/dev/shm 95 % used: 973M of 1.0G, 1 worker") == (severity == "crit")


def test_loaders_that_each_epoch_starts_anew_are_still_there() -> None:
    full = {"shm_total_bytes": GIB, "shm_used_bytes": int(0.95 * GIB)}
    with_them, without = Machine(host=full, loaders=2), Machine(host=full)
    told = found(after(lambda t: (without if t % 40 >= 20 else with_them).frame(t), 120), "shm-nearly-full")
    assert told is not None
    assert told.severity == "crit"
    assert "workers may crash" in told.headline
