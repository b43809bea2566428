"""The recent past of GPUs, tracked processes, disks, networks and the host: numbers with gaps, read by time."""

from gputop.history.past import COARSE_S, FINE_S, FINE_SLOTS, History
from gputop.history.table import Values
from gputop.history.track import GPU, HOST, Key, Track
from gputop.history.window import Window

__all__ = ["COARSE_S", "FINE_S", "FINE_SLOTS", "GPU", "HOST", "History", "Key", "Track", "Values", "Window"]
