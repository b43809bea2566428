"""Who opens a demo sees what it is there to show."""

from __future__ import annotations

import pytest

from gputop.demo import open_demo
from gputop.monitor import Monitor
from tests.score.truths import BESIDE, EXPECTED

PATIENCE_S = 90.0  # of somebody who waits for it
PLANTED = {name: truth.primary for name, truth in {**EXPECTED, **BESIDE}.items()}


@pytest.mark.parametrize("name", PLANTED)
def test_a_demo_shows_its_finding_soon_after_it_opens(name: str) -> None:
    demo = open_demo(name, pace=False)
    until_s = demo.scenario.server.uptime_s + demo.at_s + PATIENCE_S
    for update in Monitor(demo).updates():
        told = {rule for finding in update.findings for rule in (finding.rule, *finding.causes)}
        if PLANTED[name] in told:
            return
        if update.frame.mono_s >= until_s:
            break
    pytest.fail(f"{PLANTED[name]} is not told within {PATIENCE_S:.0f} s")
