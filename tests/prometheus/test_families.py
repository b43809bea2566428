"""Names of series: every metric of the model has one, in base units, that Prometheus's own checks accept."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from gputop import model
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Unit, metric, metrics
from gputop.monitor import Update
from gputop.prometheus import families as names
from gputop.prometheus.families import GPU, GROUPS, HOST, PROCESS, Family, MetricGroup, families
from gputop.prometheus.samples import of_group
from tests.full_frame import filled
from tests.scrapes import exported

OF_DETAILS = {"Overview", "Thread", "File", "Io", "Memory"}  # read while a process is open, and never exported
OWNERS = [owner for name in model.__all__ if hasattr(owner := getattr(model, name), "__dataclass_fields__")]


def test_every_number_of_the_model_has_one_family() -> None:
    exported = {(group.owner, one.name) for group in GROUPS for one in group.metrics}
    declared = {
        (owner, one.name)
        for owner in OWNERS
        if owner.__name__ not in OF_DETAILS
        for one in metrics(owner)
        if one.unit is not Unit.WORD
    }
    assert exported == declared


def test_no_two_families_have_one_name() -> None:
    every = [family.name for family in families()]
    assert len(every) > 200
    assert len(every) == len(set(every))


@pytest.mark.parametrize(
    ("group", "declared", "name", "unit"),
    [
        (GPU, "busy_percent", "gputop_gpu_busy_ratio", "ratio"),
        (GPU, "sm_clock_mhz", "gputop_gpu_sm_clock_hertz", "hertz"),
        (GPU, "vram_total_bytes", "gputop_gpu_vram_total_bytes", "bytes"),
        (GPU, "pcie_rx_bytes_per_s", "gputop_gpu_pcie_rx_bytes_per_second", "bytes_per_second"),
        (GPU, "temperature_celsius", "gputop_gpu_temperature_celsius", "celsius"),
        (GPU, "pcie_replays", "gputop_gpu_pcie_replays_total", ""),
        (GPU, "persistence_mode", "gputop_gpu_persistence_mode", ""),
        (names.GPU_EXTENDED, "energy_joules", "gputop_gpu_energy_joules_total", "joules"),
        (names.PCIE_ERRORS, "fatal", "gputop_gpu_pcie_errors_fatal_total", ""),
        (names.NVLINK, "crc_errors", "gputop_gpu_nvlink_crc_errors_total", ""),
        (HOST, "cpus_total", "gputop_host_cpus", ""),
        (HOST, "process_count", "gputop_host_processes", ""),
        (HOST, "uptime_s", "gputop_host_uptime_seconds", "seconds"),
        (PROCESS, "step_count", "gputop_process_steps_total", ""),
        (PROCESS, "cpu_time_s", "gputop_process_cpu_time_seconds_total", "seconds"),
        (PROCESS, "read_calls_per_s", "gputop_process_read_calls_per_second", ""),
        (PROCESS, "read_chars_per_s", "gputop_process_read_chars_per_second", ""),
        (names.CGROUP, "oom_kills", "gputop_cgroup_oom_kills_total", ""),
    ],
)
def test_a_name_says_place_metric_and_base_unit(group: MetricGroup, declared: str, name: str, unit: str) -> None:
    family = group.named(declared)
    assert (family.name, family.unit) == (name, unit)
    assert (family.kind == "counter") == name.endswith("_total")


@pytest.mark.parametrize("family", families(), ids=lambda one: one.name)
def test_a_family_can_be_declared_in_both_formats(family: Family) -> None:
    assert re.fullmatch(r"gputop_[a-z][a-z0-9_]*[a-z0-9]", family.name)
    assert family.help[0].isupper() or any(map(str.isdigit, family.help.split()[0]))
    assert not family.help.endswith(".")
    assert family.base.endswith(family.unit)  # as OpenMetrics demands
    assert len(set(family.labels)) == len(family.labels)
    # `job` and `instance` are Prometheus's own, and it would rename ours
    assert not {"job", "instance", "le", "quantile", "__name__"} & {*family.labels}
    assert all(re.fullmatch("[a-z][a-z0-9_]*", label) for label in family.labels)


def test_a_name_without_a_metric_is_an_error() -> None:
    with pytest.raises(KeyError, match="Gpu has no numeric metric busy"):
        GPU.named("busy")
    with pytest.raises(KeyError):
        GPU.named("recovery_action")  # a word


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Fridge:
    """Something that the model does not have."""

    door_open_percent: float | None = metric(Unit.PERCENT, "share of the time in which its door is open", top=100)
    opened_count: int | None = metric(Unit.COUNT, "times it was opened", counter=True)
    clock_mhz: float | None = metric(Unit.MHZ, "its clock")


def test_a_new_metric_is_exported_without_another_line() -> None:
    group = MetricGroup(Fridge, "fridge", ("shelf",), note="of the kitchen")
    found = of_group(group, Fridge(door_open_percent=25.0, opened_count=7, clock_mhz=1.5), {"shelf": "2"})
    assert [(one.family.name, one.family.help, one.value) for one in found] == [
        (
            "gputop_fridge_door_open_ratio",
            "Share of the time in which its door is open (of the kitchen; 1 is 100 %)",
            0.25,
        ),
        ("gputop_fridge_openeds_total", "Times it was opened (of the kitchen)", 7.0),
        ("gputop_fridge_clock_hertz", "Its clock (of the kitchen)", 1.5e6),
    ]
    assert of_group(group, Fridge(opened_count=0), {}) == [found[1]._replace(labels={}, value=0.0)]


def test_promtool_finds_nothing_wrong_with_the_names() -> None:
    """In a frame of which every field has a value, so that every family has a series."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("not covered: promtool is not installed, so its lint of the metric names did not run")
    from gputop.prometheus.exposition import CachedExposition
    from tests.scrapes import collected

    text = CachedExposition(collected(Update(frame=filled(Frame)), series=5000)).plain()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_full_frame_has_a_series_of_every_metric() -> None:
    frame = filled(Frame)
    found = {one.name for one in exported(Update(frame=frame), series=5000)}
    of_groups = {family.name for group in GROUPS for family in group.families}
    assert of_groups - found == set()
