"""Disks, file servers, small files, cold caches: each rule fires, just does not, abstains."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.engine import Verdict
from gputop.model import Disk, Mount, Network, Pressure
from tests.rule_cases import Machine, found, refused, scenario, silent

HUNGRY: dict[str, Any] = {"busy_percent": 30.0, "power_watts": 250.0}
IDLE: dict[str, Any] = {"cpu_percent": 20.0, "main_thread_percent": 20.0}
LOADER: dict[str, Any] = {"cpu_percent": 10.0, "blocked_percent": 70.0, "read_bytes_per_s": 480e6}
DISK = Disk(name="nvme0n1", read_bytes_per_s=1e9, reads_per_s=2e3, busy_percent=99.0, await_s=0.004)
QUIET = replace(DISK, busy_percent=20.0)
SCRATCH = Mount(path="/scratch", device="/dev/nvme1n1p1", file_system="xfs", free_bytes=2**42, total_bytes=2**44)
HOST: dict[str, Any] = {"io_pressure": Pressure(some_percent=65.0), "disks": (DISK,), "read_bytes_per_s": 1e9}


def machine(
    host: dict[str, Any] | None = None,
    loader: dict[str, Any] | None = None,
    trainer: dict[str, Any] | None = None,
    gpu: dict[str, Any] | None = None,
    loaders: int = 2,
) -> Machine:
    """One that waits for its disk."""
    return Machine(
        gpu=HUNGRY | (gpu or {}),
        trainer=IDLE | (trainer or {}),
        loader=LOADER | (loader or {}),
        host=HOST | (host or {}),
        loaders=loaders,
    )


def calm(pressure: float | None = 5.0, disk: Disk = QUIET) -> dict[str, Any]:
    """A machine on which nothing else speaks for storage."""
    return {"io_pressure": Pressure(some_percent=pressure) if pressure is not None else None, "disks": (disk,)}


@pytest.mark.parametrize(
    ("dials", "fires"),
    [
        ({}, True),
        ({"gpu": {"busy_percent": 81.0}}, False),
        ({"loader": {"blocked_percent": 31.0}, "host": calm(31.0)}, True),
        ({"loader": {"blocked_percent": 29.0}, "host": {"read_bytes_per_s": 3e9}}, False),  # busy, but for whom?
        ({"host": calm(29.0)}, False),
        ({"host": {**calm(29.0), "io_pressure": Pressure(some_percent=29.0, full_percent=11.0)}}, True),
        ({"loader": {"io_wait_percent": 21.0}, "host": calm()}, True),
        ({"loader": {"io_wait_percent": 19.0}, "host": calm()}, False),
        ({"loader": {"cpu_percent": 395.0}}, False),  # 8.1 of 16 cores
        ({"loader": {"blocked_percent": 0.0}, "trainer": {"major_faults_per_s": 210.0}}, True),
        ({"loader": {"blocked_percent": 20.0}, "host": {"read_bytes_per_s": 1.9e9}}, True),  # half of it is for this
        ({"loader": {"blocked_percent": 20.0}, "host": {"read_bytes_per_s": 2e9}}, False),
        ({"loader": {"blocked_percent": 9.0}}, False),  # loaders that never wait
        ({"trainer": {"write_bytes_per_s": 1.1e9}}, False),  # it writes a checkpoint
        ({"host": {"swap_in_per_s": 600.0, "swap_out_per_s": 500.0}}, False),
        ({"loaders": 0, "trainer": {"blocked_percent": 60.0}}, True),
        ({"loaders": 0, "trainer": {"blocked_percent": 60.0, "waiting_in": "nvidia_ioctl"}}, False),
    ],
)
def test_io_bound(dials: dict[str, Any], fires: bool) -> None:
    finding = found(machine(**dials).verdict(96), "io-bound")
    assert (finding is not None) == fires
    if finding:
        assert (finding.severity, finding.primary, finding.lost_share) == ("crit", True, pytest.approx(0.7))


def test_io_bound_says_what_waits_for_what_and_where_to_put_the_data() -> None:
    finding = found(machine(host={"mounts": (SCRATCH,)}).verdict(42), "io-bound")
    assert finding is not None
    texts = [item.text for item in finding.evidence]
    assert texts[:2] == [
        "2 workers wait for storage 70 % of the time",
        "nvme0n1 reads 1.00 GB/s, 99 % busy, 8 reads in flight, 4.0 ms per request",
    ]
    assert finding.headline == "I/O-bound, local disk nvme0n1"
    assert {"PSI io some 65 %", "96 % of storage reads are from this job"} <= set(texts)
    assert finding.steps[0].command == "rsync -a DATASET/ /scratch/DATASET/"
    assert not [step for step in finding.steps if "num_workers" in (step.command or "")]  # the disk is full
    assert finding.steps[-1].command == "iostat -x 1 nvme0n1"


def test_pressure_is_told_by_what_decided() -> None:
    pressure = Pressure(some_percent=20.0, full_percent=12.0)
    finding = found(machine(host={**calm(29.0), "io_pressure": pressure}).verdict(42), "io-bound")
    assert finding is not None
    told = [(item.text, item.value, item.limit) for item in finding.evidence if item.text.startswith("PSI io full")]
    assert told == [("PSI io full 12 %", 12.0, 10)]


def test_the_disk_that_is_read_from_is_the_one_of_the_window_not_of_the_moment() -> None:
    def disks(t: float) -> tuple[Disk, ...]:
        system = replace(QUIET, name="sda", read_bytes_per_s=1e4, busy_percent=1.0)
        return system, replace(DISK, read_bytes_per_s=2e9 if t % 2 else 0.0)

    finding = found(machine(host={"disks": disks}).verdict(150, 1), "io-bound")
    assert finding is not None
    assert any(item.text.startswith("nvme0n1 reads 1.00 GB/s") for item in finding.evidence)


def test_cores_of_one_rank_are_not_taken_for_those_of_its_job() -> None:
    alone, ranked = (
        next(item.text for item in finding.evidence if "CPU cores" in item.text)
        for trainer in ({}, {"rank": 0, "world_size": 4})
        if (finding := found(machine(trainer=trainer).verdict(), "io-bound"))
    )
    assert re.search(r" of 16 CPU cores in use, \d+ free$", alone)
    assert ranked == f"{alone.partition(',')[0]} by one rank", "the others use what is left"


@pytest.mark.parametrize(
    ("rotational", "await_s", "saturated"),
    [(False, 0.004, True), (False, 0.0002, False), (True, 0.0002, True), (None, 0.0002, False), (False, None, False)],
)
def test_an_nvme_disk_that_is_always_busy_is_saturated_only_with_a_deep_queue(
    rotational: bool | None, await_s: float | None, saturated: bool
) -> None:
    """2,000 reads a second of 0.2 ms keep it busy one at a time: it could serve many more."""
    disk = replace(DISK, rotational=rotational, await_s=await_s, name="sda" if rotational else "nvme0n1")
    finding = found(machine(host={"disks": (disk,)}).verdict(42), "io-bound")
    assert finding is not None  # its loaders wait, and the pressure says so
    assert any("99 % busy" in item.text for item in finding.evidence) == saturated
    assert any("num_workers" in (step.command or "") for step in finding.steps) != saturated


@pytest.mark.parametrize(
    ("kind", "command"), [("nfs4", "nfsiostat 1 /data"), ("lustre", "lctl get_param llite.*.stats")]
)
def test_data_of_a_file_server_are_watched_where_its_client_counts(kind: str, command: str) -> None:
    mount = Mount(
        path="/data", device="server:/data", file_system=kind, network=True, read_bytes_per_s=5e6, reads_per_s=600.0
    )
    host = {**calm(65.0), "disks": (replace(QUIET, read_bytes_per_s=1e5),), "mounts": (mount,)}
    trainer = {"read_chars_per_s": 90e6, "read_calls_per_s": 11_000.0}
    said = machine(trainer=trainer, host=host).verdict(42)
    commands = [step.command for finding in said.findings for step in finding.steps if step.command]
    assert command in commands
    assert not [one for one in commands if one.startswith("iostat")]


def test_a_disk_that_answers_later_than_it_used_to_is_full() -> None:
    def slower(factor: float) -> Verdict:
        def disks(t: float) -> tuple[Disk, ...]:
            return (replace(QUIET, await_s=0.002 * (factor if t > 50 else 1)),)

        return machine(host={**calm(), "disks": disks}).verdict(110)

    finding = found(slower(3.2), "io-bound")
    assert finding is not None
    assert [step.command for step in finding.steps if "num_workers" in (step.command or "")] == [
        "DataLoader(..., num_workers=4, pin_memory=True, persistent_workers=True, prefetch_factor=4)"
    ]
    assert found(slower(2.8), "io-bound") is None


def test_io_bound_abstains_where_no_second_sign_can_be_seen() -> None:
    loader = {"missing": refused("io_wait_percent")["missing"]}
    one = silent(machine(host=calm(None), loader=loader).verdict(42), "io-bound")
    assert one is not None
    assert [missing.metric for missing in one.missing] == ["io_wait_percent", "io_pressure"]
    assert silent(machine(host=calm()).verdict(42), "io-bound") is None


SMALL = {"read_chars_per_s": 9.6e6, "read_calls_per_s": 1200.0}
TINY = replace(DISK, read_bytes_per_s=8e3 * 1200, reads_per_s=1200.0)


def of_files(disk: Disk = TINY, **loader: float | None) -> Verdict:
    return machine(host={"disks": (disk,)}, loader=SMALL | loader).verdict(96)


@pytest.mark.parametrize(
    ("disk", "loader", "fires"),
    [
        (TINY, {}, True),
        (TINY, {"read_chars_per_s": 80e6}, False),  # 67 kB a read
        (replace(TINY, read_bytes_per_s=70e3 * 1200), {}, False),  # small reads of a large file: the kernel reads ahead
        (replace(TINY, reads_per_s=99.0, read_bytes_per_s=8e3 * 99), {"read_calls_per_s": 990.0}, False),
        (replace(TINY, reads_per_s=110.0, read_bytes_per_s=8e3 * 110), {"read_calls_per_s": 160.0}, True),
    ],
)
def test_io_small_files(disk: Disk, loader: dict[str, float], fires: bool) -> None:
    said = of_files(disk, **loader)
    assert (found(said, "io-small-files") is not None) == fires
    assert (found(said, "io-bound") is None) == fires  # one of them is told


def test_io_small_files_tells_the_size_of_a_read() -> None:
    finding = found(of_files(), "io-small-files")
    assert finding is not None
    assert finding.evidence[0].text == "mean read 8 kB, 2400 reads/s, 19 MB/s"
    assert (finding.severity, finding.confidence) == ("crit", 0.75)


def test_where_reads_are_hidden_the_disk_tells_of_small_files() -> None:
    hidden = refused("read_bytes_per_s", "read_chars_per_s", "read_calls_per_s")
    finding = found(machine(host={"disks": (TINY,)}, loader=hidden).verdict(42), "io-small-files")
    assert finding is not None
    assert finding.confidence == 0.5
    assert finding.evidence[0].text == "mean disk request 8 kB, 1200/s"


NFS = Mount(
    path="/data", device="nas:/data", file_system="nfs4", network=True, read_bytes_per_s=118e6, reads_per_s=450.0,
    read_rtt_s=0.034, read_queue_s=0.001, retransmits_per_s=0.0,
)  # fmt: skip
FUSE = Mount(path="/bucket", device="s3", file_system="fuse.s3fs", network=True)
LINK = Network(name="eth0", speed_bytes_per_s=125e6, receive_bytes_per_s=118e6)


def remote(mount: Mount = NFS, link: Network | None = None, **loader: float | str | None) -> Verdict:
    reads = {"read_bytes_per_s": 0.0, "read_chars_per_s": 60e6} | loader
    host = {**calm(), "disks": (), "mounts": (mount, SCRATCH), "networks": (link,) if link else ()}
    return machine(host=host | {"read_bytes_per_s": 118e6}, loader=reads).verdict(42)


@pytest.mark.parametrize(
    ("mount", "link", "loader", "fires"),
    [
        (NFS, None, {}, True),
        (replace(NFS, read_rtt_s=0.0095), None, {}, False),
        (replace(NFS, read_rtt_s=0.003, read_queue_s=0.0055), None, {}, True),
        (replace(NFS, read_rtt_s=0.003, read_queue_s=0.0045), None, {}, False),
        (replace(NFS, read_rtt_s=0.003, retransmits_per_s=0.2), None, {}, True),
        (replace(NFS, read_rtt_s=0.003), LINK, {}, True),
        (replace(NFS, read_rtt_s=0.003), replace(LINK, receive_bytes_per_s=85e6), {}, False),
        (NFS, None, {"read_chars_per_s": 16e6}, False),  # somebody else reads from there
        (NFS, None, {"blocked_percent": 25.0}, False),
        (replace(NFS, file_system="lustre"), None, {"blocked_percent": 0.0}, True),
        (replace(NFS, file_system="lustre"), None, {"blocked_percent": 0.0, "cpu_percent": 55.0}, False),
        (FUSE, LINK, {"blocked_percent": 0.0}, True),
        (FUSE, replace(LINK, receive_bytes_per_s=85e6), {"blocked_percent": 0.0}, False),
        (FUSE, LINK, {"blocked_percent": 0.0, "read_chars_per_s": 16e6}, False),
    ],
)
def test_network_fs_bound(mount: Mount, link: Network | None, loader: dict[str, float], fires: bool) -> None:
    assert (found(remote(mount, link, **loader), "network-fs-bound") is not None) == fires


def test_network_fs_bound_names_the_mount() -> None:
    finding = found(remote(link=LINK), "network-fs-bound")
    assert finding is not None
    assert finding.headline == "I/O-bound, /data (nfs4)"
    assert [item.text for item in finding.evidence][:2] == [
        "/data (nfs4) delivers 118 MB/s, 34 ms per read",
        "eth0 receives 94 % of 1 Gb/s",
    ]
    commands = [step.command for step in finding.steps]
    assert commands[:2] == [
        "rsync -a /data/DATASET/ /scratch/DATASET/",
        "sudo umount /data && sudo mount -o nconnect=8,rsize=1048576 nas:/data /data",
    ]


def test_network_fs_bound_abstains_where_nobody_may_see_who_reads() -> None:
    said = remote(**refused("read_chars_per_s"))
    assert silent(said, "network-fs-bound") is not None


def reading(kept: float, later: float = 1.0, age_s: float = 0.0, free: float = 0.5) -> Verdict:
    """Reads of 1 GB/s, of which so much stays in memory; after 75 s so many of them."""
    host = {
        "memory_cached_bytes": lambda t: 60e9 + 1e9 * kept * t,
        "memory_available_bytes": 1e12 * free,
        "memory_total_bytes": 1e12,
        "read_bytes_per_s": lambda t: 1e9 if t < 75 else 1e9 * later,
    }
    loader = {"read_bytes_per_s": lambda t: 0.48e9 if t < 75 else 0.48e9 * later}
    return machine(host=host, loader=loader, trainer={"age_s": lambda t: age_s + t}).verdict(165)


@pytest.mark.parametrize(
    ("dials", "severity"),
    [
        ({"kept": 0.9}, "info"),
        ({"kept": 0.45}, "crit"),
        ({"kept": 0.9, "age_s": 1200.0}, "crit"),  # no first epoch any more
        ({"kept": 0.9, "free": 0.09}, "crit"),
        ({"kept": 0.1, "later": 0.3}, "info"),
        ({"kept": 0.1, "later": 0.4}, "crit"),
        ({"kept": 0.02, "later": 0.3}, "crit"),
    ],
)
def test_cold_cache_lowers_what_cannot_be_judged_yet(dials: dict[str, float], severity: str) -> None:
    said = reading(**dials)
    bound, cold = found(said, "io-bound"), found(said, "cold-cache")
    assert bound is not None
    assert bound.severity == severity
    assert (cold is not None) == (severity == "info")
    assert not cold or (cold.severity, cold.primary) == ("info", False)


def test_cold_cache_abstains_where_the_page_cache_is_not_known() -> None:
    assert silent(machine(trainer={"age_s": 100.0}).verdict(42), "cold-cache") is not None


def test_a_first_epoch_is_no_trouble() -> None:
    """D23: worth knowing while it lasts, and nothing afterwards."""
    seen = scenario("cold-cache", until_s=570)
    assert not [t for t, said in seen for finding in said.findings if finding.severity != "info"]
    early = next(said for t, said in seen if t >= 330)
    assert {"io-bound", "cold-cache"} <= {finding.rule for finding in early.findings}
    late = next(said for t, said in seen if t >= 560)
    assert [finding.rule for finding in late.findings] == ["gpu-bound-healthy"]
