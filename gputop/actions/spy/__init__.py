"""What py-spy can tell of a process that runs: its stacks now, a profile of some seconds."""

from gputop.actions.spy.record import PROFILE, ProfileResult, Sampling, senseless
from gputop.actions.spy.stacks import STACK, Asked, Shown, StackResult

__all__ = ["PROFILE", "STACK", "Asked", "ProfileResult", "Sampling", "Shown", "StackResult", "senseless"]
