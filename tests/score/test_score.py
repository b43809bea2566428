"""The score counts right: runs made up by hand with a known result, and one scenario through all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.demo import SCENARIOS
from gputop.model.host import Pressure
from tests.rule_cases import Machine
from tests.score import told
from tests.score.__main__ import HOW
from tests.score.disturbed import PLAIN, VARIANTS, bent, no_units
from tests.score.gains import TWIN, counted, gains
from tests.score.marks import Result, Said, Truth, marked, total
from tests.score.moved import moved
from tests.score.runs import played, truth_of
from tests.score.tools import TOOLS
from tests.score.truths import WELL

FAULT = Truth(rule="io-bound", onset_s=100, due_s=200, ends_s=400, never=("power",))


def run(until: int = 500, **spans: tuple[int, int]) -> list[Said]:
    """An alarm a span; the first of those that hold leads."""
    seen = []
    for t in range(until):
        now = [name.replace("_", "-") for name, (begin, end) in spans.items() if begin <= t < end]
        rules = frozenset(now)
        seen.append(Said(float(t), frozenset(now[:1]), rules, rules, frozenset({"io-bound"}), rules & {"low"}))
    return seen


@pytest.mark.parametrize(
    ("spans", "mark"),
    [
        ({"io_bound": (150, 420)}, "right"),
        ({"thermal": (0, 500), "io_bound": (150, 420)}, "secondary"),
        ({"low": (150, 500)}, "symptom"),
        ({"thermal": (150, 500), "low": (150, 500)}, "wrong"),
        ({"io_bound": (220, 420)}, "abstained"),
        ({"io_bound": (205, 420)}, "right"),
    ],
)
def test_the_mark_is_what_was_said_for_most_of_the_time_when_it_was_due(
    spans: dict[str, tuple[int, int]], mark: str
) -> None:
    assert marked(run(**spans), FAULT).mark == mark


def test_nothing_said_is_silent_unless_the_rule_abstained() -> None:
    unseen = [one._replace(abstained=frozenset()) for one in run()]
    assert marked(unseen, FAULT).mark == "silent"
    assert marked(run(), FAULT).mark == "abstained"


def test_times_flaps_and_false_alarms_are_counted() -> None:
    twice = [a if a.t < 250 else b for a, b in zip(run(io_bound=(150, 240)), run(io_bound=(260, 420)), strict=True)]
    result = marked(twice, FAULT)
    assert (result.detect_s, result.flaps, result.clear_s, result.false_alarms) == (50, 1, 19, 0)
    assert marked(run(io_bound=(150, 500)), FAULT).clear_s is None
    early = marked(run(power=(10, 30), io_bound=(150, 420)), FAULT)
    assert (early.false_alarms, early.misled, early.healthy_s) == (1, ("power",), 99)
    calm = marked(run(3601, thermal=(5, 9), low=(100, 3601)), Truth(rule=None, well=True))
    assert (calm.mark, calm.false_alarms, calm.healthy_s) == (None, 2, 3600)


def test_what_never_leads_is_right_where_it_is_told() -> None:
    told = run(thermal=(0, 500), io_bound=(150, 420))
    assert marked(told, replace(FAULT, beside=True)).mark == "right"
    assert marked(told, replace(FAULT, mild=("io-bound", "thermal"))).misled == ("io-bound", "thermal")
    info = [one._replace(alarms=frozenset()) for one in told]
    assert marked(info, replace(FAULT, mild=("io-bound", "thermal"))).misled == ()


def test_what_is_true_as_well_and_says_less_is_a_symptom() -> None:
    truth = replace(FAULT, rule="openblas-on-intel", also="io-bound")
    assert marked(run(io_bound=(150, 420)), truth).mark == "symptom"
    assert marked(run(io_bound=(150, 420), thermal=(150, 420)), truth).mark == "wrong"
    assert marked(run(io_bound=(150, 420)), replace(truth, also=None)).mark == "wrong"


def test_a_healthy_run_is_right_where_it_is_said_to_be_well() -> None:
    well = Truth(rule="io-bound", well=True, due_s=460)
    calm = [one._replace(alarms=frozenset()) for one in run(io_bound=(60, 500))]
    assert (marked(calm, well).mark, marked(calm, well).detect_s, marked(calm, well).false_alarms) == ("right", None, 0)
    assert marked([one._replace(primary=frozenset()) for one in calm], well).mark == "secondary"


def test_that_all_is_well_is_counted_where_a_fault_was_planted() -> None:
    well = [one._replace(primary=frozenset({WELL}), named=one.named | {WELL}) for one in run()]
    assert (marked(well, FAULT).mark, marked(well, FAULT).well) == ("abstained", True)
    assert not marked(run(), FAULT).well
    assert not marked(well, Truth(rule=WELL, well=True, due_s=460)).well
    beside = [one._replace(named=frozenset({"io-bound", WELL})) for one in well]
    assert (marked(beside, replace(FAULT, beside=True)).well, marked(beside, FAULT).well) == (False, True)


def test_what_was_always_so_is_not_detected_late() -> None:
    assert marked(run(io_bound=(0, 420)), FAULT).detect_s is None


def test_results_add_up() -> None:
    many = [
        Result(mark="right", detect_s=10, healthy_s=1800),
        Result(mark="right", detect_s=20, flaps=2, healthy_s=900),
        Result(mark="wrong", misled=("x",), healthy_s=900),
        Result(false_alarms=3),
    ]
    of = total(many)
    assert (of.runs, of.counts["right"], of.counts["wrong"], of.misled, of.flaps) == (3, 2, 1, 1, 2)
    assert (of.alarms_per_hour, of.detect_s) == (3.0, (15.0, 20))
    assert total([]).alarms_per_hour is None


def test_predictions_are_held_against_what_the_fault_took() -> None:
    fault = Result(mark="right", predicted=2.0, busy=50.0)
    runs = {
        ("healed", PLAIN.name, "gputop"): replace(fault, busy_after=90.0),
        ("twin", PLAIN.name, "gputop"): fault,
        (f"twin, {TWIN}", PLAIN.name, "gputop"): Result(well=True, busy=50.0),  # its twin is no faster
        ("lasts", PLAIN.name, "gputop"): fault,
        ("idle", PLAIN.name, "gputop"): replace(fault, busy=0.0, busy_after=90.0),
        ("missed", PLAIN.name, "gputop"): replace(fault, mark="silent", busy_after=90.0),
        ("unknown", PLAIN.name, "gputop"): replace(fault, predicted=None, busy_after=90.0),
    }
    assert [*gains(runs, PLAIN.name)] == [("healed", 2.0, 1.8), ("twin", 2.0, 1.0)]
    said, others = counted(runs, PLAIN.name)
    assert "2 faults were taken away" in said
    assert "| twin " in others
    assert "| 2.00× " in others
    assert "healed" not in others
    assert "\n1 of the runs gained something then" in said
    assert "median:\n0.70." in said
    assert [*counted({}, PLAIN.name)] == []


def test_simpler_rules_say_what_their_authors_publish() -> None:
    hot = {"throttle_reasons": frozenset({"power cap"}), "busy_percent": 97.0}
    starving = {"busy_percent": 40.0}
    for gpu, host, tool, hint in (
        (starving, {"cpu_percent": 95.0}, "naive rule", "starved-cpu-saturated"),
        (starving, {"cpu_percent": 95.0, "user_percent": 60.0}, "gputui's hints", "starved-cpu-saturated"),
        (starving, {"iowait_percent": 30.0}, "gputui's hints", "io-bound"),
        (hot, {}, "gputui's hints", "power"),
        (starving, {}, "SageMaker Debugger", "gpu-little-used"),
    ):
        machine = Machine(gpu=gpu, host=host)
        *_, last = TOOLS[tool]((float(t), machine.frame(t)) for t in range(260))
        assert last.primary == {hint}
    healthy = Machine()
    for tool in ("naive rule", "gputui's hints", "SageMaker Debugger"):
        assert not any(one.alarms for one in TOOLS[tool]((float(t), healthy.frame(t)) for t in range(260)))


def test_disturbances_do_what_they_say() -> None:
    (_, healthy), (_, faulty) = SCENARIOS["starved-cpu-idle"].server.jobs[0].work
    (_, _), (_, weaker) = bent(0.7)(SCENARIOS["starved-cpu-idle"]).server.jobs[0].work
    assert healthy.duty > weaker.duty > faulty.duty
    assert weaker.duty == pytest.approx(healthy.duty + 0.7 * (faulty.duty - healthy.duty))
    frame = Machine().frame(0)
    assert no_units(frame).gpus[0].tensor_percent is None
    felt = Pressure(some_percent=9.0, full_percent=1.0)
    pressed = replace(frame, host=replace(frame.host, cpu_pressure=felt, io_pressure=felt, memory_pressure=felt))
    assert VARIANTS["no pressure"].frame(pressed) == frame, "and nothing else is away"
    assert truth_of("starved-cpu-idle", plain=True).ends_s == 450
    assert truth_of("thermal", plain=True).ends_s is None
    assert (truth_of("healthy", plain=True).rule, truth_of("healthy", plain=True).well) == (WELL, True)
    assert truth_of("cold-cache", plain=True).ends_s == 400


def test_all_thresholds_move_but_no_times_and_no_share_to_where_nothing_is() -> None:
    for factor, duty, rate, celsius in ((0.7, 0.56, 14e6, -3.5), (1.3, 0.86, 26e6, -6.5)):
        tables = moved(factor)
        assert tables["starved"]["duty"] == pytest.approx(duty)
        assert tables["starved"]["duty_exit"] - duty == pytest.approx(0.05)
        assert tables["starved"]["reads_bytes_per_s"] == rate
        assert tables["thermal"]["slowdown_distance_celsius"] == pytest.approx(celsius)
        assert tables["thermal"]["slowdown_distance_celsius_exit"] == pytest.approx(celsius - 2)
        assert tables["network-fs-bound"]["rtt_s"] == pytest.approx(factor * 0.01)
        assert (tables["zombie-memory"]["idle_s"], tables["engine"]["warm_s"]) == (600, 60)


def test_a_scenario_through_all_of_it() -> None:
    found = played("starved-cpu-idle", PLAIN.name, TOOLS)
    ours = found["gputop"]
    assert (ours.mark, ours.said, ours.misled, ours.false_alarms, ours.flaps) == ("right", "", (), 0, 0)
    assert ours.healthy_s == 119
    assert ours.detect_s is not None
    assert ours.clear_s is not None
    assert (ours.predicted, ours.busy, ours.busy_after) == (
        pytest.approx(1.8, abs=0.15),
        pytest.approx(55, abs=4),
        pytest.approx(98, abs=2),
    )
    assert 20 < ours.detect_s < 60
    assert ours.clear_s < 15
    assert found["SageMaker Debugger"].mark != "right"


def test_the_table_has_a_row_for_each_and_its_place_in_the_manual() -> None:
    runs = {("io-bound", "as it is", tool): Result(mark="wrong", said="power") for tool in TOOLS}
    text = told.page(runs, "as it is", "How.")
    assert text.count("| gputop ") == 1
    assert "disturbed" not in text
    assert "In 0 of these 1 runs the primary finding was healthy" in text
    lossy = {
        ("io-bound", f"{number} lost", "gputop"): Result(mark=mark) for number, mark in enumerate(("right", "wrong"))
    }
    assert "disturbed, 1 of 2 right (50 %):" in told.page(runs | lossy, "as it is", "How.")
    assert "| io-bound, as it is | wrong | power |" in text.replace("  ", " ")
    page = told.PAGE.read_text()
    assert all(page.count(f"<!-- {mark}{tier} -->\n") == 1 for tier in HOW for mark in ("", "/"))
