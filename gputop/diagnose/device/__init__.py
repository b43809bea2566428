"""Rules about the state of a card: what slows it, its link, its errors, its settings."""

from gputop.diagnose.device import slowed

# isort: split
from gputop.diagnose.device import errors, pcie

# isort: split
from gputop.diagnose.device import settings  # last: it tells which of the others are silent on instances

__all__ = ["slowed", "errors", "pcie", "settings"]  # noqa: RUF022  in which their rules are asked
