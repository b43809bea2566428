"""A chart of a frozen picture: the same however late and at which fraction of a second it is drawn anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.history import History
from gputop.ui.frozen_history import FrozenHistory
from tests import servers


@pytest.mark.parametrize("start", [100.0, 100.01, 100.5, 100.99])
@pytest.mark.parametrize("apart", [0.97, 1.0, 1.02])
def test_a_chart_stays_while_time_goes_on(start: float, apart: float) -> None:
    history = History()
    then = FrozenHistory(history)
    shown = servers.frame((servers.gpu(0),))

    def at(number: int) -> None:
        gpu = replace(shown.gpus[0], busy_percent=float(number % 100))
        history.add(replace(shown, mono_s=start + number * apart, gpus=(gpu,)))

    for number in range(60):
        at(number)
    then.at_s = history.newest_s
    before = then.values(shown.gpus[0].uuid, "busy_percent", 20)
    assert before == history.values(shown.gpus[0].uuid, "busy_percent", 20)
    for number in range(60, 90):
        at(number)
        assert then.values(shown.gpus[0].uuid, "busy_percent", 20) == before
    then.at_s = None
    assert then.values(shown.gpus[0].uuid, "busy_percent", 20) != before
