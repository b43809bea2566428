"""gputop: says why training is slow, shows the evidence, fetches the profile that proves it."""

import sys

__version__ = "0.1.0"


def mark(name: str, value: float = 1.0) -> None:
    """Note a number of your training, such as its loss, for gputop to show; it costs a microsecond.

    Where no agent is in the process, nothing happens: neither does anything if the value is no number.
    """
    agent = sys.modules.get("gputop_agent")
    if agent is not None:
        agent.mark(name, value)
