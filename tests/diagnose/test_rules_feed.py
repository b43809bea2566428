"""Loaders that are too slow, too few, too many or absent: each rule fires, just does not, abstains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, Missing, Mount, Pressure
from tests.rule_cases import LIMITS, UNTOLD, Machine, after, found, judged, refused, silent

WAITING = {"busy_percent": 40.0}
DENIED = (Missing(metric="blocked_percent", reason="denied", unlock="sudo gputop"),)


def saturated(**changes: dict[str, Any]) -> Machine:
    """Sixteen loaders on sixteen CPUs."""
    trainer = {"cpu_percent": 20.0, "main_thread_percent": 20.0}
    return changed(Machine(gpu=dict(WAITING), trainer=trainer, loader={"cpu_percent": 96.0}, loaders=16), changes)


def few(**changes: dict[str, Any]) -> Machine:
    """Two busy loaders on sixteen CPUs."""
    trainer = {"cpu_percent": 20.0, "main_thread_percent": 20.0}
    return changed(Machine(gpu=dict(WAITING), trainer=trainer, loader={"cpu_percent": 97.0}, loaders=2), changes)


def alone(**changes: dict[str, Any]) -> Machine:
    """No loaders, and a main thread that reads."""
    return changed(Machine(gpu=dict(WAITING), trainer={"read_chars_per_s": 40e6}), changes)


def changed(machine: Machine, changes: dict[str, dict[str, Any]]) -> Machine:
    for part, dials in changes.items():
        getattr(machine, part).update(dials)
    return machine


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({}, "crit"),
        ({"gpu": {"busy_percent": 79.0}}, "warn"),
        ({"gpu": {"busy_percent": 81.0}}, None),
        ({"gpu": {"busy_percent": 1.0}}, "crit"),  # a fast GPU, that gets its batches all the same
        ({"gpu": {"busy_percent": 0.05}}, None),
        ({"loader": {"cpu_percent": 84.0}, "trainer": {"cpu_percent": 10.0}}, None),
        ({"trainer": {"busy_threads": 32, "run_wait_percent": 70.0}}, None),
        ({"trainer": {"throttled_percent": 11.0}}, None),
        ({"host": {"steal_percent": 6.0}}, None),
    ],
)
def test_starved_cpu_saturated(changes: dict[str, Any], severity: str | None) -> None:
    finding = found(saturated(**changes).verdict(), "starved-cpu-saturated")
    assert (finding and finding.severity) == severity


def test_starved_cpu_saturated_says_what_could_be_won() -> None:
    finding = found(saturated().verdict(), "starved-cpu-saturated")
    assert finding is not None
    texts = [item.text for item in finding.evidence]
    assert texts[1:] == ["15.6 of 16 CPU cores in use", "16 workers, each 96 % of a core"]
    assert texts[0].startswith("GPU busy 40 %")
    assert "up to 2.5× faster" in finding.steps[0].text
    assert finding.confidence == 0.9
    assert finding.lost_share == pytest.approx(0.6)


@pytest.mark.parametrize(
    "rule",
    [
        "starved-cpu-saturated",
        "starved-cpu-idle",
        "loader-in-main",
        "workers-oversized",
        "head-of-line",
        "starved-cause-unknown",
        "gpu-bound-healthy",
        "busy-not-effective",
        "tensor-cores-idle",
        "mem-bw-bound",
        "overhead-bound",
        "small-job",
        "sync-log-stall",
        "h2d-transfer-bound",
    ],
)
def test_they_abstain_where_the_gpu_does_not_say_how_busy_it_is(rule: str) -> None:
    unknown = {"busy_percent": None, "missing": (Missing(metric="busy_percent", reason="unsupported"),)}
    machine = Machine(gpu=dict(WAITING), loader={"cpu_percent": 97.0}, loaders=0 if rule == "loader-in-main" else 2)
    machine.gpu |= {"busy_percent": lambda t: 40.0 if t < 70 else None, "sm_active_percent": None}
    machine.trainer["gpus"] = UNTOLD
    machine.gpu["missing"] = lambda t: () if t < 70 else unknown["missing"]
    said = machine.verdict(160)
    assert (one := silent(said, rule)) is not None
    assert [missing.reason for missing in one.missing] == ["unsupported"]
    assert found(said, rule) is None or rule != "gpu-bound-healthy"


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),
        ({"loader": {"cpu_percent": 81.0}}, True),
        ({"loader": {"cpu_percent": 79.0}}, False),
        ({"loader": {"blocked_percent": 11.0}}, False),
        ({"loader": {"blocked_percent": 9.0}}, True),
        ({"host": {"io_pressure": Pressure(some_percent=11.0)}}, False),
        ({"host": {"io_pressure": Pressure(some_percent=9.0)}}, True),
        ({"trainer": {"allowed_cpus": 3.5}}, True),
        ({"trainer": {"allowed_cpus": 2.5}}, False),
        ({"gpu": {"busy_percent": 81.0}}, False),
    ],
)
def test_starved_cpu_idle(changes: dict[str, Any], fires: bool) -> None:
    assert (found(few(**changes).verdict(), "starved-cpu-idle") is not None) == fires


@pytest.mark.parametrize(("busy", "workers"), [(50.0, 5), (10.0, 15)])
def test_starved_cpu_idle_prints_a_number_of_loaders_that_fits_the_cpus(busy: float, workers: int) -> None:
    finding = found(few(gpu={"busy_percent": busy}).verdict(), "starved-cpu-idle")
    assert finding is not None
    assert f"num_workers={workers}," in (finding.steps[0].command or "")


@pytest.mark.parametrize(("names", "pin"), [((("python", 58), ("pt_data_pin", 1)), ""), ((), "pin_memory=True, ")])
def test_starved_cpu_idle_does_not_ask_for_what_is_so_already(names: tuple[tuple[str, int], ...], pin: str) -> None:
    finding = found(few(trainer={"thread_names": names}).verdict(), "starved-cpu-idle")
    assert finding is not None
    assert (finding.steps[0].command or "").endswith(f", {pin}persistent_workers=True, prefetch_factor=4)")


def test_the_limits_that_are_told_are_those_of_the_site() -> None:
    site = {**LIMITS, "starved": {**LIMITS["starved"], "duty": 0.7}}
    site["starved-cpu-idle"] = {**LIMITS["starved-cpu-idle"], "saturation": 0.5}
    for limits, told in ((LIMITS, [80, 80]), (site, [70, 80])):
        *_, (_, said) = judged((few().frame(float(t)) for t in range(120)), limits)
        finding = found(said, "starved-cpu-idle")
        assert finding is not None
        assert [item.limit for item in finding.evidence if item.limit is not None] == pytest.approx(told)
    *_, (_, said) = judged((few(gpu={"busy_percent": 75.0}).frame(float(t)) for t in range(120)), site)
    assert found(said, "starved-cpu-idle") is None


def test_an_unknown_signal_makes_it_less_sure() -> None:
    sure = few(host={"io_pressure": Pressure(some_percent=1.0)}).verdict()
    less = few(loader={"blocked_percent": None, "missing": DENIED}).verdict()
    confidences = [finding.confidence for said in (sure, less) if (finding := found(said, "starved-cpu-idle"))]
    assert confidences == pytest.approx([0.7, 0.56])


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),
        ({"trainer": {"read_chars_per_s": 0.9e6}}, False),
        ({"trainer": {"read_chars_per_s": 0.0}}, False),
        ({"trainer": {"read_chars_per_s": 0.0}, "gpu": {"busy_percent": lambda t: 100.0 * (t % 8 < 4)}}, True),
        ({"trainer": {"main_thread_percent": 84.0}}, False),
        ({"trainer": {"cpu_percent": 170.0}}, False),
        ({"gpu": {"busy_percent": 81.0}}, False),
    ],
)
def test_loader_in_main(changes: dict[str, Any], fires: bool) -> None:
    finding = found(alone(**changes).verdict(), "loader-in-main")
    assert (finding is not None) == fires
    if finding:
        assert any("num_workers=8" in (step.command or "") for step in finding.steps)
        assert finding.severity == "warn"


def test_who_reads_nothing_may_compute_something_else_than_its_data() -> None:
    """As one that simulates the world it learns in."""
    gaps = {"busy_percent": lambda t: 100.0 * (t % 8 < 4)}
    finding = found(alone(trainer={"read_chars_per_s": 0.0}, gpu=gaps).verdict(), "loader-in-main")
    assert finding is not None
    assert finding.headline.endswith("data loading (num_workers=0) or other CPU work")
    assert (finding.steps[0].action, finding.steps[1].text[:26]) == ("stack", "If it is in the DataLoader")


@pytest.mark.parametrize(
    ("loaders", "cpu", "duty", "changes", "severity"),
    [
        (17, 35.0, 97.0, {}, "info"),
        (16, 35.0, 97.0, {}, None),
        (17, 35.0, 85.0, {}, "warn"),
        (17, 25.0, 85.0, {}, None),  # they sleep: perhaps they are there for what they wait for
        (17, 25.0, 97.0, {}, "info"),
        (17, 25.0, 97.0, {"loader": {"blocked_percent": 11.0}}, None),
        (8, 14.0, 97.0, {}, "info"),
        (8, 16.0, 97.0, {}, None),
        (3, 5.0, 97.0, {}, None),
        (8, 14.0, 97.0, {"host": {"receive_bytes_per_s": 21e6}}, None),
    ],
)
def test_workers_oversized(
    loaders: int, cpu: float, duty: float, changes: dict[str, Any], severity: str | None
) -> None:
    machine = Machine(gpu={"busy_percent": duty}, loader={"cpu_percent": cpu}, loaders=loaders)
    finding = found(changed(machine, changes).verdict(100), "workers-oversized")
    assert (finding and finding.severity) == severity
    if finding:
        assert not finding.primary
        assert finding.steps[0].command == f"DataLoader(..., num_workers={15 if loaders == 17 else 2})"


def test_a_quota_counts_where_pytorch_sees_more_cpus() -> None:
    trainer = {"allowed_cpus": 4.0, "affinity": "0-15"}
    finding = found(Machine(trainer=trainer, loader={"cpu_percent": 40.0}, loaders=5).verdict(90), "workers-oversized")
    assert finding is not None
    texts = [item.text for item in finding.evidence]
    assert texts[0] == "5 workers on 4 allowed CPUs"
    assert texts[-1] == "PyTorch detects 16 CPUs and does not warn: the quota allows 4"
    assert finding.steps[0].command == "DataLoader(..., num_workers=3)"


BUCKET = (Mount(path="/data", device="s3fs", file_system="fuse.s3fs", network=True),)


def asleep(**changes: dict[str, Any]) -> Machine:
    """Four loaders that sleep, and a trainer that waits for them."""
    trainer = {"cpu_percent": 5.0, "main_thread_percent": 5.0}
    return changed(Machine(gpu=dict(WAITING), trainer=trainer, loader={"cpu_percent": 2.0}, loaders=4), changes)


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),
        ({"loader": {"cpu_percent": 61.0}}, False),
        ({"loader": {"cpu_percent": 59.0}}, True),
        ({"trainer": {"main_thread_percent": 51.0}}, False),
        ({"loader": {"blocked_percent": 11.0}}, False),
        ({"loader": {"run_wait_percent": 60.0}}, True),  # of next to nothing
        ({"host": {"steal_percent": 6.0}}, True),  # likewise
        ({"loader": {"run_wait_percent": 60.0, "cpu_percent": 20.0}}, False),
        ({"loader": {"age_s": 30.0}}, False),  # they have just come
        ({"trainer": {"read_bytes_per_s": 21e6}}, False),
        ({"host": {"io_pressure": Pressure(some_percent=50.0)}}, True),  # that is somebody else's
        ({"host": {"receive_bytes_per_s": 21e6}}, False),
        ({"gpu": {"busy_percent": 81.0}}, False),
    ],
)
def test_head_of_line(changes: dict[str, Any], fires: bool) -> None:
    finding = found(asleep(**changes).verdict(90), "head-of-line")
    assert (finding is not None) == fires
    assert finding is None or ("in_order=False" in (finding.steps[0].command or "") and finding.severity == "warn")


@pytest.mark.parametrize("cpu", [20.0, 50.0])
def test_loaders_that_mostly_or_often_sleep_are_blocked_by_slow_samples(cpu: float) -> None:
    finding = found(asleep(loader={"cpu_percent": cpu}).verdict(90), "head-of-line")
    assert finding is not None
    assert finding.headline == "dataloader-bound, head-of-line blocking on slow samples"


@pytest.mark.parametrize(
    ("host", "reads", "network"),
    [
        ({}, 2e6, None),
        ({"receive_bytes_per_s": 1e6}, 0.0, "or slow network reads"),  # enough for text
        ({"mounts": BUCKET}, 2e6, "or slow reads from /data (fuse.s3fs)"),
        ({"mounts": BUCKET}, 0.0, None),  # nobody reads from it
    ],
)
def test_loaders_that_sleep_may_wait_for_the_network(host: dict[str, Any], reads: float, network: str | None) -> None:
    finding = found(asleep(host=host, trainer={"read_chars_per_s": reads}).verdict(90), "head-of-line")
    assert finding is not None
    assert finding.headline.endswith(network or "head-of-line blocking on slow samples")
    assert ("gputop stack" in (finding.steps[0].command or "")) == (network is not None)


def test_head_of_line_needs_two_loaders_and_abstains_where_their_state_is_hidden() -> None:
    alone = asleep()
    alone.loaders = 1
    assert found(alone.verdict(90), "head-of-line") is None
    said = asleep(loader=refused("blocked_percent")).verdict(60)
    assert silent(said, "head-of-line")
    assert found(said, "head-of-line") is None


@pytest.mark.parametrize(("others", "skewed"), [(10.0, True), (30.0, False)])
def test_one_loader_may_do_the_work_of_all(others: float, skewed: bool) -> None:
    machine = asleep(loader={"cpu_percent": others})

    def frame(t: float) -> Frame:
        now = machine.frame(t)
        *rest, last = now.processes
        return replace(now, processes=(*rest, replace(last, cpu_percent=95.0)))

    finding = found(after(frame, 100), "head-of-line")
    assert finding is not None
    assert (finding.headline == "dataloader-bound, one of 4 workers does most of the work") == skewed
    assert skewed == ("worker PID 203 uses 95 % of a core" in [item.text for item in finding.evidence])
