"""Rules on the effective work of a busy GPU, and on programs that limit it."""

from gputop.diagnose.rules.efficiency import evaluation, gpu_bound, slowdown, small_job, waits

__all__ = ["ORDER", "evaluation", "gpu_bound", "slowdown", "small_job", "waits"]

ORDER = (
    "mem-bw-bound",
    "gpu-bound-healthy",
    "evaluation-phase",
    "tensor-cores-idle",
    "busy-not-effective",
    "sync-log-stall",
    "h2d-transfer-bound",
    "overhead-bound",
    "slowdown",
    "small-job",
)
