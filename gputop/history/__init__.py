"""The recent past of GPUs, tracked processes, disks, networks and the host: series with gaps, read by time."""

from gputop.history.past import COARSE_S, FINE_S, FINE_SLOTS, GPU, HOST, History, Key, Track
from gputop.history.table import Values, Window

__all__ = ["COARSE_S", "FINE_S", "FINE_SLOTS", "GPU", "HOST", "History", "Key", "Track", "Values", "Window"]
