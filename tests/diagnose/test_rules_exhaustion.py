"""Memory and disks that will be full within minutes: told within a minute, and loads that end are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.diagnose.estimators import rise
from gputop.diagnose.finding import Finding
from gputop.model import Cgroup, Frame, GpuShare, Mount, Process
from tests.rule_cases import Machine, after, found, judged

GIB, MIB = 2**30, 2**20
Curve = Callable[[float], float]
EARLY: dict[str, Any] = {"age_s": lambda t: 900.0 + t}


def host(
    grown: Curve, total: float = 64, busy: Any = 97.0, read: float = 0.0, loaders: int = 0, mapped: bool = False
) -> Machine:
    """A trainer, or its loaders, whose memory is 8 GiB and this function of time, in MB."""

    def rss(t: float) -> int:
        return int(8 * GIB + grown(t) * 1e6 / max(1, loaders))

    def left(t: float) -> int:
        return int((total - 10) * GIB - (0 if mapped else grown(t) * 1e6))

    def shared(t: float) -> int:
        return int(GIB + (grown(t) * 1e6 if mapped else 0))

    grows = {"rss_bytes": rss, "shared_bytes": shared, "pss_bytes": 8 * GIB, "read_chars_per_s": read}
    return Machine(
        gpu={"busy_percent": busy},
        host={"memory_total_bytes": int(total * GIB), "memory_available_bytes": left},
        loaders=loaders,
        trainer=EARLY | ({} if loaders else grows),
        loader=grows if loaders else {},
    )


def told(frame: Callable[[float], Frame], seconds: int, rule: str = "host-memory-leak") -> Finding | None:
    """The worst that was said, at any look."""
    said = [
        one for _, verdict in judged(frame(float(t)) for t in range(0, seconds, 2)) if (one := found(verdict, rule))
    ]
    return max(said, key=lambda one: (one.severity == "crit", one.severity == "warn"), default=None)


def limited(
    machine: Machine, grown: Curve, limit: float = 24, cache: Curve = lambda t: 0.0
) -> Callable[[float], Frame]:
    """The same in a control group of so many GiB, on a machine with memory to spare."""
    machine.trainer["cgroup"] = "/job"
    machine.host["memory_available_bytes"] = 900 * GIB
    machine.host["memory_total_bytes"] = 1000 * GIB

    def frame(t: float) -> Frame:
        own = int(2 * GIB + grown(5 * (t // 5)) * 1e6)  # parts of it are read every five seconds
        used = int(own + cache(t) * 1e6)
        group = Cgroup(
            path="/job", memory_limit_bytes=int(limit * GIB), memory_used_bytes=used, anonymous_bytes=own,
            shared_bytes=0, limit_hits_per_s=0.0,
        )  # fmt: skip
        return replace(machine.frame(t), cgroups=(group,))

    return frame


def leak(t: float) -> float:
    """90 MB/s."""
    return 90 * t


@pytest.mark.parametrize("loaders", [0, 4])
def test_a_fast_leak_of_host_memory_is_critical_within_a_minute(loaders: int) -> None:
    said = found(after(host(leak, 48, loaders=loaders).frame, 62), "host-memory-leak")
    assert said is not None
    assert said.severity == "crit"
    assert said.headline.startswith("out of host memory in about 6 min, growing by 85.8M/s")
    assert ("in its 4 workers" in said.headline) == (loaders == 4)
    assert said.evidence[1].text.endswith("of host memory (48.0G) left, full in about 6 min")


def test_a_fast_leak_is_held_against_the_limit_of_its_control_group() -> None:
    said = found(after(limited(host(leak), leak), 62), "host-memory-leak")
    assert said is not None
    assert said.severity == "crit"
    assert "of its memory limit (24.0G) left" in said.evidence[1].text


def test_page_cache_is_no_use_of_memory() -> None:
    cached = limited(host(lambda t: 0.0), lambda t: 0.0, cache=lambda t: min(21000.0, leak(t)))
    assert told(cached, 200) is None
    assert told(host(leak, 48, mapped=True).frame, 200) is None, "mapped files come back"


@pytest.mark.parametrize(
    ("machine", "severity"),
    [
        (host(leak, 48), "crit"),
        (host(leak, 200), None),  # half an hour is left: the leak test over minutes tells
        (host(lambda t: 500 * min(t, 40), busy=lambda t: 0.0 if t < 45 else 97.0), None),  # a dataset is loaded
        (host(lambda t: 500 * min(t, 40)), None),
        (host(lambda t: 25e3 * (1 - math.exp(-t / 40)), 48), None),  # caches fill, ever slower
        (host(lambda t: 3000 * (t // 30), 48), None),  # an allocator's steps
        (host(lambda t: 8000 if t > 60 else 0, 24), None),  # pinned buffers, at once
        (host(lambda t: 3000 * math.sin(t / 20), 24), None),
        (host(lambda t: leak(t) if t < 30 else leak(30), 24), None),
        (host(leak, 48, read=95e6), "warn"),  # it may keep what it reads
        (host(leak, 48, read=20e6), "crit"),
        (host(leak, 48, read=400e6), "crit"),
        (host(leak, 48, busy=0.0), "warn"),  # it does not train yet
    ],
)
def test_only_steady_growth_of_who_trains_is_critical(machine: Machine, severity: str | None) -> None:
    said = told(machine.frame, 130)
    assert (said and said.severity) == severity


def test_who_keeps_its_data_and_has_next_to_nothing_left_is_critical() -> None:
    said = told(host(lambda t: 200 * t, 40, read=200e6).frame, 150)
    assert said is not None
    assert said.severity == "crit"
    assert any("they read" in item.text for item in said.evidence)


def test_a_trainer_is_not_blamed_for_memory_that_another_takes() -> None:
    machine = host(lambda t: 0.0)
    machine.host["memory_available_bytes"] = lambda t: int(40 * GIB - 90e6 * t)
    assert told(machine.frame, 90) is None


def device(curve: Curve, age_s: float = 900.0, total: float = 80) -> Machine:
    """Device memory above 20 GiB, in MB."""

    def used(t: float) -> int:
        return int(20 * GIB + curve(t) * 1e6)

    def shares(t: float) -> tuple[GpuShare, ...]:
        return (GpuShare(uuid="G", busy_percent=97.0, vram_bytes=used(t)),)

    card = {"vram_used_bytes": used, "vram_total_bytes": int(total * GIB)}
    return Machine(gpu=card, trainer={"gpus": shares, "age_s": lambda t: age_s + t})


@pytest.mark.parametrize(
    ("machine", "fires"),
    [
        (device(lambda t: 200 * t), True),
        (device(lambda t: 200 * t, age_s=0.0), True),
        (device(lambda t: 20 * (10 * t // 20) * 20 / 20 * 10), True),  # blocks of the allocator
        (device(lambda t: 20 * t), False),
        (device(lambda t: 200 * min(t, 30)), False),
        (device(lambda t: 3000 * math.log(1 + t / 5)), False),  # the longest batch so far
        (device(lambda t: 4000 * (t // 25)), False),
    ],
)
def test_device_memory_that_is_full_within_minutes(machine: Machine, fires: bool) -> None:
    said = told(machine.frame, 62 if fires else 110, "gmem-leak")
    assert (said is not None) == fires
    assert said is None or said.severity == "crit"


@pytest.mark.parametrize(
    ("values", "rises"),
    [
        ([float(n) for n in range(45)], True),
        ([float(5 * (n // 5)) for n in range(45)], True),
        ([None if n % 2 else float(n) for n in range(46)], True),
        ([None if n % 3 else float(n) for n in range(45)], False),
        ([float(min(n, 36)) for n in range(45)], False),
        ([float(n * n) for n in range(45)], False),
        ([0.0] * 45, False),
        ([-float(n) for n in range(45)], False),
    ],
)
def test_a_rise_is_linear_and_goes_on(values: list[float | None], rises: bool) -> None:
    assert (rise(values, 1.0) is not None) == rises


def shm(curve: Curve, total: float = 64, loaders: int = 4, others: tuple[Any, ...] = ()) -> Callable[[float], Frame]:
    """/dev/shm with 2 GiB and this function of time in use, in MB."""
    dials = {"shm_total_bytes": int(total * GIB), "shm_used_bytes": lambda t: int(2 * GIB + curve(t) * 1e6)}
    machine = Machine(host=dials, loaders=loaders)
    return lambda t: replace(machine.frame(t), processes=(*machine.frame(t).processes, *others))


COPY = Process(pid=900, started_ticks=1, name="rsync", write_chars_per_s=150e6)


@pytest.mark.parametrize(
    ("frame", "severity"),
    [
        (shm(lambda t: 150 * t), "crit"),
        (shm(lambda t: 150 * t, loaders=0), "info"),  # nobody hands over batches there
        (shm(lambda t: 150 * min(t, 30)), None),  # the first batches
        (shm(lambda t: 40 * t), None),
        (shm(lambda t: 150 * t, others=(COPY,)), None),  # a dataset is copied there
    ],
)
def test_shared_memory_that_is_full_within_minutes(frame: Callable[[float], Frame], severity: str | None) -> None:
    said = told(frame, 90, "shm-nearly-full")
    assert (said and said.severity) == severity
    assert severity != "crit" or (said is not None and "at this rate" in said.evidence[1].text)


def disk(taken: Curve, free: float = 100, writes: float = 100, each_s: float = 20, busy: float = 97.0) -> Machine:
    """A file system of 500 GB with so many GB free less this function of time; its writer saves every `each_s`."""

    def mounts(t: float) -> tuple[Mount, ...]:
        seen_s = 10 * (t // 10)  # it is looked at every ten seconds
        mount = Mount(path="/data", device="/dev/nvme1n1p1", file_system="xfs", total_bytes=500 * 10**9)
        return (replace(mount, free_bytes=int((free - taken(seen_s)) * 1e9)),)

    def written(t: float) -> float:
        return writes * 1e6 * (each_s / 4 if t % each_s < 4 else 0)

    return Machine(gpu={"busy_percent": busy}, host={"mounts": mounts}, trainer={"write_chars_per_s": written})


@pytest.mark.parametrize(
    ("machine", "severity"),
    [
        (disk(lambda t: 2 * (t // 20), free=40), "crit"),
        (disk(lambda t: 2 * (t // 20), free=400), None),
        (disk(lambda t: 2 * (t // 20), free=40, busy=0.0), "warn"),
        (disk(lambda t: 2 * (t // 20), free=40, writes=10), None),  # somebody else fills it
        (disk(lambda t: 2 * min(3, t // 20), free=40), None),  # old ones are deleted from then on
        (disk(lambda t: 6 + 2 * (t // 20 % 2), free=40), None),
        (disk(lambda t: 20 if t > 40 else 0, free=40), None),
    ],
)
def test_a_disk_that_checkpoints_fill_within_minutes(machine: Machine, severity: str | None) -> None:
    said = told(machine.frame, 170, "shm-nearly-full")
    assert (said and said.severity) == severity
    if severity == "crit":
        assert said is not None
        assert said.headline.startswith("/data full in about ")


def beside(seen: bool) -> Callable[[float], Frame]:
    """Another user's program takes 90 MB/s of 40 GiB."""
    machine = host(lambda t: 0.0)
    machine.host["memory_available_bytes"] = lambda t: int(40 * GIB - 90e6 * t)

    def frame(t: float) -> Frame:
        other = Process(
            pid=900, started_ticks=1, name="spark", user="bob", uid=3, rss_bytes=int(2e9 + 90e6 * t), shared_bytes=0
        )
        return replace(machine.frame(t), processes=(*machine.frame(t).processes, *((other,) if seen else ())))

    return frame


