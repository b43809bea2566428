"""Polling a server that fails and comes back: what is shown in between, how often it is asked, what is asked seldom."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gputop.fleet.address import PrometheusAddress
from gputop.fleet.host_history import POINTS, HostHistory
from gputop.fleet.matchers import parse
from gputop.fleet.poller import TREND, Fleet
from gputop.fleet.promql import PrometheusClient, Unanswered
from gputop.model import Frame
from tests.fleet.scripted import ScriptedPrometheus, body, names, saying
from tests.fleet.simulated import DEAD, SLOW, name
from tests.scrapes import until

HTML = saying(200, b"<html>", "text/html")


def fleet(server: ScriptedPrometheus, *, timeout_s: float = 10.0, match: str = "", **more: Any) -> Fleet:
    client = PrometheusClient(PrometheusAddress(url=server.url, place="here"), timeout_s)
    return Fleet(client, parse(match) if match else (), **{"interval_s": 0.05, "retry_s": 0.05, **more})


@contextmanager
def running(made: Fleet) -> Iterator[list[Frame]]:
    """Its frames as they come."""
    frames: list[Frame] = []

    def follow() -> None:
        frames.extend(made.frames(threading.Event()))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield frames
    finally:
        made.close()
        thread.join(20)
        assert not thread.is_alive()


def test_a_poll_has_all_hosts_and_what_changes_slowly_comes_behind_the_first_picture() -> None:
    with ScriptedPrometheus(names(10)) as server:
        made = fleet(server)
        polls = made.poll()
        first = next(polls)
        assert len(first.hosts) == 9
        assert len(server.asked) == 3
        last = next(polls)
        assert len(last.hosts) == 10
        assert last.by_name[name(DEAD)].row.state == "lost"
        trend = last.by_name[name(SLOW)].row.trend
        assert len(trend) == TREND
        assert None not in trend
        assert len(server.asked) == 5
        assert len([*made.poll()]) == 1
        assert len(server.asked) == 7  # values and findings
    assert made.notice() == ""


def test_ages_grow_between_polls() -> None:
    with ScriptedPrometheus(names(2)) as server:
        made = fleet(server)
        (*_, view) = made.poll()
    first, later = (made.rows(view.mono_s + passed_s)[0] for passed_s in (0.0, 30.0))
    assert first.age_s is not None
    assert later.age_s == pytest.approx(first.age_s + 30)
    assert (first.state, later.state) == ("live", "live")


def test_h05_while_prometheus_fails_old_values_stay_with_their_age_and_it_is_asked_less_and_less() -> None:
    with ScriptedPrometheus(names(3)) as server:
        made = fleet(server)
        with running(made) as frames:
            until(lambda: len(frames) > 3)
            server.act = HTML
            until(lambda: made.problem)
            assert "is this the address of a Prometheus?" in made.notice()
            assert re.search(r"values are \d+ s old; next attempt in \d+ s", made.notice())
            rows = made.rows()
            assert [row.state for row in rows] == ["stale"] * 3
            assert all(row.gpus == 8 for row in rows)
            pauses = set()
            until(lambda: pauses.add(made.retry_s) or len(pauses) > 2)  # type: ignore[func-returns-value]
            server.act = None
            until(lambda: not made.problem)
            assert [row.state for row in made.rows()] == ["live"] * 3
            assert made.retry_s is None


def test_h05_pauses_double_and_asking_now_ends_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedPrometheus(names(1)) as server:
        server.act = saying(503, b"")
        made, waited = fleet(server, retry_s=1.0), []

        def wait(seconds: float) -> bool:
            waited.append(seconds)
            if len(waited) == 9:
                made.close()
            return True

        monkeypatch.setattr(made.hurry, "wait", wait)
        assert [*made.frames(threading.Event())] == []
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_h05_a_slow_server_is_not_asked_more_than_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    with ScriptedPrometheus(names(1)) as server:
        made, waited = fleet(server, interval_s=10.0), []

        def wait(seconds: float) -> bool:
            waited.append(seconds)
            clock[0] += seconds
            if len(waited) == 2:
                made.close()
            return True

        monkeypatch.setattr(made.hurry, "wait", wait)
        monkeypatch.setattr("gputop.fleet.poller.time.monotonic", lambda: clock[0])
        for _ in made.frames(threading.Event()):
            clock[0] += 2.0 if not waited else 30.0  # the first poll has two answers
    assert waited == [6.0, 30.0]


def test_h05_a_server_that_hangs_is_given_up_and_closing_does_not_wait_for_it() -> None:
    with ScriptedPrometheus(names(1)) as server:
        server.act = server.hang
        made = fleet(server, timeout_s=0.3)
        with running(made):
            until(lambda: made.problem)
            assert made.notice().startswith("Prometheus: no answer within 0.3 s")
            assert made.rows() == []


def test_h05_without_history_the_rest_goes_on_and_it_is_said_once() -> None:
    with ScriptedPrometheus(names(9)) as server:
        made = fleet(server)
        polls = made.poll()
        next(polls)
        server.act = saying(422, b'{"status":"error","errorType":"execution","error":"too many samples"}')
        assert len(next(polls).hosts) == 8
    assert made.remarks == [
        "hosts that are down and the last hour are missing: query failed: execution: too many samples"
    ]


def test_a_host_that_vanishes_between_two_looks_back_is_still_listed() -> None:
    with ScriptedPrometheus(names(3)) as server:
        made = fleet(server)
        [*_] = made.poll()
        server.instances = names(2)
        (view,) = made.poll()
    assert [host.row.state for host in view.hosts] == ["live", "live", "lost"]


def test_missing_recording_rules_are_said_once_and_raw_metrics_are_queried() -> None:
    with ScriptedPrometheus(names(2), rules=False) as server:
        made = fleet(server)
        [*_] = made.poll()
        assert "rate(gputop_lost" in server.asked[1].form["query"]
        [*_] = made.poll()
    assert len(made.remarks) == 1
    assert "gputop export rules" in made.remarks[0]
    with ScriptedPrometheus(names(2)) as server:
        made = fleet(server)
        [*_] = made.poll()
        assert "rate(gputop_lost" not in server.asked[1].form["query"]
    assert made.remarks == []


def test_matchers_are_in_every_query_and_no_host_is_said() -> None:
    with ScriptedPrometheus([]) as server:
        made = fleet(server, match='cluster="a"')
        [*_] = made.poll()
        assert all('cluster="a"' in asked.form["query"] for asked in server.asked)
    assert made.notice() == 'no host has gputop metrics with cluster="a"'
    assert made.label == 'Prometheus here {cluster="a"}'
    assert made.remarks == []


def test_h05_a_partial_answer_says_so_as_long_as_it_is_one() -> None:
    warned = json.dumps({
        "status": "success", "warnings": ["store \x1b[2J gateway: no answer"],
        "data": {"resultType": "vector", "result": []},
    }).encode()  # fmt: skip
    with ScriptedPrometheus(names(1)) as server:
        made = fleet(server)
        [*_] = made.poll()
        assert made.notice() == ""
        server.act = saying(200, warned)
        (view,) = made.poll()
        assert [host.row.state for host in view.hosts] == ["lost"]
        assert made.notice() == "data may be missing: store ␛[2J gateway: no answer"
        server.act = None
        [*_] = made.poll()
        assert made.notice() == ""


def test_the_first_answer_may_fail() -> None:
    with ScriptedPrometheus(names(1)) as server:
        server.act = saying(500, b"")
        made = fleet(server)
        with pytest.raises(Unanswered, match="HTTP 500"):
            [*made.poll()]
    assert made.view is None


def test_the_last_hour_of_a_host_is_read_when_it_is_wanted_and_kept() -> None:
    with ScriptedPrometheus(names(4)) as server:
        made = fleet(server)
        (*_, view) = made.poll()
        rung = threading.Event()
        history = HostHistory(made, rung.set, rest_s=0.01)
        host, before = view.by_name[name(SLOW)], len(server.asked)
        assert history.hour(host) is None
        assert rung.wait(20)
        hour = history.hour(host)
        assert hour is not None
        assert (len(hour.busy), len(hour.lost), hour.why) == (POINTS, POINTS, "")
        assert max(value or 0 for value in hour.lost) > 10
        assert len(server.asked) == before + 1
        assert f'instance="{name(SLOW)}:9400"' in server.asked[-1].form["query"]
        assert server.asked[-1].form["step"] == "60"
        history.close()


def test_a_cursor_that_passes_by_asks_for_the_last_host_only() -> None:
    with ScriptedPrometheus(names(7)) as server:
        made = fleet(server)
        (*_, view) = made.poll()
        rung = threading.Event()
        history = HostHistory(made, rung.set, rest_s=0.3)
        before = len(server.asked)
        for host in view.hosts:
            assert history.hour(host) is None
        assert rung.wait(20)
        assert [asked.form["query"].count(name(6)) > 0 for asked in server.asked[before:]] == [True]
        history.close()


def test_h05_a_last_hour_that_cannot_be_read_says_why() -> None:
    with ScriptedPrometheus(names(1)) as server:
        made = fleet(server)
        (*_, view) = made.poll()
        server.act = saying(200, json.dumps({"status": "error", "error": "no"}).encode())
        rung = threading.Event()
        history = HostHistory(made, rung.set, rest_s=0.01)
        history.hour(view.hosts[0])
        assert rung.wait(20)
        hour = history.hour(view.hosts[0])
        assert hour is not None
        assert hour.why == "query failed: no"
        history.close()


def test_an_empty_answer_has_a_time_of_its_own() -> None:
    with ScriptedPrometheus([]) as server:
        server.act = saying(200, body([]))
        made, before = fleet(server), time.time()
        view = next(made.poll())
    assert view.wall_s >= before
