"""Pauses of GPUs: how long they are and what they cost, by samples, by seconds, and with gaps in what is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from gputop.diagnose.pauses import BusySpan, Pause, Pauses, busy_spans
from gputop.model import Gpu

WINDOW_S = 1 / 6


def stepped(busy: Callable[[float], float], until_s: float, step_s: float = WINDOW_S) -> Pauses:
    """Followed by samples so far apart, each the mean of its time."""
    pauses = Pauses()
    for number in range(round(until_s / step_s)):
        start_s = number * step_s
        parts = [busy(start_s + step_s * (part + 0.5) / 50) for part in range(50)]
        pauses.add(BusySpan(start_s, start_s + step_s, sum(parts) / 50))
    return pauses


def stops(every_s: float, for_s: float) -> Callable[[float], float]:
    return lambda t: 0.0 if t % every_s > every_s - for_s else 97.0


def ended(pauses: Pauses) -> list[Pause]:
    return [one for one in pauses.known if one.ended]


@pytest.mark.parametrize("for_s", [0.6, 1.0, 2.3, 2.5, 8.0])
@pytest.mark.parametrize("step_s", [WINDOW_S, 1.0])
def test_a_pause_is_as_long_as_it_is_whatever_the_samples(for_s: float, step_s: float) -> None:
    pauses = stepped(stops(14.3, for_s), 146.0, step_s)
    seen = ended(pauses)
    if for_s >= 2 * step_s:
        assert len(seen) == 10
        assert sum(one.idle_s for one in seen) / 10 == pytest.approx(for_s, abs=0.1)
        assert pauses.lost(seen, 3600) == pytest.approx(for_s / 14.3, abs=0.03)
        assert all(one.percent < 10 for one in seen)
        assert pauses.between()[0] == pytest.approx(97.0, abs=0.5)


def test_gaps_between_steps_are_no_long_pause_and_push_out_none() -> None:
    def busy(t: float) -> float:
        return 0.0 if 50 < t < 60 or t % 1.0 > 0.35 else 97.0

    pauses = stepped(busy, 400.0)
    assert max(one.length_s for one in pauses.known) == pytest.approx(10.0, abs=1.5)


def test_work_for_a_moment_ends_no_pause() -> None:
    pauses = stepped(lambda t: 0.0 if 20 < t < 30 and not 24 < t < 24.6 else 97.0, 60.0)
    assert [round(one.length_s) for one in pauses.known] == [10]
    assert pauses.known[0].idle_s == pytest.approx(9.4, abs=0.2)
    assert pauses.known[0].percent == pytest.approx(6.0, abs=1.0)


def test_a_start_is_no_pause() -> None:
    assert not stepped(lambda t: 0.0 if t < 60 else 97.0, 90.0).known


def test_a_pause_goes_on_while_it_does() -> None:
    (pause,) = stepped(lambda t: 97.0 if t < 60 else 0.0, 90.0).known
    assert not pause.ended
    assert pause.length_s == pytest.approx(30.0, abs=0.2)


@pytest.mark.parametrize(("unseen", "lengths"), [(4, [20.0]), (6, [8.0, 6.0])])
def test_seconds_in_which_nobody_looked_do_not_split_a_pause(unseen: int, lengths: list[float]) -> None:
    pauses = Pauses()
    values = [97.0] * 30 + [0.0] * 8 + [None] * unseen + [0.0] * (12 - unseen) + [97.0] * 30
    for second, percent in enumerate(values):
        pauses.add(BusySpan(second, second + 1.0, percent))
    assert [round(one.idle_s) for one in pauses.known] == lengths


def test_evaluation_phases_are_found_at_another_level() -> None:
    phases = Pauses(share=0.75, least_s=5.0)
    for second in range(300):
        phases.add(BusySpan(second, second + 1.0, 45.0 if second % 100 >= 80 else 97.0))
    assert [round(one.length_s) for one in ended(phases)] == [20, 20]
    assert phases.known[0].percent == pytest.approx(45.0)


def samples(newest_ago_s: float, values: Iterable[float]) -> tuple[tuple[float, float], ...]:
    listed = list(values)
    return tuple((newest_ago_s + WINDOW_S * (len(listed) - 1 - place), value) for place, value in enumerate(listed))


def test_each_sample_is_taken_once_though_frames_repeat_it() -> None:
    newest_s: float | None = None
    taken: list[BusySpan] = []
    for second in range(1, 20):
        last = 6 * second - 1  # the number of the newest sample
        gpu = Gpu(uuid="G", index="0", name="H100", busy_samples=samples(0.1, range(max(0, last - 30), last + 1)))
        taken += busy_spans([gpu], 50.0, newest_s, 1000.0 + second, 1.0)
        newest_s = taken[-1].end_s
    assert [piece.percent for piece in taken] == list(range(6 * 19))
    assert all(piece.end_s - piece.start_s == pytest.approx(WINDOW_S) for piece in taken)


def test_several_gpus_are_taken_together_and_old_values_for_none() -> None:
    gpus = [
        Gpu(uuid=f"G{n}", index=f"{n}", name="H100", busy_samples=samples(0.02 * n, [100.0, 0.0 if n else 100.0]))
        for n in range(4)
    ]
    assert [piece.percent for piece in busy_spans(gpus, 50.0, None, 1000.0, 1.0)] == [100.0, 25.0]
    old = Gpu(uuid="G", index="0", name="H100", busy_samples=samples(0.1, [0.0]), age_s=4.0)
    assert [piece.percent for piece in busy_spans([old], 50.0, 999.0, 1000.0, 1.0)] == [None]
    assert busy_spans([], 50.0, 1000.0, 1000.0, 1.0) == []
