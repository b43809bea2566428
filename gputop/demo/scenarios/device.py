"""Cards that are hot, or set low."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.demo.scenarios.parts import ONSET_S, card_fault
from gputop.demo.server import Heat, Scenario


def scenarios() -> Iterator[Scenario]:
    """Each plants the rule it is named after."""
    hot = Heat(celsius=90, clock_mhz=1410, soft_percent=45, from_s=ONSET_S)
    yield card_fault("thermal", "a card at 90 C: the driver lowers its clock", heat=hot)
    yield card_fault("power", "a card held to 300 of its 700 W", limit_watts=300, limit_from_s=ONSET_S)
