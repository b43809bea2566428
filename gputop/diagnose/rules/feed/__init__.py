"""Rules on the input pipeline: loaders that are too slow, too few, too many, or missing."""

from gputop.diagnose.rules.feed import main_thread_loading, unknown, worker_count, worker_timing

__all__ = ["ORDER", "main_thread_loading", "unknown", "worker_count", "worker_timing"]

ORDER = (
    "loader-in-main",
    "starved-cpu-saturated",
    "starved-cpu-idle",
    "workers-oversized",
    "head-of-line",
    "worker-respawn",
    "starved-cause-unknown",
)
