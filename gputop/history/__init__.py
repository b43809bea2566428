"""The recent past of GPUs, tracked processes, disks, networks and the host: series with gaps, read by time."""

from gputop.history.past import COARSE_S, FINE_S, FINE_SLOTS, GPU, HOST, History, Key, MetricTrack
from gputop.history.table import HistoryWindow, Values

__all__ = [
    "COARSE_S",
    "FINE_S",
    "FINE_SLOTS",
    "GPU",
    "HOST",
    "History",
    "HistoryWindow",
    "Key",
    "MetricTrack",
    "Values",
]
