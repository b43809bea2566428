"""py-spy: the stacks of a running process, and profiles over some seconds."""

from gputop.actions.pyspy.record import PROFILE, ProfileResult, Sampling, invalid_options
from gputop.actions.pyspy.stacks import STACK, Asked, Shown, StackResult

__all__ = ["PROFILE", "STACK", "Asked", "ProfileResult", "Sampling", "Shown", "StackResult", "invalid_options"]
