"""What is wrong, why, and what to do: the types every sink shares."""

from gputop.diagnose.finding import Abstained, Class, Evidence, Finding, Severity, Step, Subject

__all__ = ["Abstained", "Class", "Evidence", "Finding", "Severity", "Step", "Subject"]
