"""CPU time: shares of what grew, gaps where a counter cannot have grown so, cores that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host_tree import Server, pressure, server


def stat(*cores: tuple[int, ...]) -> str:
    """The text of /proc/stat for these cores: user, nice, system, idle, iowait, irq, softirq, steal."""
    rows = {"cpu ": tuple(map(sum, zip(*cores, strict=True)))} | {f"cpu{n}": core for n, core in enumerate(cores)}
    lines = (f"{name} {' '.join(map(str, row))} 0 0" for name, row in rows.items())
    return "\n".join([*lines, "intr 99 1 2 3", ""])


def box(tmp_path: Path, text: str) -> Server:
    server_ = Server(tmp_path, {**server(), "proc/stat": text})
    server_.look()
    return server_


def test_shares_of_the_time_that_passed(tmp_path: Path) -> None:
    quiet = (0, 0, 0, 0, 0, 0, 0, 0)
    host = box(tmp_path, stat(quiet, quiet)).look(
        stat=stat((20, 20, 10, 30, 10, 5, 5, 0), (0, 0, 0, 60, 0, 0, 0, 40)),
    )
    assert host.cpu_cores_percent == (60, 40)
    assert (host.cpu_percent, host.user_percent, host.system_percent) == (50, 20, 10)
    assert (host.iowait_percent, host.steal_percent) == (5, 20)
    assert (host.cpus_total, host.load) == (2, (1.5, 2.25, 3.0))


@pytest.mark.parametrize("kind", [3, 4, 7], ids=["idle", "iowait", "steal"])
def test_p16_a_counter_that_goes_backwards_is_a_gap(tmp_path: Path, kind: int) -> None:
    before = (100, 0, 100, 1000, 50, 0, 0, 50)
    after = [110, 0, 110, 1080, 55, 0, 0, 55]
    after[kind] = before[kind] - 1
    server_ = box(tmp_path, stat(before, before))
    host = server_.look(stat=stat(tuple(after), (150, 0, 100, 1050, 50, 0, 0, 50)))
    assert host.cpu_cores_percent == (None, 50)
    again = server_.look(stat=stat(tuple(value + 10 for value in after), (150, 0, 100, 1150, 50, 0, 0, 50)))
    assert again.cpu_cores_percent == (pytest.approx(75), 0)


@pytest.mark.parametrize("bits", [32, 64])
def test_p16_a_counter_that_wraps_is_a_gap_and_no_storm(tmp_path: Path, bits: int) -> None:
    top = (1 << bits) - 10
    server_ = box(tmp_path, stat((top, 0, 0, 0, 0, 0, 0, 0)))
    assert server_.look(stat=stat((5, 0, 0, 100, 0, 0, 0, 0))).cpu_percent is None
    assert server_.look(stat=stat((55, 0, 0, 150, 0, 0, 0, 0))).cpu_percent == 50


@pytest.mark.parametrize("passed_s", [0.0, 1e-6, -3600.0])
def test_p17_no_time_or_time_backwards_is_a_gap(tmp_path: Path, passed_s: float) -> None:
    server_ = Server(tmp_path)
    server_.look()
    stall = pressure(some=6_000_000)
    host = server_.look(passed_s, stat=stat((900, 0, 0, 900, 0, 0, 0, 0)), pressure_io=stall)
    assert host.cpu_percent is host.read_bytes_per_s is host.receive_bytes_per_s is host.swap_in_per_s is None
    assert host.io_pressure is not None
    assert host.io_pressure.some_percent is None


def test_p17_a_look_that_came_too_soon_costs_no_growth(tmp_path: Path) -> None:
    server_ = Server(tmp_path)
    server_.look()
    server_.look(0.01, pressure_io=pressure(some=5_200_000))
    host = server_.look(0.99, pressure_io=pressure(some=5_500_000))
    assert host.io_pressure is not None
    assert host.io_pressure.some_percent == pytest.approx(50)


def test_p15_a_long_sleep_is_one_gap_and_no_spike(tmp_path: Path) -> None:
    server_ = Server(tmp_path)
    server_.look()
    assert server_.look(3600.0, pressure_io=pressure(some=6_000_000)).read_bytes_per_s is None
    host = server_.look(1.0, pressure_io=pressure(some=6_250_000))
    assert host.read_bytes_per_s == 0
    assert host.io_pressure is not None
    assert host.io_pressure.some_percent == 25


def test_p18_1024_cpus(tmp_path: Path) -> None:
    before, after = (100, 0, 0, 100, 0, 0, 0, 0), (125, 0, 0, 175, 0, 0, 0, 0)
    host = box(tmp_path, stat(*[before] * 1024)).look(stat=stat(*[after] * 1024))
    assert (host.cpus_total, host.cpu_percent, set(host.cpu_cores_percent)) == (1024, 25, {25})


def test_p18_cpus_come_and_go(tmp_path: Path) -> None:
    one, two = (100, 0, 0, 100, 0, 0, 0, 0), (150, 0, 0, 150, 0, 0, 0, 0)
    server_ = box(tmp_path, stat(one))
    host = server_.look(stat=stat(two, one))
    assert (host.cpus_total, host.cpu_cores_percent) == (2, (50, None))
    # core 0 is taken offline: the others keep their numbers
    offline = "\n".join(line for line in stat(two, two).splitlines() if not line.startswith("cpu0"))
    host = server_.look(stat=offline)
    assert (host.cpus_total, host.cpu_cores_percent) == (1, (None, 50))
