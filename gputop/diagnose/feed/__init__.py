"""Rules about the input pipeline: loaders that are too slow, too few, too many, or not there."""

from gputop.diagnose.feed import alone, loaders, many, order, respawn, unknown

__all__ = ["alone", "loaders", "many", "order", "respawn", "unknown"]
