"""The simulated servers. A fault is a job or a card with other parameters from the onset on."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.demo.scenarios import device, host, ranks, servers, training
from gputop.demo.server import Scenario

SCENARIOS: Mapping[str, Scenario] = {
    made.name: made for module in (servers, training, host, ranks, device) for made in module.scenarios()
}
