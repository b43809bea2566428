"""Rules on the state of a GPU: throttling, link, errors, settings."""

from gputop.diagnose.rules.device import errors, setup, throttling

__all__ = ["ORDER", "errors", "setup", "throttling"]

# mig-visibility lists which of the others cannot judge instances
ORDER = ("thermal", "power", "clocks-low", "hw-errors", "pcie-degraded", "persistence-off", "mig-visibility")
