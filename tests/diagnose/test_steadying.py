"""A finding comes when it held long enough, leaves when it is clearly over, and is shown as bad as it stayed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from gputop.diagnose import Finding, Severity, Subject
from gputop.diagnose.steadying import Steadying


def finding(severity: Severity, onset_s: float | None = None) -> Finding:
    subject = Subject(kind="gpu", gpus=("G",))
    return Finding(rule="thermal", severity=severity, subject=subject, headline="is hot", onset_s=onset_s)


class Steadied:
    """A rule's answers, second by second."""

    def __init__(self, on_s: float = 30.0) -> None:
        self.steady, self.on_s, self.now_s = Steadying(), on_s, 0.0

    def run(self, seconds: int, holds: Callable[[int], bool] | bool = True, severity: Severity = "warn") -> list[float]:
        """The seconds at which it was on the screen."""
        shown = []
        for second in range(seconds):
            self.now_s += 1
            yes = holds if isinstance(holds, bool) else holds(second)
            self.last = self.steady.update([(finding(severity), self.on_s)] if yes else [], self.now_s, 1.0)
            shown += [self.now_s] if self.last else []
        return shown


def test_it_comes_when_it_held_for_most_of_the_on_window() -> None:
    one = Steadied()
    assert one.run(23) == []
    assert one.run(1) == [24]
    assert one.last[0].since_s == 24


@pytest.mark.parametrize(("missed", "comes"), [(7, True), (4, False)])
def test_now_and_then_is_not_most_of_the_time(missed: int, comes: bool) -> None:
    assert bool(Steadied().run(300, lambda second: second % missed != 0)) is comes


def test_it_leaves_after_the_off_window_and_not_before() -> None:
    one = Steadied()
    one.run(60)
    assert one.run(44, False) == [60 + second for second in range(1, 45)]
    assert one.run(5, False) == []


def test_it_is_shown_for_a_quarter_of_a_minute_at_least() -> None:
    one = Steadied(on_s=2)
    first = one.run(4)[0]
    left = one.run(30, False)[-1]
    assert left - first == pytest.approx(15, abs=1)


def test_a_flicker_in_the_middle_does_not_begin_anew() -> None:
    one = Steadied()
    one.run(60)
    one.run(20, False)
    one.run(1)
    assert one.last[0].since_s == 81


def test_severity_rises_a_level_an_on_window_and_falls_after_the_off_window() -> None:
    one = Steadied()
    one.run(40, severity="info")
    levels = [one.last[0].severity for _ in range(80) if one.run(1, severity="crit")]
    assert [(now, then) for now, then in pairwise(levels) if now != then] == [("info", "warn"), ("warn", "crit")]
    assert levels.index("crit") - levels.index("warn") == 30
    one.run(44, severity="info")
    assert one.last[0].severity == "crit"
    one.run(2, severity="info")
    assert one.last[0].severity == "info"


def test_one_bad_second_makes_nothing_worse() -> None:
    one = Steadied()
    one.run(60)
    one.run(1, severity="crit")
    assert one.last[0].severity == "warn"


def test_what_its_rule_knows_to_have_begun_earlier_lasts_since_then() -> None:
    steady = Steadying()
    for second in range(1, 31):
        shown = steady.update([(finding("warn", 100.0 + second), 20.0)], second, 1.0)
    assert shown[0].since_s == 130
    for second in range(31, 41):  # it goes on while it is not found for a moment
        shown = steady.update([], second, 1.0)
    assert shown[0].since_s == 140
