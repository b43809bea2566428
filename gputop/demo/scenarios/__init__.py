"""The simulated servers. A fault is a job or a card with other parameters from the onset on."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.demo.scenarios import cpu, device, efficiency, feed, memory, ranks, servers, storage, usage
from gputop.demo.server import Scenario

SCENARIOS: Mapping[str, Scenario] = {
    made.name: made
    for module in (servers, usage, feed, efficiency, cpu, storage, memory, ranks, device)
    for made in module.scenarios()
}
