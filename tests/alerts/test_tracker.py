"""When an alert fires, stays silent, and is over: tables of conditions over time, by the clock of the frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.alerts.condition import Filter, FindingCondition, MetricCondition
from gputop.alerts.message import as_json
from gputop.alerts.metric_values import metric_names
from gputop.alerts.tracker import MOST_MESSAGES, UNMEASURED_S, AlertRule, AlertTracker
from gputop.diagnose import Subject
from gputop.model import Disk, Mount, Pressure
from tests.alert_updates import WALL_S, at, finding, gpu, hot_rule, told, trainer, update

HOT, COOL, UNKNOWN = 91.0, 60.0, None
Timeline = list[tuple[float, float | None, list[str]]]


def steps(start_s: int, end_s: int, celsius: float | None, every_s: int = 10) -> Timeline:
    """So hot from one second to another, without a word."""
    return [(float(t), celsius, []) for t in range(start_s, end_s, every_s)]


@pytest.mark.parametrize(
    ("rule", "timeline"),
    [
        pytest.param(
            {}, [*steps(0, 60, HOT), (60.0, HOT, ["firing"]), *steps(70, 600, HOT)], id="fires once after its duration"
        ),
        pytest.param(
            {"for_s": 0.0}, [(0.0, COOL, []), (1.0, HOT, ["firing"]), (2.0, HOT, [])], id="at once without a duration"
        ),
        pytest.param(
            {}, [*steps(0, 50, HOT), (50.0, COOL, []), *steps(60, 120, HOT), (120.0, HOT, ["firing"])],
            id="a break begins the duration again",
        ),
        pytest.param(
            {},
            [*steps(0, 60, HOT), (60.0, HOT, ["firing"]), *steps(70, 130, COOL), (130.0, COOL, ["resolved cleared"]),
             *steps(140, 300, COOL)],
            id="over once it has not held for as long",
        ),
        pytest.param(
            {"for_s": 0.0},
            [(0.0, HOT, ["firing"]), (1.0, COOL, []), (15.0, COOL, []), (16.0, COOL, ["resolved cleared"])],
            id="never over in less than 15 s",
        ),
        pytest.param(
            {},
            [*steps(0, 60, HOT), (60.0, HOT, ["firing"]), *steps(70, 120, COOL), (120.0, HOT, []),
             *steps(130, 180, COOL), (190.0, HOT, [])],
            id="a short break is no recovery",
        ),
        pytest.param(
            {"recovery": False}, [*steps(0, 60, HOT), (60.0, HOT, ["firing"]), *steps(70, 300, COOL)],
            id="no recovery where none is wanted",
        ),
        pytest.param(
            {"for_s": 0.0, "cooldown_s": 300.0},
            [(0.0, HOT, ["firing"]), (10.0, COOL, []), (25.0, COOL, ["resolved cleared"]), (30.0, HOT, []),
             (40.0, COOL, []), (60.0, COOL, []), *steps(70, 290, COOL), (295.0, HOT, []), (300.0, HOT, ["firing"])],
            id="flapping is silent within the cool-down, and sent after it",
        ),
        pytest.param(
            {"for_s": 0.0, "cooldown_s": 0.0},
            [(0.0, HOT, ["firing"]), (10.0, COOL, []), (25.0, COOL, ["resolved cleared"]), (26.0, HOT, ["firing"])],
            id="without a cool-down every beginning is sent",
        ),
        pytest.param(
            {}, [*steps(0, 30, HOT), (30.0, UNKNOWN, []), (40.0, HOT, []), (50.0, HOT, []), (60.0, HOT, []),
                 (70.0, HOT, ["firing"])],
            id="an unknown value does not count, and ends nothing",
        ),
        pytest.param(
            {}, [*steps(0, 60, HOT), (60.0, HOT, ["firing"]), *steps(70, 200, UNKNOWN), (200.0, HOT, []),
                 *steps(210, 270, COOL), (270.0, COOL, ["resolved cleared"])],
            id="unknown is not over",
        ),
        pytest.param(
            {}, [(0.0, HOT, []), (1.0, HOT, []), (600.0, HOT, []), *steps(610, 640, HOT), (650.0, HOT, ["firing"])],
            id="p15: of a gap in the frames only 15 s count",
        ),
        pytest.param(
            {}, [(float(t), HOT, ["firing"] if t == 2400 else []) for t in range(0, 4000, 600)],
            id="p15: and of several gaps no more each",
        ),
    ],
)  # fmt: skip
def test_a_metric_over_time(rule: dict[str, Any], timeline: Timeline) -> None:
    tracker = AlertTracker(hot_rule(**rule))
    said = [(t, celsius, told(tracker, update(t, gpu(0, celsius)))) for t, celsius, _ in timeline]
    assert said == timeline


def test_frames_that_are_wanted_that_rarely_count_whole() -> None:
    tracker = AlertTracker(hot_rule())
    said = [list(tracker.advance(update(t, gpu(0, HOT)), interval_s=60.0)) for t in (0, 60, 120)]
    assert [len(one) for one in said] == [0, 1, 0]


def test_a_value_that_stays_unknown_ends_the_alert_without_calling_it_cleared() -> None:
    tracker = AlertTracker(hot_rule(for_s=0.0))
    assert told(tracker, update(0, gpu(0, HOT))) == ["firing"]
    said = [(t, told(tracker, update(t))) for t in range(10, 2000, 10)]  # the GPU itself is gone
    (end,) = [(t, words) for t, words in said if words]
    assert end == (UNMEASURED_S, ["resolved unmeasured"])


def test_p15_a_suspended_machine_fires_nothing_and_its_wall_clock_does_not_matter() -> None:
    tracker = AlertTracker(hot_rule())
    for t in range(0, 50, 10):
        assert told(tracker, update(t, gpu(0, HOT))) == []
    hours = 8 * 3600.0
    # the monotonic clock of Linux stands still while the machine is suspended; another may not
    assert told(tracker, at(update(50, gpu(0, HOT)), wall_s=WALL_S + hours)) == []
    (fired,) = tracker.advance(at(update(60, gpu(0, HOT)), wall_s=WALL_S + hours + 10))
    assert (fired.began_wall_s, fired.lasted_s) == (WALL_S, 60.0)


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0, -WALL_S])
def test_p14_a_wall_clock_that_jumps_changes_no_duration(jump_s: float) -> None:
    tracker = AlertTracker(hot_rule())
    said = []
    for t in range(0, 140, 10):
        wall_s = WALL_S + t + (jump_s if t >= 30 else 0)
        said += tracker.advance(at(update(t, gpu(0, HOT if t <= 60 else COOL)), wall_s=wall_s))
    assert [(one.status, one.lasted_s) for one in said] == [("firing", 60.0), ("resolved", 70.0)]
    assert all(one.title and one.lines for one in said)


def test_frames_of_an_earlier_time_start_over() -> None:
    tracker = AlertTracker(hot_rule())
    assert [word for t in range(0, 70, 10) for word in told(tracker, update(t, gpu(0, HOT)))] == ["firing"]
    assert [word for t in range(-500, -450, 10) for word in told(tracker, update(t, gpu(0, COOL)))] == []
    assert [word for t in range(-450, -380, 10) for word in told(tracker, update(t, gpu(0, HOT)))] == ["firing"]


def test_each_gpu_has_its_messages_and_a_lost_one_says_nothing_of_now() -> None:
    tracker = AlertTracker(hot_rule(for_s=0.0))
    both = list(
        tracker.advance(update(0, gpu(0, HOT), gpu(1, HOT), gpu(2, HOT, condition="lost"), gpu(3, HOT, age_s=60)))
    )
    assert [one.about.name for one in both] == ["GPU 0", "GPU 1"]
    assert len({one.id for one in both}) == 2
    assert told(tracker, update(10, gpu(0, COOL), gpu(1, HOT))) == []
    (over,) = tracker.advance(update(30, gpu(0, COOL), gpu(1, HOT)))
    assert (over.status, over.about.name, over.id) == ("resolved", "GPU 0", both[0].id)
    assert over.lasted_s == 10.0
    assert (over.lines[0], over.value) == (f"GPU core temperature {COOL:.0f} °C (alert above 88 °C)", COOL)


def test_a_value_that_is_gone_is_one_that_was() -> None:
    tracker = AlertTracker(hot_rule(for_s=0.0))
    (fired,) = tracker.advance(update(0, gpu(0, HOT)))
    over = [one for t in range(10, 700, 10) for one in tracker.advance(update(t, gpu(0, condition="lost")))]
    assert [(one.ended, one.lines[0], one.value) for one in over] == [("unmeasured", f"was: {fired.lines[0]}", HOT)]


def test_title_and_json_object_say_one_duration() -> None:
    tracker = AlertTracker(hot_rule(for_s=0.0))
    assert told(tracker, update(0, gpu(0, HOT))) == ["firing"]
    assert told(tracker, update(20.96, gpu(0, COOL))) == []
    (over,) = tracker.advance(update(40, gpu(0, COOL)))
    assert over.title.startswith("RESOLVED after 21 s, ")
    assert "(21 s)" in over.text
    assert as_json(over)["lasted_s"] == 21.0


def test_it_counts_how_often_it_began_while_it_was_silent() -> None:
    tracker = AlertTracker(hot_rule(for_s=0.0, cooldown_s=300.0))
    said = []
    for t in range(0, 400, 20):
        said += tracker.advance(update(t, gpu(0, HOT if t % 60 == 0 else COOL)))
    firing = [one for one in said if one.status == "firing"]
    assert [one.times for one in firing] == [1, 5]
    assert firing[1].lines[-2] == "began 5 times since the last message about it"


def test_many_subjects_at_once_send_a_limited_number_of_messages() -> None:
    tracker = AlertTracker(hot_rule(for_s=0.0, cooldown_s=10.0))
    gpus = [gpu(number, HOT) for number in range(100)]
    assert len(told(tracker, update(0, *gpus))) == MOST_MESSAGES
    assert tracker.withheld == 100 - MOST_MESSAGES
    calm = [
        one for t in (10, 30, 50) for one in told(tracker, update(t, *(gpu(number, COOL) for number in range(100))))
    ]
    assert calm == ["resolved cleared"] * MOST_MESSAGES


def test_a_process_that_exits_ends_its_alert() -> None:
    big = MetricCondition(metric=metric_names()["process.rss_bytes"], test="above", limit=2**30)
    tracker = AlertTracker(AlertRule(name="big", condition=big))
    (fired,) = tracker.advance(update(0, processes=(trainer(rss_bytes=2**31), trainer(7, job=None, rss_bytes=2**40))))
    assert (fired.about.name, fired.about.pids, fired.about.job, fired.about.user) == (
        "llama-7b (alice, pid 100)", (100,), "llama-7b", "alice",
    )  # fmt: skip
    assert fired.evidence == ("resident memory 2.0G (alert above 1.0G)",)
    (over,) = tracker.advance(update(300, processes=()))
    what = "dgx-07: llama-7b (alice, pid 100): resident memory above 1.0G"
    assert (over.ended, over.title) == ("exited", f"ENDED after 5 min (its processes exited), {what}")


def rule_of(**fields: Any) -> AlertTracker:
    """An alert on findings."""
    return AlertTracker(AlertRule(name="trouble", condition=FindingCondition(**fields), cooldown_s=900.0))


def test_a_finding_is_sent_in_the_words_of_the_screen_and_again_when_it_is_worse() -> None:
    tracker = rule_of()
    (first,) = tracker.advance(update(0, gpu(0), findings=(finding(),)))
    assert first.title == "WARN dgx-07: GPU 0: hardware thermal slowdown"
    assert first.lines[:3] == (
        "88 °C (healthy ≤ 90 °C)",
        "Next: Improve airflow (needs root)",
        "  nvidia-smi -q -d TEMPERATURE",
    )
    assert (first.began_wall_s, first.lasted_s, first.rule) == (WALL_S - 40, 40.0, "thermal")
    assert told(tracker, update(10, gpu(0), findings=(finding(),))) == []
    (worse,) = tracker.advance(update(20, gpu(0), findings=(finding(severity="crit"),)))
    assert (worse.status, worse.severity, worse.id) == ("firing", "crit", first.id)
    assert told(tracker, update(30, gpu(0), findings=(finding(),))) == []
    assert told(tracker, update(40, gpu(0))) == []
    (over,) = tracker.advance(update(60, gpu(0)))
    assert over.title == "RESOLVED after 1 min 20 s, dgx-07: GPU 0: hardware thermal slowdown"
    assert "Next" not in "".join(over.lines)
    assert over.lines[0] == f"was: {first.lines[0]}"


@pytest.mark.parametrize(
    ("fields", "found", "fires"),
    [
        ({}, finding(severity="info"), False),
        ({}, finding(healthy=True), False),
        ({}, finding(confidence=0.3), False),
        ({"severity": "crit"}, finding(), False),
        ({"severity": "crit"}, finding(severity="crit"), True),
        ({"rules": frozenset({"power"})}, finding(), False),
        ({"rules": frozenset({"power", "thermal"})}, finding(), True),
        ({"rules": frozenset({"thermal"})}, finding("straggler", causes=("thermal",)), True),
        ({"only": Filter(user="alice")}, finding(subject=Subject(kind="job", job="j", user="alice")), True),
        ({"only": Filter(user="bob")}, finding(subject=Subject(kind="job", job="j", user="alice")), False),
        ({"only": Filter(job="llama-7b")}, finding(subject=Subject(kind="job", job="j")), True),
        ({"only": Filter(job="sd3")}, finding(subject=Subject(kind="job", job="j")), False),
        ({"only": Filter(user="alice")}, finding(subject=Subject(kind="host")), False),
    ],
)
def test_which_findings_are_meant(fields: dict[str, Any], found: Any, fires: bool) -> None:
    tracker = rule_of(**fields)
    assert told(tracker, update(0, gpu(0), findings=(found,), processes=(trainer(),))) == (["firing"] if fires else [])


def test_a_finding_that_grows_or_is_merged_is_the_same_one() -> None:
    tracker = rule_of()
    assert told(tracker, update(0, gpu(0), gpu(1), findings=(finding(),))) == ["firing"]
    grown = finding("thermal", "warn", "GPU-0", "GPU-1")
    assert told(tracker, update(10, gpu(0), gpu(1), findings=(grown,))) == []
    tracker = rule_of(rules=frozenset({"thermal"}))
    assert told(tracker, update(0, gpu(0), findings=(finding(),))) == ["firing"]
    for t in range(10, 100, 10):  # less severe than asked for, but not over
        assert told(tracker, update(t, gpu(0), findings=(replace(finding(), severity="info"),))) == []


STALLED = Pressure(some_percent=75.0)
DATA = Mount(path="/data", device="d", file_system="nfs4", free_bytes=5, total_bytes=100)


@pytest.mark.parametrize(
    ("metric", "test", "limit", "host", "name", "text"),
    [
        ("host.memory_available_bytes", "below", 2**33, {"memory_available_bytes": 2**32}, "dgx-07", "4.0G"),
        ("host.memory_pressure.some_percent", "above", 50, {"memory_pressure": STALLED}, "dgx-07", "75 %"),
        ("mount.free_bytes", "below", 10.0, {"mounts": (DATA,)}, "/data", "5 % of size of the file system"),
        ("disk.await_s", "above", 0.05, {"disks": (Disk(name="nvme0n1", await_s=0.1),)}, "nvme0n1", "100 ms"),
        ("host.cpu_governor", "is", "powersave", {"cpu_governor": "powersave"}, "dgx-07", "powersave"),
        ("host.cpu_turbo", "is", False, {"cpu_turbo": False}, "dgx-07", "no"),
    ],
)  # fmt: skip
def test_metrics_of_the_machine(metric: str, test: Any, limit: Any, host: Any, name: str, text: str) -> None:
    of = metric_names()["mount.total_bytes"] if metric == "mount.free_bytes" else None
    condition = MetricCondition(metric=metric_names()[metric], test=test, limit=limit, of=of)
    (fired,) = AlertTracker(AlertRule(name="x", condition=condition)).advance(update(0, **host))
    assert fired.about.name == name
    assert text in fired.evidence[0]
    empty = AlertTracker(AlertRule(name="x", condition=condition))
    assert told(empty, update(0)) == []


def test_words_in_a_set_are_compared_one_by_one() -> None:
    metric = metric_names()["gpu.throttle_reasons"]
    tracker = AlertTracker(AlertRule(name="x", condition=MetricCondition(metric=metric, test="is", limit="hw thermal")))
    assert told(tracker, update(0, gpu(0, throttle_reasons=frozenset()))) == []
    assert told(tracker, update(1, gpu(0, throttle_reasons=frozenset({"power cap", "hw thermal"})))) == ["firing"]
