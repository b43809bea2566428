"""gputop: says why training is slow, shows the evidence, fetches the profile that proves it."""

__version__ = "0.1.0"