@pytest.mark.parametrize("seen", [True, False])
def test_memory_that_another_program_takes_is_said_of_the_machine(seen: bool) -> None:
    said = told(beside(seen), 150)
    assert said is not None
    assert (said.severity, said.subject.kind) == ("warn", "host")
    text = said.evidence[2].text
    assert text.startswith("spark (bob) grew by" if seen else "no visible process grows as much")


def test_a_crash_that_is_near_leads_before_what_is_slow() -> None:
    """Out of device memory in minutes, beside loaders that are too few; and it is what the job's state says."""
    gpu = {"busy_percent": 46.0, "power_watts": 300.0, "vram_used_bytes": lambda t: int(30 * 2**30 + 150e6 * t)}
    share = {"gpus": lambda t: (GpuShare(uuid="G", busy_percent=46.0, vram_bytes=int(30 * 2**30 + 150e6 * t)),)}
    trainer = {"main_thread_percent": 10.0, "cpu_percent": 110.0, **share}
    loader = {"cpu_percent": 98.0, "main_thread_percent": 98.0}
    said = Machine(gpu=gpu, trainer=trainer, loader=loader, loaders=2).verdict(200)
    assert [(one.rule, one.severity, one.primary) for one in said.findings][:2] == [
        ("gmem-leak", "crit", True), ("starved-cpu-idle", "crit", False),
    ]  # fmt: skip
    assert said.jobs[0].why.startswith("out of GPU memory")
