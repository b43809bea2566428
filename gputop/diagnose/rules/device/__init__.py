"""Rules about the state of a card: what slows it, its link, its errors, its settings."""

from gputop.diagnose.rules.device import errors, setup, throttling

__all__ = ["ORDER", "errors", "setup", "throttling"]

# mig-visibility tells which of the others are silent on instances
ORDER = ("thermal", "power", "clocks-low", "hw-errors", "pcie-degraded", "persistence-off", "mig-visibility")
