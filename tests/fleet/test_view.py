"""Series become lines: which host each belongs to, what it is called, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from gputop.fleet.promql import Sample
from gputop.fleet.view import OLD_S, FleetAnswer, FleetHost, host_of, hosts, target
from gputop.prometheus import families
from tests.fleet.scripted import AGE_S, Answers, names
from tests.fleet.simulated import DEAD, HEADLINE, HOT, IDLE, JUDGING, SLOW, name

NOW_S = 1_800_000_000.0
A, B = (
    {"instance": "n1:9400", "job": "gputop", "cluster": "a"},
    {"instance": "n1:9400", "job": "gputop", "cluster": "b"},
)
WARN = {"rule": "io-bound", "severity": "warn", "kind": "job", "subject": "bert", "gpus": "0", "job_id": "1",
        "job_name": "bert"}  # fmt: skip


def value(tag: str, number: float | None, target: Mapping[str, str] = A, **labels: str) -> Sample:
    """A value of a host as it is answered."""
    return Sample({**target, "gputop_value": tag, **labels}, NOW_S, number)


def finding(target: Mapping[str, str] = A, primary: str = "true", **change: str) -> Sample:
    """A finding of a host."""
    return Sample({"__name__": families.FINDING.name, **WARN, "primary": primary, **target, **change}, NOW_S, 2.0)


def headline(text: str, target: Mapping[str, str] = A, **change: str) -> Sample:
    """The headline of the same finding."""
    labels = {"__name__": families.FINDING_HEADLINE.name, **WARN, "headline": text, **target, **change}
    return Sample(labels, NOW_S, 1.0)


def made(values: Sequence[Sample], findings: Sequence[Sample] = (), **more: object) -> list[FleetHost]:
    """The hosts of an answer."""
    return hosts(FleetAnswer(values, findings), **{"seen": {}, **more})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def simulated() -> dict[str, FleetHost]:
    """Ten hosts, each with something of its own."""
    answers = Answers(names(10), NOW_S)
    samples = [
        [Sample(one["metric"], one["value"][0], float(one["value"][1])) for one in series]
        for series in (answers.values(), answers.findings(), answers.seen())
    ]
    seen = {target(one.labels): one.value for one in samples[2] if one.value is not None}
    return {host.row.name: host for host in hosts(FleetAnswer(*samples[:2]), seen)}


def test_a_host_has_a_line_with_every_value(simulated: dict[str, FleetHost]) -> None:
    row = simulated[name(SLOW)].row
    assert (row.state, row.gpus, row.gpus_busy, row.jobs, row.badge) == ("live", 8, 8, 1, "warn")
    assert row.age_s == pytest.approx(AGE_S)
    assert row.gpus_lost == pytest.approx(1.8)
    assert (row.vram_percent, row.cpu_percent, row.memory_percent) == (75.0, 25.0, 20.0)
    assert row.finding == f"llama-7b: {HEADLINE}"
    assert row.busy_percent is not None
    assert 30 <= row.busy_percent <= 70


def test_the_worst_finding_comes_first_and_others_are_counted(simulated: dict[str, FleetHost]) -> None:
    hot = simulated[name(HOT)]
    assert [one.severity for one in hot.findings] == ["crit", "warn"]
    assert (hot.row.badge, hot.row.findings) == ("crit", 2)
    assert hot.row.finding == "GPU 6: hardware thermal slowdown"
    assert (hot.findings[0].lost_share, hot.findings[0].since_s) == (0.2, 720.0)
    assert hot.findings[1].lost_share is None


def test_without_findings_the_jobs_say_how_they_are(simulated: dict[str, FleetHost]) -> None:
    said = {number: (simulated[name(number)].row.badge, simulated[name(number)].row.finding)
            for number in (0, JUDGING, IDLE)}  # fmt: skip
    assert said == {
        0: ("ok", "1 job healthy"), JUDGING: ("judging", "1 job (judging)"),
        IDLE: ("", "no job is running on the GPUs"),
    }  # fmt: skip


def test_a_host_without_values_is_lost_and_says_why(simulated: dict[str, FleetHost]) -> None:
    row = simulated[name(DEAD)].row
    assert (row.state, row.gpus, row.why) == ("lost", None, "exporter down or unreachable (up is 0)")
    assert row.age_s is not None
    assert row.age_s > 1000
    (silent,) = made([], seen={target(A): NOW_S - 60})
    assert (silent.row.state, silent.row.why) == ("lost", "the target has no gputop metrics")


def test_old_values_are_marked_by_the_clocks_of_their_host_and_of_prometheus() -> None:
    for age_s, state in ((OLD_S - 1, "live"), (OLD_S + 1, "stale"), (-30.0, "live")):
        (host,) = made([value("gpus", 8), value("frame", NOW_S - age_s)])
        assert host.row.state == state
        assert host.row.age_s == max(0.0, age_s)
    (host,) = made([value("gpus", 8)])
    assert (host.row.state, host.row.age_s) == ("live", None)


def test_what_is_unknown_is_not_zero() -> None:
    (host,) = made([value("gpus", 8), value("busy", None)])
    row = host.row
    assert {row.busy_percent, row.gpus_busy, row.vram_percent, row.power_watts, row.gpus_lost, row.jobs} == {None}
    assert (row.badge, row.finding) == ("", "")


def test_targets_of_one_name_are_told_apart_by_what_differs() -> None:
    both = [value("gpus", 8, A), value("gpus", 4, B), value("busy", 0.5, A), value("busy", 0.25, B)]
    found = made(both, [finding(B), headline("I/O-bound", B)])
    assert [(host.row.name, host.row.gpus, host.row.busy_percent) for host in found] == [
        ("n1 (a)", 8, 50.0), ("n1 (b)", 4, 25.0),
    ]  # fmt: skip
    assert [host.row.finding for host in found] == ["", "bert: I/O-bound"]
    assert {host.ssh_name for host in found} == {"n1"}


def test_a_rule_may_add_labels_to_a_series() -> None:
    ruler = {**A, "ruler": "thanos-1"}
    (host,) = made([value("gpus", 8), value("busy", 0.5, ruler)], [finding({**A, "replica": "x"})])
    assert (host.row.busy_percent, host.row.badge) == (50.0, "warn")
    found = made([value("gpus", 8, A), value("gpus", 8, B), value("busy", 0.5, {**A, "ruler": "x"})])
    assert [one.row.busy_percent for one in found] == [50.0, None]


def test_a_series_that_belongs_to_no_host_is_ignored() -> None:
    stranger = {"instance": "web:80", "job": "web"}
    (host,) = made([value("gpus", 8), value("down", 0, stranger), value("busy", 0.5, stranger)], [finding(stranger)])
    assert (host.row.busy_percent, host.findings) == (None, ())


def test_a_finding_without_headline_is_its_rule_and_a_healthy_host_needs_none() -> None:
    (host,) = made([value("gpus", 8)], [finding()])
    assert host.row.finding == "bert: io-bound"
    (host,) = made([value("gpus", 8)], [headline("alone")])
    assert host.findings == ()


def test_an_info_is_on_the_line_only_if_it_leads() -> None:
    for primary, badge in (("true", "info"), ("false", "")):
        (host,) = made([value("gpus", 8)], [finding(severity="info", primary=primary)])
        assert (host.row.badge, host.row.findings) == (badge, 0)


def test_a_prometheus_that_keeps_only_recorded_series_knows_how_bad_it_is() -> None:
    (host,) = made([value("gpus", 8), value("severity", 3), value("job_count", 2)])
    assert (host.row.badge, host.row.finding, host.row.jobs) == ("crit", "open it for the finding", 2)
    (host,) = made([value("gpus", 8), value("severity", 0), value("job_count", 2)])
    assert (host.row.badge, host.row.finding) == ("ok", "2 jobs")


HOSTILE = "\x1b]0;owned\x07\u202eevil\n" + "x" * 9999


def test_h05_hostile_labels_are_cleaned_and_cut() -> None:
    strange = {"instance": HOSTILE, "job": HOSTILE}
    changed = dict.fromkeys(("rule", "subject", "gpus", "job_name"), HOSTILE)
    (host,) = made(
        [value("gpus", 8, strange), value("user", 1, strange, user=HOSTILE),
         value("hostname", 1, strange, hostname=HOSTILE), value("jobs", 1e300, strange, state=HOSTILE)],
        [finding(strange, **changed), headline(HOSTILE, strange, **changed)],
    )  # fmt: skip
    texts = [host.row.name, *host.row.users, host.row.finding, host.instance, host.hostname, host.findings[0].rule]
    assert all(text.isprintable() and len(text) < 400 for text in texts), texts


@pytest.mark.parametrize("number", [1e308, -1e308, -1.0, 1.5])
def test_h05_absurd_numbers_are_harmless(number: float) -> None:
    tags = ("gpus", "gpus_busy", "busy", "vram", "power", "cpu", "memory", "job_count", "lost", "severity", "frame")
    (host,) = made([value(tag, number) for tag in tags] + [value("jobs", number, state="found")])
    row = host.row
    assert row.gpus is not None
    assert row.jobs is not None
    assert 0 <= row.gpus <= 99_999 >= row.jobs >= 0
    assert {row.busy_percent, row.vram_percent, row.gpus_lost} == {None}
    assert row.power_watts == (number if number == 1.5 else None)


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        ("dgx-07:9400", "dgx-07"), ("dgx-07", "dgx-07"), ("dgx-07.example.org:9400", "dgx-07.example.org"),
        ("10.0.3.7:9400", "10.0.3.7"), ("10.0.3.7", "10.0.3.7"), ("[2001:db8::7]:9400", "2001:db8::7"),
        ("2001:db8::7", "2001:db8::7"), ("http://dgx-07:9400/metrics", "dgx-07"), ("a:b", "a:b"), ("", ""),
    ],
)  # fmt: skip
def test_ssh_gets_the_host_of_a_target(instance: str, host: str) -> None:
    assert host_of(instance) == host


def test_a_host_may_be_called_by_its_own_name() -> None:
    values = [value("gpus", 8), value("hostname", 1, hostname="dgx-07.cluster"), value("gpus", 8, {"instance": "n2:1"})]
    assert [(one.row.name, one.ssh_name) for one in made(values, ssh_name="hostname")] == [
        ("dgx-07.cluster", "dgx-07.cluster"), ("n2", "n2"),
    ]  # fmt: skip
    assert [one.row.name for one in made(values)] == ["n1", "n2"]
