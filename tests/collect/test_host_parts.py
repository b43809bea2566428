"""NUMA nodes, huge pages, clocks and heat: what a server shows of them, and what a virtual machine does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.model import Node
from tests.host_tree import Server, node, server, throttled
from tests.kernel_trees import write_tree

CPU = "sys/devices/system/cpu"


def test_nodes_with_the_pages_that_others_took(tmp_path: Path) -> None:
    box = Server(tmp_path)
    first = box.look()
    assert [(part.number, part.cpus, part.misses_per_s) for part in first.nodes] == [(0, "0", None), (1, "1", None)]
    write_tree(tmp_path, node(1, misses=50, remote=200))
    assert box.look(1.0).nodes == first.nodes, "not so soon again"
    host = box.look(4.0)
    assert (host.nodes[0].misses_per_s, host.nodes[0].remote_per_s) == (0, 0)
    assert host.nodes[1] == Node(
        number=1,
        cpus="1",
        total_bytes=528211686 * 1024,
        free_bytes=1024000 * 1024,
        misses_per_s=10,
        remote_per_s=40,
    )


def test_p09_a_node_whose_files_make_no_sense_is_there_without_numbers(tmp_path: Path) -> None:
    folder = "sys/devices/system/node/node1"
    box = Server(tmp_path, {**server(), f"{folder}/meminfo": "?\n", f"{folder}/numastat": "numa_miss x\n"})
    box.look()
    host = box.look(5.0)
    assert host.nodes[1] == Node(number=1, cpus="1")
    assert host.nodes[0].misses_per_s == 0


def test_huge_pages_of_all_sizes(tmp_path: Path) -> None:
    host = Server(tmp_path).look()
    assert (host.huge_total_bytes, host.huge_free_bytes) == (2 << 30, 500 * (2 << 20))
    assert host.transparent_huge == "madvise"


def test_clocks_and_what_rules_them(tmp_path: Path) -> None:
    host = Server(tmp_path).look()
    assert (host.cpu_mhz, host.cpu_low_mhz, host.cpu_max_mhz, host.cpu_cap_mhz) == (2500, 2000, 3700, 2800)
    assert (host.cpu_governor, host.cpu_driver) == ("performance", "intel_pstate")
    assert (host.cpu_preference, host.cpu_turbo) == ("balance_performance", True)


@pytest.mark.parametrize(
    ("files", "turbo"),
    [
        ({f"{CPU}/intel_pstate/no_turbo": "1\n"}, False),
        ({f"{CPU}/cpufreq/boost": "1\n"}, True),
        ({f"{CPU}/cpufreq/boost": "0\n"}, False),
        ({}, None),
    ],
    ids=["intel off", "others on", "others off", "hidden"],
)
def test_whether_clocks_may_rise_above_the_nominal_one(
    tmp_path: Path, files: dict[str, str], turbo: bool | None
) -> None:
    rest = {name: text for name, text in server().items() if "no_turbo" not in name}
    assert Server(tmp_path, {**rest, **files}).look().cpu_turbo is turbo


def test_a_core_that_was_too_hot_counts_and_zones_are_not_packages(tmp_path: Path) -> None:
    box = Server(tmp_path)
    host = box.look()
    assert (host.cpu_celsius, host.zone_celsius, host.cpu_throttles_per_s) == (61.5, 70, None)
    assert host.missing == ()
    write_tree(tmp_path, throttled(25, 19))
    assert box.look(1.0).cpu_throttles_per_s is None
    assert box.look(9.0).cpu_throttles_per_s == 3


def test_p16_a_core_that_came_back_with_its_counter_at_zero_makes_no_rate(tmp_path: Path) -> None:
    box = Server(tmp_path)
    box.look()
    write_tree(tmp_path, throttled(0, 9))
    assert box.look(10.0).cpu_throttles_per_s is None


def test_the_package_of_intel_is_a_zone(tmp_path: Path) -> None:
    rest = {name: text for name, text in server().items() if "hwmon" not in name}
    zone = "sys/class/thermal/thermal_zone2"
    host = Server(tmp_path, {**rest, f"{zone}/type": "x86_pkg_temp\n", f"{zone}/temp": "55000\n"}).look()
    assert (host.cpu_celsius, host.zone_celsius) == (55, 70)
