"""Delivery and the sink: order, retries, dropped messages, and that a dead receiver costs the monitor nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest

from gputop.alerts import attach, due, withheld
from gputop.alerts.command import variables
from gputop.alerts.condition import FindingCondition, MetricCondition
from gputop.alerts.delivery import TRIES, WAITING, Delivery
from gputop.alerts.message import AlertMessage
from gputop.alerts.metric_values import metric_names
from gputop.alerts.plan import AlertPlan
from gputop.alerts.receiver import Undelivered
from gputop.alerts.sink import AlertSink, Turn
from gputop.alerts.terminal import TerminalReceiver, notification
from gputop.alerts.tracker import AlertRule
from gputop.alerts.webhook import Webhook
from gputop.alerts.webhook_formats import FORMATS
from gputop.model import Frame
from gputop.monitor import Monitor, Update
from gputop.source import Interest
from tests.alert_updates import finding, gpu, message, update
from tests.hostile import STRINGS
from tests.http_receiver import HttpReceiver, answer
from tests.oracle import oracle
from tests.real_processes import until


class Scripted:
    """A receiver that does what it is told, and remembers what it was sent."""

    name, place, acts = "team", "scripted", False

    def __init__(self, *results: Exception | None, before: Callable[[], object] = lambda: None) -> None:
        self.got: list[AlertMessage] = []
        self._results, self._before = list(results), before

    def send(self, message: AlertMessage) -> None:
        self._before()
        result = self._results.pop(0) if self._results else None
        if result:
            raise result
        self.got.append(message)


def test_messages_arrive_in_order_and_close_waits_for_them() -> None:
    one = Scripted()
    delivery = Delivery(one)
    for number in range(20):
        delivery.put(message(alert=f"a{number}"))
    assert delivery.close(20)
    assert [each.alert for each in one.got] == [f"a{number}" for number in range(20)]
    assert (delivery.delivered, delivery.missed, delivery.problem) == (20, 0, "")
    delivery.put(message())
    assert len(one.got) == 20  # it is closed


def test_a_failure_is_tried_again_and_said_once() -> None:
    said: list[str] = []
    one = Scripted(*[Undelivered("HTTP 500")] * 3, None, None)
    delivery = Delivery(one, said.append, pause_s=0.001)
    delivery.put(message())
    until(lambda: one.got)
    delivery.put(message())
    assert delivery.close(20)
    assert said == ["alerts to team are not delivered: HTTP 500", "alerts to team are delivered again"]
    assert (len(one.got), one.got[0].missed) == (2, 0)


def test_what_is_refused_is_not_tried_again_and_the_next_message_says_so() -> None:
    one = Scripted(Undelivered("HTTP 404", again=False))
    delivery = Delivery(one, pause_s=0.001)
    delivery.put(message(alert="first"))
    delivery.put(message(alert="second"))
    delivery.put(message(alert="third"))
    assert delivery.close(20)
    assert [(each.alert, each.missed) for each in one.got] == [("second", 1), ("third", 0)]
    assert "1 earlier messages to this receiver were not delivered" in one.got[0].lines


def test_a_message_is_given_up_after_some_tries() -> None:
    one = Scripted(*[Undelivered("HTTP 500")] * TRIES)
    delivery = Delivery(one, pause_s=0.0001)
    delivery.put(message(alert="first"))
    delivery.put(message(alert="second"))
    until(lambda: one.got)
    assert [(each.alert, each.missed) for each in one.got] == [("second", 1)]
    assert delivery.close(20)


def test_the_wish_of_a_server_for_a_pause_is_respected_until_the_end() -> None:
    one = Scripted(Undelivered("HTTP 429", after_s=3600.0), None)
    delivery = Delivery(one, pause_s=0.001)
    delivery.put(message())
    until(lambda: delivery.problem)
    assert one.got == []
    assert delivery.close(20)  # cuts the pause short
    assert len(one.got) == 1


def test_a_receiver_that_hangs_lets_the_oldest_go_and_counts_them() -> None:
    released, asked = Event(), Event()

    def hang() -> None:
        asked.set()
        released.wait(60)

    one = Scripted(before=hang)
    delivery = Delivery(one)
    delivery.put(message(alert="sent"))
    assert asked.wait(20)
    for number in range(WAITING + 30):
        delivery.put(message(alert=f"a{number}"))
    assert not delivery.close(0.01)
    assert delivery.missed == 30
    released.set()
    assert delivery.close(20)
    assert [each.alert for each in one.got] == ["sent", *(f"a{number}" for number in range(30, WAITING + 30))]
    assert sum(each.missed for each in one.got) == 30


def test_an_error_of_ours_in_a_receiver_ends_neither_thread_nor_monitor() -> None:
    said: list[str] = []
    one = Scripted(ZeroDivisionError("pathsecret"), None)
    delivery = Delivery(one, said.append)
    delivery.put(message())
    delivery.put(message())
    assert delivery.close(20)
    assert said[0] == "alerts to team are not delivered: internal error (ZeroDivisionError); please report it"
    assert len(one.got) == 1


class Frames:
    """A source of frames that a test wrote, as of this machine."""

    label, elsewhere, interval_s, interest = "live", None, 1.0, Interest()

    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames

    def past(self) -> Iterator[Frame]:
        return iter(())

    def frames(self, stop: Event) -> Iterator[Frame]:
        yield from self._frames

    def inspect(self, *_: Any) -> Any:
        raise NotImplementedError


def plan(*receivers: Any, **fields: Any) -> AlertPlan:
    """Alerts on a temperature that changes every minute, to all of these."""
    metric = metric_names()["gpu.temperature_celsius"]
    rule = AlertRule(
        name="hot", condition=MetricCondition(metric=metric, test="above", limit=88), cooldown_s=0.0,
        send=tuple(one.name for one in receivers), **fields,
    )  # fmt: skip
    return AlertPlan(rules=(rule,), receivers={one.name: one for one in receivers})


def moving(seconds: int = 600) -> list[Frame]:
    """A GPU that is hot every other minute."""
    return [update(t, gpu(0, 91.0 if t // 60 % 2 else 60.0)).frame for t in range(seconds)]


def test_a_dead_receiver_costs_the_monitor_no_frame_and_the_others_no_message() -> None:
    with HttpReceiver() as dead, HttpReceiver() as well:
        dead.then(dead.hang)
        receivers = (
            Webhook(name="dead", shape="slack", url=dead.url(), timeout_s=30.0),
            Webhook(name="well", shape="slack", url=well.url()),
        )
        monitor = Monitor(Frames(moving()))
        sink = attach(monitor, plan(*receivers), settings_path=None, readonly=False)
        assert sink
        assert sum(1 for _ in monitor.updates()) == 600  # while the first message waits for its answer
        until(lambda: len(well.got) == 9)
        assert len(dead.got) <= 1
        assert len([one for one in sink.sent if one.status == "firing"]) == 5
        assert sink.close(0.05) >= 1
    assert [thread.name for thread in threading.enumerate() if thread.name == "monitor"] == []


def test_a_broken_condition_ends_the_alerts_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(MetricCondition, "observe", broken)
    monitor = Monitor(Frames(moving(20)))
    sink = attach(monitor, plan(Scripted()), settings_path=None, readonly=False)
    assert sink
    assert sum(1 for _ in monitor.updates()) == 20
    assert sink.lines() == ["alerts ended: ZeroDivisionError: oh; please report it"]


@pytest.mark.parametrize("elsewhere", ["a demo", "a recording"])
def test_nobody_is_alerted_by_a_demo_or_a_recording_unless_asked(elsewhere: str) -> None:
    source = Frames(moving(120))
    source.elsewhere = elsewhere
    monitor, alerts = Monitor(source), plan(one := Scripted())
    assert due(alerts, source) is None
    assert attach(monitor, alerts, settings_path="/x", readonly=False) is None
    assert monitor.sinks == ()
    sink = attach(monitor, alerts, settings_path="/x", readonly=False, rehearse=True)
    assert sink
    assert len(list(monitor.updates())) == 120
    assert sink.close(20) == 0
    assert [each.source for each in one.got] == [elsewhere]
    assert one.got[0].title.startswith(f"[{elsewhere.removeprefix('a ')}] WARN dgx-07: GPU 0: ")


def test_an_alert_on_a_metric_read_on_demand_demands_it() -> None:
    metric = metric_names()["gpu.ecc_corrected"]
    rule = AlertRule(name="x", condition=MetricCondition(metric=metric, test="above", limit=0), send=("team",))
    source = Frames([])
    attach(
        Monitor(source), AlertPlan(rules=(rule,), receivers={"team": Scripted()}), settings_path=None, readonly=False
    )
    assert source.interest.extended


def test_readonly_starts_no_program_and_says_so() -> None:
    acting, web = Scripted(), Scripted()
    acting.name, acting.acts = "page", True
    monitor = Monitor(Frames(moving(120)))
    sink = attach(monitor, plan(acting, web), settings_path=None, readonly=True)
    assert sink
    list(monitor.updates())
    assert sink.close(20) == 0
    assert (len(acting.got), len(web.got)) == (0, 1)
    assert sink.lines() == ["no alerts to page: --readonly starts no program"]


def test_settings_that_others_could_have_written_start_no_program(tmp_path: Any) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    path.chmod(0o600)
    assert withheld(str(path), readonly=False) == ""
    path.chmod(0o602)
    assert withheld(str(path), readonly=False) == f"{path}: it is world-writable"
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    assert withheld(str(path), readonly=False) == f"{path}: {tmp_path} is world-writable"
    tmp_path.chmod(0o700)


def test_of_several_gputop_one_sends_and_the_next_takes_over(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = str(tmp_path / "config.toml")
    first, second, other, careful = Turn(path), Turn(path), Turn("/other"), Turn(path, readonly=True)
    assert first.ours(0.0)
    assert not second.ours(0.0)
    assert not careful.ours(0.0)
    assert other.ours(0.0)
    assert Turn(None).ours(0.0)
    first.release()
    assert not second.ours(1.0)  # it asks every few seconds
    assert second.ours(6.0)
    assert not careful.ours(6.0)
    for turn in (second, other):
        turn.release()


def test_with_readonly_no_lock_is_created(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert Turn("/x", readonly=True).ours(0.0)
    assert list(tmp_path.iterdir()) == []


def test_who_waits_for_its_turn_knows_what_was_sent(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    one, earlier = Scripted(), Turn("/x")
    assert earlier.ours(0.0)
    sink = AlertSink(plan(one), Frames([]), turn=Turn("/x"))
    frames = moving(300)
    for frame in frames[:90]:
        sink.take(_update(frame))
    assert (sink.waits, one.got) == (True, [])
    earlier.release()
    for frame in frames[90:]:
        sink.take(_update(frame))
    assert sink.close(20) == 0
    assert [each.status for each in one.got] == ["resolved", "firing", "resolved"]


def _update(frame: Frame) -> Update:
    return Update(frame=frame)


def test_the_terminal_gets_a_bell_or_a_notification_for_what_was_sent() -> None:
    here = TerminalReceiver(name="here", how="osc9")
    sink = AlertSink(plan(here), Frames([]))
    for frame in moving(90):
        sink.take(_update(frame))
    assert sink.close(20) == 0
    assert sink.sequences() == ["\x1b]9;gputop: WARN dgx-07: GPU 0: GPU core temperature above 88  C\x07"]
    assert sink.sequences() == []


@pytest.mark.parametrize("how", ["bell", "osc9", "osc777"])
def test_nothing_in_a_notification_ends_it_early(how: str) -> None:
    for text in STRINGS:
        sequence = notification(how, text)
        assert len(sequence) < 250
        inner = sequence.removeprefix("\x1b]").removesuffix("\a")
        assert inner.isascii()
        assert not oracle(inner.encode())


@pytest.mark.parametrize("text", STRINGS, ids=range(len(STRINGS)))
def test_hostile_names_are_text_in_every_shape(text: str) -> None:
    found = finding(headline=text, evidence=(), steps=())
    sink_of = AlertSink(AlertPlan(rules=(AlertRule(name="x", condition=FindingCondition(), send=()),)), Frames([]))
    sink_of.take(update(0, gpu(0, 60.0), findings=(found,)))
    (sent,) = sink_of.sent
    for values in (variables(sent).values(), (sent.title, sent.text)):
        assert not [value for value in values if "\0" in value or oracle(value.replace("\n", " ").encode())]
    assert "\n" not in sent.title
    with HttpReceiver(answer(200)) as server:
        for shape in FORMATS:
            Webhook(name="x", shape=shape, url=server.url("/topic")).send(sent)
    for got in server.got:
        assert got.json
        assert not oracle(got.body)
