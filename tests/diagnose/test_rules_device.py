"""Power, clocks, links, errors, settings: each rule fires, just does not, and abstains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.model import Frame, GpuShare, Missing, NvLink, Process, Xid
from gputop.units import parse_ranges
from tests.rule_cases import Machine, after, found, hours, refused, silent

UNCOUNTED = {"throttled_brake_percent": None, "throttled_heat_hard_percent": None}  # as drivers before 575


def machine(**gpu: object) -> Machine:
    return Machine(gpu=gpu)


@pytest.mark.parametrize(
    ("gpu", "severity", "healthy"),
    [
        ({"throttled_power_percent": 100.0, "power_limit_watts": 300.0}, "warn", False),
        ({"throttled_power_percent": 31.0}, "info", True),
        ({"throttled_power_percent": 29.0}, None, None),
        ({"throttled_brake_percent": 1.1}, "crit", False),
        ({"throttled_brake_percent": 0.9}, None, None),
        ({"throttled_brake_percent": 0.0, "throttle_reasons": frozenset({"power brake"})}, None, None),
        ({**UNCOUNTED, "throttle_reasons": frozenset({"hw slowdown", "power brake"})}, "crit", False),
        ({**UNCOUNTED, "throttle_reasons": frozenset({"hw slowdown"})}, "warn", False),
        ({**UNCOUNTED, "throttle_reasons": frozenset({"hw slowdown", "hw thermal"})}, None, None),
        ({**UNCOUNTED, "throttle_reasons": frozenset({"hw slowdown"}), "performance_state": 8}, None, None),
        ({"throttle_reasons": frozenset({"hw slowdown"})}, "warn", False),
        ({"throttle_reasons": frozenset({"hw slowdown"}), "throttled_heat_hard_percent": 30.0}, None, None),
    ],
)
def test_power(gpu: dict[str, object], severity: str | None, healthy: bool | None) -> None:
    finding = found(machine(**gpu).verdict(), "power")
    assert (finding and finding.severity) == severity
    assert (finding and finding.healthy) == healthy


@pytest.mark.parametrize(
    ("asked", "headline", "command"),
    [
        (700.0, "power limit 500 W (default 700 W), enforced by the server", None),
        (600.0, "power limit 500 W (default 700 W), enforced by the server", None),
        (500.4, "power limit 500 W (default 700 W)", "sudo nvidia-smi -i 0 -pl 700"),
        (None, "power limit 500 W (default 700 W)", "sudo nvidia-smi -i 0 -pl 700"),
    ],
)
def test_power_tells_a_cap_of_the_server_from_a_limit_that_was_set(
    asked: float | None, headline: str, command: str | None
) -> None:
    limits = {"power_limit_watts": 500.0, "power_requested_limit_watts": asked}
    told = found(machine(throttled_power_percent=80.0, **limits).verdict(), "power")
    assert told is not None
    assert told.headline == headline
    assert [step.command for step in told.steps] == [command]
    assert any("requested limit" in item.text for item in told.evidence) == (command is None)


@pytest.mark.parametrize(
    ("gpu", "told"),
    [
        (
            {},
            [
                "power 600 W, limit 700 W (default 700 W)",
                "power-capped 80 % of the last 60 s",
                "mean SM clock 1980 of 1980 MHz (0 %)",
            ],
        ),
        ({"power_watts": None, "sm_clock_mhz": None}, ["power-capped 80 % of the last 60 s"]),
    ],
)
def test_power_says_nothing_of_what_cannot_be_read(gpu: dict[str, object], told: list[str]) -> None:
    finding = found(machine(throttled_power_percent=80.0, **gpu).verdict(), "power")
    assert finding is not None
    assert [item.text for item in finding.evidence] == told
    braked = found(machine(throttled_brake_percent=80.0, **gpu).verdict(), "power")
    assert braked is not None
    assert any("SM clock" in item.text for item in braked.evidence) == (not gpu)


def test_power_abstains_where_the_driver_counts_no_power_cap() -> None:
    said = machine(throttled_power_percent=None).verdict(5)
    assert (one := silent(said, "power")) is not None
    assert [missing.metric for missing in one.missing] == ["throttled_power_percent"]


@pytest.mark.parametrize(
    ("gpu", "fires"),
    [
        ({"sm_clock_mhz": 1480.0}, True),
        ({"sm_clock_mhz": 1490.0}, False),
        ({"sm_clock_mhz": 1400.0, "busy_percent": 49.0}, False),
        ({"sm_clock_mhz": 1400.0, "throttled_power_percent": 3.0}, False),
        ({"sm_clock_mhz": 1400.0, "throttle_reasons": frozenset({"thermal"})}, False),
        ({"sm_clock_mhz": 345.0, "performance_state": 8}, False),
    ],
)
def test_clocks_low(gpu: dict[str, object], fires: bool) -> None:
    finding = found(machine(**gpu).verdict(), "clocks-low")
    assert (finding is not None) == fires


UNBOOSTED: dict[str, Any] = {
    "boost_clock_max_mhz": None, "power_watts": 300.0, "power_limit_watts": 450.0, "power_default_limit_watts": 450.0
}  # fmt: skip
A100: dict[str, Any] = {**UNBOOSTED, "name": "NVIDIA A100-SXM4-80GB", "sm_clock_max_mhz": 1410.0}
LAPTOP = "NVIDIA GeForce RTX 4090 Laptop GPU"
RTX_4090: dict[str, Any] = {
    **UNBOOSTED, "name": "NVIDIA GeForce RTX 4090", "architecture": "ada", "sm_clock_max_mhz": 3105.0
}  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "fires", "silent_for"),
    [
        # 3105 MHz is the end of its voltage curve: its boost clock is 2520, of which less than 1890 is low
        ({**RTX_4090, "sm_clock_mhz": 2700.0}, False, None),
        ({**RTX_4090, "sm_clock_mhz": 2235.0}, False, None),
        ({**RTX_4090, "sm_clock_mhz": 1950.0}, False, None),
        ({**RTX_4090, "sm_clock_mhz": 1500.0}, True, None),
        ({**RTX_4090, "name": LAPTOP, "sm_clock_mhz": 1600.0}, False, "boost_clock_max_mhz"),
        ({**RTX_4090, "name": "NVIDIA GB10", "sm_clock_mhz": 1600.0}, False, "boost_clock_max_mhz"),
        ({**RTX_4090, "name": LAPTOP, "boost_clock_max_mhz": 2040.0, "sm_clock_mhz": 1400.0}, True, None),
        # what the data center runs reaches its highest clock
        ({**UNBOOSTED, "name": "NVIDIA H100 80GB HBM3", "sm_clock_mhz": 1480.0}, True, None),
        ({**A100, "sm_clock_mhz": 1050.0}, True, None),
        ({**A100, "sm_clock_mhz": 1065.0}, False, None),
        ({**RTX_4090, "sm_clock_mhz": 1500.0, "throttle_reasons": frozenset({"reliability"})}, False, None),
        ({"sm_clock_mhz": 1400.0, "throttle_reasons": frozenset({"other"})}, False, None),
        ({"sm_clock_mhz": 1400.0, "throttle_reasons": frozenset({"clock settings"})}, True, None),
    ],
)
def test_clocks_low_is_held_against_what_the_card_holds_at_work(
    gpu: dict[str, object], fires: bool, silent_for: str | None
) -> None:
    said = machine(**gpu).verdict()
    told, abstained = found(said, "clocks-low"), silent(said, "clocks-low")
    assert (told is not None) == fires
    assert (abstained.missing[0].metric if abstained else None) == silent_for


def test_a_power_capped_card_does_not_lose_what_it_never_had() -> None:
    capped = {**RTX_4090, "power_watts": 448.0, "throttled_power_percent": 90.0}
    told = found(machine(**capped, sm_clock_mhz=2520.0).verdict(), "power")
    assert (told.headline, told.lost_share) == ("power-capped at full load, as expected", None)
    told = found(machine(**{**capped, "name": LAPTOP}, sm_clock_mhz=1200.0).verdict(), "power")
    assert (told.severity, told.lost_share) == ("info", None)
    assert told.evidence[-1].text == "mean SM clock 1200 MHz (boost clock unknown)"
    hot = {**capped, "throttled_heat_percent": 60.0, "throttled_power_percent": 0.0}
    told = found(machine(**hot, sm_clock_mhz=2268.0).verdict(), "thermal")
    assert told.lost_share == pytest.approx(0.1, abs=0.01)


def test_clocks_low_abstains_without_a_clock() -> None:
    assert silent(machine(sm_clock_mhz=None).verdict(5), "clocks-low") is not None


def test_persistence_off_is_told_once_for_the_machine() -> None:
    said = machine(persistence_mode=False).verdict(60)
    told = found(said, "persistence-off")
    assert told is not None
    assert (told.severity, told.primary, told.subject.kind) == ("info", False, "host")
    assert told.steps[0].needs_root
    assert found(machine(persistence_mode=True).verdict(60), "persistence-off") is None


@pytest.mark.parametrize(
    "keeper", [{"name": "nv-hostengine"}, {"gpus": (GpuShare(uuid="G", kind="graphics"),)}, {"unseen": "foreign"}]
)
def test_persistence_off_does_not_matter_where_somebody_keeps_the_driver(keeper: dict[str, Any]) -> None:
    one = machine(persistence_mode=False)
    beside = Process(pid=9, started_ticks=1, **keeper)
    said = after(lambda t: replace(one.frame(t), processes=(*one.frame(t).processes, beside)), 60)
    assert found(said, "persistence-off") is None


def test_persistence_off_abstains_where_it_may_not_be_asked() -> None:
    assert silent(machine(**refused("persistence_mode")).verdict(5), "persistence-off") is not None


def links(*groups: NvLink) -> dict[str, object]:
    return {"nvlinks": groups, "nvlinks_active": sum(len(parse_ranges(one.numbers)) for one in groups if one.up)}


def flaky(again_per_min: float = 0.0, damaged_per_s: float = 0.0) -> dict[str, object]:
    def now(t: float) -> tuple[NvLink, ...]:
        sick = NvLink(numbers="3", up=True, replays=int(t * again_per_min / 60), crc_errors=int(t * damaged_per_s))
        return (NvLink(numbers="0-2", up=True, replays=7, crc_errors=0), sick)

    return {"nvlinks": now, "nvlinks_active": 4}


@pytest.mark.parametrize(
    ("gpu", "severity"),
    [
        ({"ecc_uncorrected": lambda t: 1 + (t > 20)}, "crit"),
        ({"ecc_uncorrected": 3}, None),  # before we looked
        ({"remap_failed": True}, "crit"),
        ({"remap_pending": True}, "warn"),
        ({"retirement_pending": True}, "warn"),
        ({"remapped_uncorrected": 512}, "warn"),
        ({"remapped_uncorrected": 511}, None),
        ({"retired_pages": 15}, "warn"),
        ({"retired_pages": 14}, None),
        ({"retired_pages": 63}, "crit"),
        ({"recovery_action": "reset"}, "crit"),
        ({"recovery_action": "drain peers"}, "warn"),
        ({"condition": lambda t: "lost" if t > 20 else "ok", "age_s": lambda t: max(0.0, t - 20)}, "crit"),
        ({"xids": (Xid(number=79, wall_s=3.0),)}, "crit"),
        ({"xids": (Xid(number=63, wall_s=3.0),)}, "warn"),
        ({"xids": (Xid(number=31, wall_s=3.0),)}, "info"),
        ({"xids": (Xid(number=31, wall_s=-600.0),)}, None),
        ({"xids": (Xid(number=62, wall_s=3.0),)}, "crit"),
        ({"xids": (Xid(number=109, wall_s=3.0),)}, "crit"),
        ({"xids": (Xid(number=149, wall_s=3.0),)}, "warn"),
        ({"xids": (Xid(number=141, wall_s=3.0),)}, "warn"),  # not in anybody's list
        ({"xids": (Xid(number=999, wall_s=-86_500.0),)}, None),
        ({"xids": (Xid(number=154, wall_s=3.0),)}, None),  # what is to be done is said by the recovery action
        (flaky(again_per_min=3.0), None),  # nobody counted for long enough
        (flaky(damaged_per_s=101.0), "crit"),
        (flaky(damaged_per_s=94.0), None),
        ({"nvlinks_active": lambda t: 18 - (t > 20)}, "warn"),
        ({"nvlinks_active": 4}, None),  # as somebody wired it
    ],
)
def test_hw_errors(gpu: dict[str, object], severity: str | None) -> None:
    finding = found(machine(**gpu).verdict(100), "hw-errors")
    assert (finding and finding.severity) == severity
    assert finding is None or severity == "info" or finding.primary


@pytest.mark.parametrize(
    ("asks", "commands"),
    [
        ("reset", ["nvidia-smi -r"]),
        ("drain and reset", ["nvidia-smi -r"]),
        ("reboot", ["systemctl reboot"]),
        ("reboot system", ["systemctl reboot"]),
        ("recover domain", []),
        ("reset bus", []),
        ("drain peers", []),
    ],
)
def test_what_the_driver_asks_for_is_what_is_advised(asks: str, commands: list[str]) -> None:
    told = found(machine(recovery_action=asks).verdict(100), "hw-errors")
    assert told is not None
    ends = [step.command or "" for step in told.steps if step.destroys]
    assert [any(part in one for one in ends) for part in commands] == [True] * len(commands) == [True] * len(ends)


@pytest.mark.parametrize(("again_per_min", "fires"), [(1.2, True), (0.8, False)])
def test_links_that_fail_now_and_then_are_counted_for_minutes(again_per_min: float, fires: bool) -> None:
    finding = found(hours(machine(**flaky(again_per_min=again_per_min)).frame, 9), "hw-errors")
    assert (finding is not None) == fires


def test_hw_errors_comes_at_once_and_marks_what_stops_jobs() -> None:
    said = machine(remap_pending=True, xids=(Xid(number=48, wall_s=0.0),)).verdict(8)
    told = found(said, "hw-errors")
    assert told is not None
    assert told.headline == "Xid 48, double-bit ECC error"
    assert [item.text for item in told.evidence] == [
        "Xid 48, 6 s ago",
        "row remapping pending; running jobs are not affected",
    ]
    reset = next(step for step in told.steps if step.command == "sudo nvidia-smi -r -i 0")
    assert reset.needs_root
    assert reset.destroys


def test_an_error_that_is_in_no_list_is_told_by_its_number() -> None:
    told = found(machine(xids=(Xid(number=141, wall_s=0.0), Xid(number=147, wall_s=0.0))).verdict(8), "hw-errors")
    assert told is not None
    assert told.headline == "Xid 141"
    assert [item.text for item in told.evidence] == ["Xid 141, 6 s ago", "Xid 147, 6 s ago"]
    assert not any(step.destroys for step in told.steps)


def test_a_fault_of_a_program_is_said_to_be_one() -> None:
    told = found(machine(xids=(Xid(number=31, wall_s=0.0),)).verdict(120), "hw-errors")
    assert told is not None
    assert told.headline.endswith("likely a program error")
    assert not told.primary  # all else is well
    assert not any(step.destroys for step in told.steps)


def test_links_are_held_against_those_of_the_other_cards() -> None:
    one = machine(**links(NvLink(numbers="0-16", up=True), NvLink(numbers="17", up=False)))

    def frame(t: float) -> Frame:
        first = one.frame(t).gpus[0]
        others = (replace(first, uuid=name, index=name, nvlinks_active=18) for name in "123")
        return replace(one.frame(t), gpus=(first, *others))

    told = found(after(frame, 20), "hw-errors")
    assert told is not None
    assert told.headline == "1 NVLink down"


def test_hw_errors_abstains_where_nothing_counts_errors() -> None:
    said = machine(**refused("ecc_uncorrected"), recovery_action=None).verdict(5)
    assert silent(said, "hw-errors") is not None


def cut(**instance: Any) -> Callable[[float], Frame]:
    """A card with one instance, looked at every 15 s."""
    one = machine(mig_mode=True, busy_percent=None, sm_active_percent=None)
    part = {"parent_uuid": "G", "uuid": "M", "index": "0:0", "name": "3g.40gb", "vram_total_bytes": 40 * 2**30}

    def frame(t: float) -> Frame:
        whole = one.frame(t).gpus[0]
        return replace(one.frame(t), gpus=(whole, replace(whole, **part | instance)))

    return frame


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (cut(), "MIG instances without utilization metrics"),
        (cut(sm_active_percent=39.0, vram_used_bytes=15 * 2**30), "MIG instances larger than needed"),
        (cut(sm_active_percent=41.0, vram_used_bytes=15 * 2**30), None),
        (cut(sm_active_percent=39.0, vram_used_bytes=17 * 2**30), None),
        (cut(parent_uuid=None), "MIG enabled without instances, GPU unusable"),
    ],
)
def test_mig_visibility(frame: Callable[[float], Frame], words: str | None) -> None:
    told = found(hours(frame, 17), "mig-visibility")
    assert (told and told.headline) == words
    assert told is None or (told.severity, told.primary) == ("info", False)


def test_mig_visibility_names_the_rules_that_are_silent() -> None:
    untold = (Missing(metric="busy_percent", reason="unsupported"),)
    told = found(hours(cut(missing=untold), 2), "mig-visibility")
    assert told is not None
    assert told.evidence[1].text == "no utilization reported for 0:0; checks skipped: clocks-low"
