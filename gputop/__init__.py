"""gputop: says why training is slow, shows the evidence, fetches the profile that proves it."""

import sys

__version__ = "0.1.0"


def mark(name: str, value: float = 1.0) -> None:
    """Mark a moment of your training, such as the start of an epoch, for gputop to show; it costs a microsecond.

    Where no agent is in the process, nothing happens: neither does anything if the value is no number.
    """
    agent = sys.modules.get("gputop_agent")
    if agent is not None:
        agent.mark(name, value)


def note(**numbers: object) -> None:
    """Note numbers of a training step for gputop to show: `gputop.note(loss=loss.item(), grad_norm=norm)`.

    It costs a microsecond, a tensor five; nothing happens where no agent is in the process. 24 names at most.
    A tensor with one element is read at once on the CPU; on a GPU once a second at most, as reading it waits for the
    GPU. Call it outside of functions that torch.compile compiles.
    """
    agent = sys.modules.get("gputop_agent")
    if agent is not None:
        agent.note(numbers)
