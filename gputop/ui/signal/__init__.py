"""The signal dialog: to which processes, which signal, what it will do, and a yes that is meant."""

from gputop.ui.signal.dialog import SignalDialog

__all__ = ["SignalDialog"]
