"""One line per host: what it says, how lines are ordered, and what a table of them looks like."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from gputop.demo import open_demo
from gputop.hosts.columns import COLUMNS, matches, ordered
from gputop.hosts.overview import HostRow, row, totals
from gputop.hosts.text import as_json, as_text
from gputop.model import Note
from gputop.monitor import Monitor, Update

ROWS = (
    HostRow(name="n1", state="live", gpus=8, gpus_busy=8, badge="ok", finding="2 jobs healthy", age_s=0.4, jobs=2,
            gpus_lost=0.0),
    HostRow(
        name="n2", state="live", gpus=8, gpus_busy=5, busy_percent=61.0, vram_percent=80.2, power_watts=2410.0,
        cpu_percent=97.0, memory_percent=41.0, jobs=1, users=("alice",), gpus_lost=3.6, badge="warn", findings=2,
        finding="llama-7b: dataloader-bound, 2 workers are too few", age_s=1.2,
    ),
    HostRow(name="n3", state="lost", why="connection refused: no SSH server on its port", retry_in_s=7.0),
    HostRow(name="n4", state="live", gpus=4, gpus_busy=4, badge="crit", gpus_lost=1.0, findings=1, jobs=1,
            finding="GPU 0: software thermal slowdown", age_s=0.9),
    HostRow(name="n5"),
    HostRow(name="n6", state="live", gpus=0, gpus_busy=0, jobs=0, finding="no GPU job", age_s=0.9),
)  # fmt: skip

FIELDS = {"host": "name", "gpus": "gpus_busy", "lost": "gpus_lost", "cpu": "cpu_percent", "age": "age_s"}


@cache
def watched(scenario: str) -> tuple[Monitor, Update]:
    """A scenario watched to its end: the monitor, and the last update."""
    monitor = Monitor(open_demo(scenario, pace=False))
    return monitor, [*monitor.updates()][-1]


def newest(scenario: str) -> Update:
    """The last update of a scenario."""
    return watched(scenario)[1]


def test_the_line_of_a_host_is_made_of_its_newest_update() -> None:
    update = newest("starved-cpu-idle")
    one = row("n1", update)
    gpus = update.frame.gpus
    assert (one.gpus, one.gpus_busy) == (len(gpus), len(gpus))
    assert one.busy_percent == pytest.approx(sum(gpu.busy_percent or 0 for gpu in gpus) / len(gpus))
    assert one.badge == "warn"
    assert "dataloader-bound" in one.finding
    primary = next(finding for finding in update.findings if finding.primary)
    assert one.gpus_lost == pytest.approx((primary.lost_share or 0) * len(gpus))


def test_lost_time_of_some_gpus_is_that_of_the_host() -> None:
    one = row("n1", newest("showcase"))
    shares = {finding.rule: finding.lost_share or 0 for finding in newest("showcase").findings}
    assert one.gpus_lost == pytest.approx(shares["thermal"] + 4 * shares["network-fs-bound"])


def test_a_healthy_host_says_so_and_has_lost_nothing() -> None:
    one = row("n1", newest("healthy"))
    assert one.badge == "ok"
    assert "healthy" in one.finding
    assert one.gpus_lost == 0


def test_what_is_not_judged_yet_is_unknown_and_jobs_are_those_of_the_text() -> None:
    update = newest("healthy")
    unjudged = replace(update, jobs=tuple(replace(one, state="judging") for one in update.jobs))
    one = row("n1", unjudged)
    assert (one.badge, one.finding, one.jobs, one.gpus_lost) == ("judging", "1 job (judging)", 1, None)
    program = replace(update.jobs[0], key="program", state="unknown")  # uses a GPU and is no training job
    one = row("n1", replace(update, jobs=(*update.jobs, program)))
    assert (one.finding, one.jobs) == ("2 jobs: 1 unknown, 1 healthy", 2)


def test_a_host_without_a_gpu_says_why_and_shows_no_zero_for_what_is_unknown() -> None:
    update = newest("idle")
    note = Note(subject="driver", key="not-loaded", text="The NVIDIA driver is not loaded.")
    one = row("n1", replace(update, frame=replace(update.frame, gpus=(), notes=(note,)), findings=(), jobs=()))
    assert (one.badge, one.finding) == ("unknown", "The NVIDIA driver is not loaded")
    assert (one.gpus, one.power_watts, one.vram_percent, one.gpus_lost) == (0, None, None, None)
    assert row("n1", replace(update, frame=replace(update.frame, gpus=()))).finding == "no NVIDIA GPU listed"


def test_gpus_at_work_without_a_process_are_not_called_idle() -> None:
    update = newest("healthy")
    one = row("n1", replace(update, findings=(), jobs=()))
    assert (one.badge, one.finding, one.gpus_lost) == ("unknown", "1 GPU busy, no process listed", None)


def test_the_worst_comes_first_and_silence_is_as_urgent_as_a_warning() -> None:
    assert [one.name for one in ordered([*ROWS], "finding")] == ["n4", "n2", "n3", "n1", "n5", "n6"]
    assert [one.name for one in ordered([*ROWS], "finding", reverse=True)][-1] == "n4"
    again = replace(ROWS[2], state="connecting")  # the next attempt is under way: it keeps its place
    assert [one.name for one in ordered([*ROWS[:2], again, *ROWS[3:]], "finding")][2] == "n3"


@pytest.mark.parametrize(
    ("by", "first"), [("host", "n1"), ("gpus", "n1"), ("lost", "n2"), ("cpu", "n2"), ("age", "n2")]
)
def test_every_column_sorts_with_its_most_telling_value_first(by: str, first: str) -> None:
    assert ordered([*ROWS], by)[0].name == first
    values = [getattr(one, FIELDS[by]) for one in ordered([*ROWS], by)]
    known = [value for value in values if value is not None]
    assert values[len(known) :] == [None] * (len(values) - len(known))


@pytest.mark.parametrize(("words", "names"), [("alice", ["n2"]), ("THERMAL gpu", ["n4"]), ("lost", ["n3"]), ("", 6)])
def test_a_filter_finds_hosts_by_all_that_is_said_of_them(words: str, names: list[str] | int) -> None:
    found = [one.name for one in ROWS if matches(one, words)]
    assert found == names or len(found) == names


def test_totals_count_what_is_known() -> None:
    every = totals(ROWS)
    assert (every.hosts, every.live, every.gpus, every.gpus_busy, every.jobs) == (6, 4, 20, 17, 4)
    assert every.gpus_lost == pytest.approx(4.6)
    assert every.worst == "crit"
    lost = totals([replace(one, state="lost") for one in ROWS])
    assert (lost.gpus, lost.gpus_busy, lost.jobs, lost.gpus_lost, lost.worst) == (0, 0, 0, 0, None)


def test_no_value_is_wider_than_its_column() -> None:
    extreme = HostRow(
        name="x", state="live", gpus=64, gpus_busy=64, busy_percent=100.0, vram_percent=100.0, power_watts=89_600.0,
        cpu_percent=100.0, memory_percent=100.0, jobs=9999, gpus_lost=64.0, age_s=86_399.0,
    )  # fmt: skip
    for column in COLUMNS[1:-1]:
        assert len(column.text(extreme)) <= column.width, column.id
        assert len(column.title) <= column.width, column.id


def test_the_table_in_text(golden) -> None:  # type: ignore[no-untyped-def]
    golden("hosts-120.txt", as_text(ROWS, width=120))
    golden("hosts-80-ascii.txt", as_text(ROWS, width=80, ascii=True))


def test_json_has_every_field_and_null_for_what_is_unknown() -> None:
    found = json.loads(as_json(ROWS, 1_800_000_000.0))
    assert found["version"] == 1
    assert [host["name"] for host in found["hosts"]] == [one.name for one in ROWS]
    assert found["hosts"][4]["gpus"] is None
    assert found["hosts"][1]["gpus_lost"] == 3.6
