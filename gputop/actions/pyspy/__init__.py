"""What py-spy can tell of a process that runs: its stacks now, a profile of some seconds."""

from gputop.actions.pyspy.record import PROFILE, ProfileResult, Sampling, senseless
from gputop.actions.pyspy.stacks import STACK, Asked, Shown, StackResult

__all__ = ["PROFILE", "STACK", "Asked", "ProfileResult", "Sampling", "Shown", "StackResult", "senseless"]
