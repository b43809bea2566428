"""What turns a number into a scenario: by one parameter of the work, the cards or the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gputop.demo import SCENARIOS
from gputop.demo.scenarios.host import of_job
from gputop.demo.scenarios.parts import BEFORE_S, ONSET_S, card_fault
from gputop.demo.server import Scenario
from tests.scenario_variants import turned

Made = Callable[[float], Scenario]


def work(name: str, dial: str, scale: float = 1.0, **others: Any) -> Made:
    """A scenario with one parameter of its work at that value, `scale` times as the threshold counts it."""
    return lambda value: turned(name, **{**others, dial: scale * value})


def always(name: str, dial: str, scale: float = 1.0, **others: Any) -> Made:
    """The same of work that was like that before the onset: what is measured over a window has then no past."""

    def made(value: float) -> Scenario:
        scenario = turned(name, **{**others, dial: scale * value})
        return of_job(scenario, work=((BEFORE_S, scenario.server.jobs[0].work[-1][1]),))

    return made


def gpus(name: str, **settings: Callable[[float], Any]) -> Made:
    """A job that is well, on cards of which the driver says these things from the onset on."""

    def made(value: float) -> Scenario:
        return card_fault(name, name, settings=tuple((ONSET_S, one, of(value)) for one, of in settings.items()))

    return made


def machine(name: str, **settings: Callable[[float], Any]) -> Made:
    """A scenario whose machine says other things from the onset on."""

    def made(value: float) -> Scenario:
        scenario = SCENARIOS[name]
        added = tuple((ONSET_S, one, of(value)) for one, of in settings.items())
        return replace(scenario, server=replace(scenario.server, settings=(*scenario.server.settings, *added)))

    return made
